"""An answer cut into claims, each with the markers that belong to it.

    "A [1]. B.[2] C"   ->   A. with 1      B. with 2      C with nothing

A sentence ends at . ! ? or their CJK forms, and at a line break. A marker after the full stop belongs to the sentence
before it. Abbreviations, initials and list numbers end nothing, nor does a full stop before a small letter.

One decision: the splitter is a few rules in this file under a name and version that every result records, since another
splitter gives other claims and so other figures.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from ragx.citations.markers import MARKER, Marker, find_markers, without_markers

SPLITTER = "ragx-sentences"
SPLITTER_VERSION = 1

_ABBREVIATIONS = frozenset(
    "dr mr mrs ms prof st mt jr sr gen col lt sgt capt gov sen rep rev hon al etc vs cf ca approx fig figs eq no "
    "nos vol pp p ed eds est inc ltd co corp dept univ jan feb mar apr jun jul aug sep sept oct nov dec e.g i.e u.s "
    "u.k u.n u.s.a a.m p.m ph.d b.c a.d d.c viz resp op cit".split()
)
_CLOSERS = "\"'\u201d\u2019\u00bb)\\]\u300d\u300f\uff09"
_END = re.compile(
    rf"(?P<stop>[.!?\u2026]+|[\u3002\uff01\uff1f]+)[{_CLOSERS}]*"
    rf"(?P<marks>(?:[ \t]*{MARKER}(?:\s*[,;](?=\s*{MARKER}))?)*)"
)
_WORD_BEFORE = re.compile(r"[\w.]*$")
_LONGEST_WORD = 40
_NEXT = re.compile(r"\s*(\S?)")
_SOURCES = re.compile(r"(?i)\W*(sources?|references?|citations?|bibliography|\u6765\u6e90|\u53c2\u8003\u6587\u732e)\W*")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One claim candidate of an answer.

    Attributes:
        text: without markers.
        span: code points [start, end) of the answer, markers included.
        markers: those that belong to it.
        worthy: whether it needs a citation: not a heading, an introduction that ends in a colon, or a list of sources.
    """

    text: str
    span: tuple[int, int]
    markers: tuple[Marker, ...]
    worthy: bool


def split_claims(answer: str, *, n_refs: int) -> list[Sentence]:
    """The sentences of an answer with their markers, in order; none for a blank answer.

    Args:
        n_refs: how many passages a marker may name.
    """
    markers = find_markers(answer, n_refs=n_refs)
    starts = [marker.span[0] for marker in markers]
    sentences: list[Sentence] = []
    for start, end in sentence_spans(answer):
        own = tuple(markers[bisect_left(starts, start) : bisect_left(starts, end)])
        text = without_markers(answer, list(own), start=start, end=end)
        if any(character.isalnum() for character in text):
            sentences.append(Sentence(text, (start, end), own, _worthy(text)))
        elif own and sentences:  # a line of markers alone belongs to what stands before it
            last = sentences[-1]
            sentences[-1] = Sentence(last.text, (last.span[0], end), last.markers + own, last.worthy)
        elif own:
            sentences.append(Sentence(text, (start, end), own, False))
    return sentences


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Code points [start, end) of each sentence, outer white space aside."""
    ends = sorted({m.end() for m in _END.finditer(text) if _ends_here(text, m)} | {m.end() for m in _lines(text)})
    starts = [0, *ends]
    spans = []
    for start, end in zip(starts, [*ends, len(text)], strict=True):
        piece = text[start:end]
        if piece.strip():
            left = start + len(piece) - len(piece.lstrip())
            spans.append((left, left + len(piece.strip())))
    return spans


def _lines(text: str) -> list[re.Match[str]]:
    return list(re.finditer(r"\n+", text))


def _ends_here(text: str, match: re.Match[str]) -> bool:
    end = match.end()
    if match["stop"][0] in "\u3002\uff01\uff1f":
        return True
    if end < len(text) and not text[end].isspace() and not match["marks"]:
        return False
    found = _NEXT.match(text, end)
    following = found[1] if found else ""
    if following and (following.islower() or following in ".,;:!?"):
        return False
    if match["stop"] != ".":
        return True
    before = _WORD_BEFORE.search(text, max(0, match.start() - _LONGEST_WORD), match.start())
    word = before[0] if before else ""
    line_start = text.rfind("\n", 0, match.start()) + 1
    if word.isdigit() and not text[line_start : match.start() - len(word)].strip():
        return False  # "1. First", the number of a list
    if not following or match["marks"]:
        return True
    initial = len(word) == 1 and word.isalpha() and word.isupper()
    return not initial and word.lower().lstrip(".") not in _ABBREVIATIONS


def _worthy(text: str) -> bool:
    return not text.endswith((":", "\uff1a")) and not _SOURCES.fullmatch(text) and not text.startswith("#")
