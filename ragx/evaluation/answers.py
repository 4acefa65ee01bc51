"""Section 4.1: exact match and F1 of short answers, as SQuAD's script normalises them, best over the accepted answers.

    normalize:  lower case, without punctuation, without a/an/the, single spaces

Two decisions beyond SQuAD's script. Text is brought to NFC first, so that two spellings of one letter are equal; not
to NFKC, which would also make "½" and "1⁄2", or "①" and "1", one answer. An answer of which nothing is left ("The The",
"!!!") is compared as it is written: otherwise every empty prediction would be right about it. Punctuation is ASCII's,
as in the script; markup is text like any other ("<b>x</b>" is not "x"). Arguments are named, so that prediction and
answers are never swapped in silence.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ragx.errors import RagxError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TOKEN = re.compile(r"\w+|[^\w\s]")


class Overlap(NamedTuple):
    """Shared tokens as a share of the prediction's, of the answer's, and their harmonic mean."""

    precision: float
    recall: float
    f1: float


def normalize_answer(text: str) -> str:
    """SQuAD's normal form of an answer; may be empty."""
    lowered = unicodedata.normalize("NFC", text).lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", lowered).split())


def exact_match(*, prediction: str, answers: Sequence[str]) -> float:
    """1.0 where the prediction equals one of the accepted answers in normal form, else 0.0.

    Raises:
        RagxError: `answers` is a text or empty (also where prediction and answers are swapped).
    """
    return max(float(a == b) for a, b in (_comparable(prediction, x) for x in _checked(prediction, answers)))


def f1(*, prediction: str, answers: Sequence[str]) -> float:
    """The best token F1 over the accepted answers.

    Raises:
        RagxError: as `exact_match`.
    """
    return max(overlap(prediction=prediction, answer=answer).f1 for answer in _checked(prediction, answers))


def overlap(*, prediction: str, answer: str) -> Overlap:
    """Token precision, recall and F1 of a prediction against one answer; tokens count as often as they occur."""
    ours, theirs = (text.split() for text in _comparable(prediction, answer))
    if not ours or not theirs:
        same = float(ours == theirs)
        return Overlap(same, same, same)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    if not shared:
        return Overlap(0.0, 0.0, 0.0)
    precision, recall = shared / len(ours), shared / len(theirs)
    return Overlap(precision, recall, 2 * precision * recall / (precision + recall))


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether one of the answers stands in `text` as whole tokens, case aside (DPR's test, without gold passages)."""
    tokens = _tokens(text)
    return any(_contains(tokens, _tokens(answer)) for answer in _checked(text, answers))


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFC", text).lower())


def _contains(tokens: list[str], wanted: list[str]) -> bool:
    n = len(wanted)
    return n > 0 and any(tokens[i : i + n] == wanted for i in range(len(tokens) - n + 1))


def _comparable(prediction: str, answer: str) -> tuple[str, str]:
    """Both in normal form, or both as written (NFC, outer space aside) where an answer's normal form is empty."""
    normal = normalize_answer(prediction), normalize_answer(answer)
    if normal[1]:
        return normal
    return unicodedata.normalize("NFC", prediction).strip(), unicodedata.normalize("NFC", answer).strip()


def _checked(prediction: str, answers: Sequence[str]) -> Sequence[str]:
    if not isinstance(prediction, str):
        raise RagxError(f"prediction must be text, got {prediction!r}. It comes first, the accepted answers second")
    if isinstance(answers, str) or not answers:
        raise RagxError(
            f"answers must be a list of at least one accepted answer, got {answers!r}. Wrap a single answer in a list"
        )
    return answers
