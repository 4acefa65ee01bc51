"""The claim stands word for word in a passage, and where.

    full         every word of it stands, in order, in the part of the passage that the generator saw
    not_judged   it does not; the passage may still say so in other words

One decision: this judge never says `none`. Not finding the words is a limit of the judge, not proof that the passage
does not support the claim. Offsets are code points of the passage text as stored, half-open.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from ragx.errors import ShapeError
from ragx.records import Passage

_CJK = "\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60\U00020000-\U0003ffff"
_IS_CJK = re.compile(f"[{_CJK}]")
# A character that belongs to the one before it: combining marks and the vowels and finals of conjoining Hangul.
_CONTINUES = re.compile("[\u1160-\u11ff\ud7b0-\ud7fb]")


def exact_span(answer: str, text: str, *, visible: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Code points [start, end) of the first place where `answer` stands in the visible part of `text`.

    Case counts. Canonically equivalent spellings are equal (NFC), a run of white space equals any other, and a line
    break between two CJK characters equals nothing. A match must be whole words and whole numbers: "Ann" is not in
    "Annual", "1976" not in "19760", "5" not in "3.5".

    Args:
        answer: what to look for; blank is found nowhere.
        text: the passage text as it stands in the index.
        visible: the code points of `text` that reached the generator; default all.

    Raises:
        ShapeError: `visible` is not a span of `text`.
    """
    start, end = visible if visible is not None else (0, len(text))
    if not 0 <= start <= end <= len(text):
        raise ShapeError(f"visible must be a span within {len(text)} code points, got {(start, end)}. Count them")
    words = unicodedata.normalize("NFC", answer).split()
    if not words:
        return None
    normalized, starts = _with_offsets(text)
    pattern = re.compile(r"\s+".join(_word_pattern(word) for word in words))
    position = 0
    while match := pattern.search(normalized, position):
        first, last = _original(starts, match.start()), _original_end(starts, match.end(), length=len(text))
        if start <= first and last <= end and _whole(normalized, match.start(), match.end()):
            return first, last
        position = match.start() + 1
    return None


def judge_exact_span(
    answer: str, text: str, *, visible: tuple[int, int] | None = None
) -> tuple[str, tuple[int, int] | None]:
    """The support of `text` for `answer`, with the span: ("full", span) or ("not_judged", None)."""
    span = exact_span(answer, text, visible=visible)
    return ("not_judged", None) if span is None else ("full", span)


class ExactSpanJudge:
    """J1 as `ragx.protocols.Judge`.

    A claim of several lines is one of several quotes: over several passages, each may give one run of lines that stand
    together in it. So a text stitched from distant lines of one passage is no quote of it.
    """

    id = "exact_span"

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        """`full` where the passages hold the claim word for word, else `not_judged`."""
        lines = [line for line in claim.splitlines() if line.strip()]
        return "full" if lines and _quoted(lines, [passage.text for passage in passages]) else "not_judged"

    def score(self, claim: str, passages: Sequence[Passage]) -> float | None:
        """1.0 where the label is `full`."""
        return 1.0 if self.judge(claim, passages) == "full" else None


def _quoted(lines: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether the lines are runs that stand together, at most one run from each text; longest runs first."""
    if not lines:
        return True
    for end in range(len(lines), 0, -1):
        run = "\n".join(lines[:end])
        for i, text in enumerate(texts):
            if exact_span(run, text) is not None and _quoted(lines[end:], [*texts[:i], *texts[i + 1 :]]):
                return True
    return False


def _word_pattern(word: str) -> str:
    """The word, allowing a line break between two of its CJK characters."""
    parts = [re.escape(word[0])]
    for before, after in pairwise(word):
        both = _IS_CJK.match(before) and _IS_CJK.match(after)
        parts.append((r"\n?" if both else "") + re.escape(after))
    return "".join(parts)


def _whole(text: str, start: int, end: int) -> bool:
    """Whether no word or number runs on beyond either end of [start, end)."""
    return not _joined(text, start) and not _joined(text, end)


def _joined(text: str, at: int) -> bool:
    """Whether the characters on both sides of a boundary belong to one word or one number."""
    if at <= 0 or at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    if before.isalnum() and after.isalnum():
        return not (_IS_CJK.match(before) or _IS_CJK.match(after))
    # A decimal point or thousands separator stands between two digits, and belongs to their number.
    left = before in ".," and text[at - 2 : at - 1].isdigit() and after.isdigit()
    right = after in ".," and before.isdigit() and text[at + 1 : at + 2].isdigit()
    return left or right


def _with_offsets(text: str) -> tuple[str, list[tuple[int, int]] | None]:
    """NFC of `text`, and per cluster (its start in NFC, its start in `text`); None where nothing changes."""
    if unicodedata.is_normalized("NFC", text):
        return text, None
    clusters: list[str] = []
    for character in text:
        continues = unicodedata.category(character).startswith("M") or _CONTINUES.match(character)
        if clusters and continues:
            clusters[-1] += character
        else:
            clusters.append(character)
    composed = [unicodedata.normalize("NFC", cluster) for cluster in clusters]
    after = accumulate(map(len, composed), initial=0)
    before = accumulate(map(len, clusters), initial=0)
    return "".join(composed), list(zip(after, before, strict=True))


def _original(starts: list[tuple[int, int]] | None, offset: int) -> int:
    """The code point in the stored text where the cluster at `offset` of the NFC text begins."""
    if starts is None:
        return offset
    return starts[bisect_right(starts, (offset, 1 << 62)) - 1][1]


def _original_end(starts: list[tuple[int, int]] | None, offset: int, *, length: int) -> int:
    """The same for an exclusive end: a match that ends inside a cluster takes the whole cluster."""
    if starts is None:
        return offset
    at = bisect_right(starts, (offset, -1))
    return starts[at][1] if at < len(starts) else length
