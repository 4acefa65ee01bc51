"""Citation markers in a text: [1]  [1][2]  [1, 2]  [1-3]  and full-width forms.

    [1-3], k = 2   ->  1, 2 and one number out of range          [3-1]  ->  one inverted range
    [0], [9]       ->  out of range; [2024] as well, remarked as maybe no citation
    x[3], `a[0]`   ->  an index in code, no citation             Paris[1]  ->  a citation, remarked as glued

One decision: what cannot be resolved is kept and counted. A marker that is dropped in silence raises the precision of
whoever invents it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# \d is any decimal digit, full-width ones included, as int() reads them.
_ITEM = r"\d{1,9}(?:\s*[-\u2010-\u2013\uff0d~\uff5e]\s*\d{1,9})?"
MARKER = rf"[\[\uff3b\u3010]\s*{_ITEM}(?:\s*[,;\uff0c\u3001\uff1b]\s*{_ITEM})*\s*[\]\uff3d\u3011]"
_MARKER = re.compile(MARKER)
_PART = re.compile(r"(\d+)(?:\s*[-\u2010-\u2013\uff0d~\uff5e]\s*(\d+))?")
_NAME_BEFORE = re.compile(r"[A-Za-z_]\w*$")


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker as written.

    Attributes:
        span: code points [start, end) of the text.
        refs: display numbers within 1..k, in order.
        wrong: per number or range that names nothing: (number or None, why): `out_of_range`, `inverted_range`.
        notes: `list`, `range`, `full_width`, `glued`, `maybe_not_a_citation`.
    """

    span: tuple[int, int]
    refs: tuple[int, ...]
    wrong: tuple[tuple[int | None, str], ...]
    notes: tuple[str, ...]

    @property
    def well_formed(self) -> bool:
        """Whether the strict reading takes it too: [n] alone, within range, not glued to a word."""
        return not self.wrong and not self.notes


def find_markers(text: str, *, n_refs: int) -> list[Marker]:
    """The citation markers of `text` in order.

    Args:
        n_refs: how many passages the numbers may name, k.
    """
    in_code = _code_spans(text)
    found = []
    for match in _MARKER.finditer(text):
        start = match.start()
        name = _NAME_BEFORE.search(text, max(0, start - 40), start)
        glued = name is not None and name.end() == start
        indexed = glued and text[start] == "[" and name is not None and _is_variable(name[0])
        if indexed or any(a <= start < b for a, b in in_code):
            continue
        found.append(_marker(match, glued=glued, n_refs=n_refs))
    return found


def without_markers(text: str, markers: list[Marker], *, start: int = 0, end: int | None = None) -> str:
    """text[start:end] without its markers, the commas between them and the space before them."""
    end = len(text) if end is None else end
    kept, position = [], start
    for marker in markers:
        if start <= marker.span[0] < end:
            piece = text[position : marker.span[0]]
            if position > start and not piece.strip(" ,;\uff0c\u3001"):
                piece = ""
            kept.append(piece.rstrip())
            position = marker.span[1]
    rest = text[position:end]
    if kept and kept[-1].endswith(".") and rest.startswith("."):
        rest = rest[1:]  # "the U.S. [2]."
    return " ".join("".join([*kept, rest]).split())


def _marker(match: re.Match[str], *, glued: bool, n_refs: int) -> Marker:
    refs: list[int] = []
    wrong: list[tuple[int | None, str]] = []
    notes = ["glued"] if glued else []
    parts = _PART.findall(match[0])
    if len(parts) > 1:
        notes.append("list")
    for first, last in parts:
        low, high = int(first), int(last or first)
        if last:
            notes.append("range")
        if low > high:
            wrong.append((None, "inverted_range"))
            continue
        refs += range(max(low, 1), min(high, n_refs) + 1)
        if low < 1:
            wrong.append((0, "out_of_range"))
        if high > n_refs:
            wrong.append((max(low, n_refs + 1), "out_of_range"))
            if not last and 1000 <= low <= 2999:
                notes.append("maybe_not_a_citation")
    if not match[0].isascii():
        notes.append("full_width")
    return Marker(match.span(), tuple(refs), tuple(wrong), tuple(dict.fromkeys(notes)))


def _is_variable(name: str) -> bool:
    return len(name) == 1 or "_" in name


def _code_spans(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"`[^`\n]+`", text)]
