"""Did the ranking and the citations find the gold passages: KILT's and FEVER's scores.

    recall@k      gold sets whose last member is within the first k points of the rank / gold sets
    KILT-X        X, counted only where R-precision on pages is 1
    FEVER         label right and (not enough info, or a whole gold group among the first five cited)

R-precision, which titles share, is in `ragx.kilt`. One decision: KILT's rank has one point for each gold set, where its
last member is found (checked against its own test case), and an id that stands twice is counted once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

FEVER_EVIDENCE = 5
NOT_ENOUGH_INFO = "NOT ENOUGH INFO"
_FEVER_LABELS = {
    "supports": "SUPPORTS", "supported": "SUPPORTS", "refutes": "REFUTES", "refuted": "REFUTES",
    "not enough info": NOT_ENOUGH_INFO, "nei": NOT_ENOUGH_INFO,
}  # fmt: skip

Sets = Sequence[frozenset[Hashable]]


def kilt_rank(ranked: Sequence[Hashable], gold: Sets) -> list[bool]:
    """The points of a rank: True where a gold set is completed, False for an id of none or a set left incomplete."""
    missing = [set(group) for group in gold]
    points: list[bool | tuple[int]] = []  # (i,) where gold set i is still incomplete
    for item in dict.fromkeys(ranked):
        found = [i for i, group in enumerate(missing) if item in group]
        for i in found:
            if (i,) in points:
                points.remove((i,))
            missing[i].discard(item)
            points.append((i,) if missing[i] else True)
        if not found:
            points.append(False)
    return [point is True for point in points]


def kilt_precision_at(ranked: Sequence[Hashable], gold: Sets, k: int) -> float | None:
    """Completed gold sets among the first k points, over k; None without gold sets."""
    return sum(kilt_rank(ranked, gold)[:k]) / k if gold else None


def kilt_recall_at(ranked: Sequence[Hashable], gold: Sets, k: int) -> float | None:
    """Completed gold sets among the first k points, over all gold sets; None without gold sets."""
    return sum(kilt_rank(ranked, gold)[:k]) / len(gold) if gold else None


def kilt_score(score: float | None, page_r_precision: float | None) -> float | None:
    """A downstream score that counts only with perfect provenance; None where either is unknown."""
    if score is None or page_r_precision is None:
        return None
    return score if page_r_precision == 1 else 0.0


@dataclass(frozen=True, slots=True)
class Fever:
    """The scores of one claim of FEVER.

    Attributes:
        strict: label and evidence.
        accuracy: label alone.
        precision: cited that stand in some gold group, over cited; None for NOT ENOUGH INFO and where nothing is cited.
        recall: 1.0 where a whole group is cited; None for NOT ENOUGH INFO.
    """

    strict: float
    accuracy: float
    precision: float | None
    recall: float | None


def fever_label(text: str) -> str:
    """One of FEVER's three labels, else the text in capitals."""
    return _FEVER_LABELS.get(text.strip().lower().rstrip("."), text.strip().upper())


def fever_score(*, predicted: str, label: str, cited: Sequence[Hashable], groups: Sets) -> Fever:
    """FEVER's scores of one claim; only the first five distinct citations count."""
    first = list(dict.fromkeys(cited))[:FEVER_EVIDENCE]
    right = fever_label(predicted) == fever_label(label)
    if fever_label(label) == NOT_ENOUGH_INFO:
        return Fever(float(right), float(right), None, None)
    whole = any(group <= set(first) for group in groups)
    gold = frozenset().union(*groups)
    precision = sum(item in gold for item in first) / len(first) if first else None
    return Fever(float(right and whole), float(right), precision, float(whole))


def f1_of(precision: float | None, recall: float | None) -> float | None:
    """The harmonic mean; 0 where both are 0, None where either is unknown."""
    if precision is None or recall is None:
        return None
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
