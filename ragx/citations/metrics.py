"""Formulas of citation quality on the labels of one item (ALCE; Liu et al. 2023; TREC RAG); None without a base.

    ALCE      recall(s) = phi(all of C_s, s)      c irrelevant  <=>  not phi(c, s) and phi(C_s less c, s)
              precision(c) = recall(s) = 1 and c not irrelevant
    Liu       precise(c)  <=>  full, or: together full, no single one full, and c partial
    TREC      weights full 1, partial 1/2, else 0; precision over cited pairs, recall over sentences
    AUROC     probability that a supporting passage has the larger posterior than one that does not

One decision: an invalid citation stays in every precision denominator, and a sentence that has one has no recall, as
ALCE's code does for numbers out of range: citing what does not exist must not pay. Duplicates are removed before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

WEIGHTS = {"full": 1.0, "partial": 0.5, "none": 0.0, "contradict": 0.0}
PER_SENTENCE = ("best", "first", "union")

Enough = Callable[[frozenset[Any]], bool | None]


def alce_recall(valid: Sequence[Hashable], *, n_invalid: int, enough: Enough) -> float | None:
    """1.0 where the sentence's citations together support it; None where nobody judged that."""
    if n_invalid or not valid:
        return 0.0
    together = enough(frozenset(valid))
    return None if together is None else float(together)


def alce_precision(valid: Sequence[Hashable], *, n_invalid: int, enough: Enough) -> list[float | None]:
    """Per citation of a sentence, invalid ones last, 1.0 where it is needed or supports by itself."""
    recall = alce_recall(valid, n_invalid=n_invalid, enough=enough)
    if recall != 1.0:
        return [*[recall] * len(valid), *[0.0] * n_invalid]
    return [_needed(citation, frozenset(valid), enough) for citation in valid]


def _needed(citation: Hashable, every: frozenset[Hashable], enough: Enough) -> float | None:
    alone, others = enough(frozenset([citation])), every - {citation}
    if alone or not others:
        return 1.0
    without = enough(others)
    if without is False:
        return 1.0
    return None if alone is None or without is None else 0.0


def partial_aware_precision(labels: Sequence[str], *, n_invalid: int, together: bool | None) -> list[float | None]:
    """Per citation of a sentence (Liu et al. 2023), invalid ones last; labels of the valid ones."""
    alone = "full" in labels
    scores: list[float | None] = []
    for label in labels:
        if label == "partial" and not alone and together is None:
            scores.append(None)
        elif label == "not_judged":
            scores.append(None)
        else:
            scores.append(float(label == "full" or (label == "partial" and not alone and bool(together))))
    return [*scores, *[0.0] * n_invalid]


def trec_support(
    sentences: Sequence[Sequence[str]], *, together: Sequence[bool | None] = (), per_sentence: str = "best"
) -> dict[str, float | None]:
    """Weighted and strict support of one answer (TREC RAG), over judged pairs.

    Args:
        sentences: per sentence the labels of its citations in order; any label without a weight (an invalid citation)
            counts 0, `not_judged` is left out.
        together: per sentence whether its citations suffice together; for `union` only.
        per_sentence: which label a cited sentence gets: its `best`, its `first`, or that of all together.
    """
    judged = [[label for label in labels if label != "not_judged"] for labels in sentences]
    pairs = [label for labels in judged for label in labels]
    gained: list[str | None] = []
    for i, (labels, given) in enumerate(zip(judged, sentences, strict=True)):
        if given and not labels:
            continue  # cited, and nobody judged it
        best = max(labels, key=lambda label: WEIGHTS.get(label, 0.0), default=None)
        if per_sentence == "union" and together and together[i]:
            best = "full"
        gained.append(labels[0] if per_sentence == "first" and labels else best)
    return {
        "weighted_precision": _mean([WEIGHTS.get(label, 0.0) for label in pairs]),
        "weighted_recall": _mean([WEIGHTS.get(label or "", 0.0) for label in gained]),
        "strict_precision": _mean([float(label == "full") for label in pairs]),
        "strict_recall": _mean([float(label == "full") for label in gained]),
    }


def fraction_of_group(groups: Sequence[frozenset[Hashable]], cited: frozenset[Hashable]) -> float | None:
    """max over sufficient groups W of |W and R| / |W|; 1 is full support."""
    return max((len(group & cited) / len(group) for group in groups), default=None)


def auroc(scored: Sequence[tuple[float, bool]]) -> float | None:
    """Area under the ROC curve of (score, positive) pairs, ties counted half; None with one class only."""
    values = np.asarray([score for score, _ in scored], dtype=np.float64)
    positive = np.asarray([flag for _, flag in scored], dtype=bool)
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return None
    _, rank, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    ranks = float(mean_rank[rank][positive].sum())
    return (ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)


def expected_calibration_error(scored: Sequence[tuple[float, bool]], *, bins: int = 10) -> float | None:
    """Mean |share of positives - mean score| over equal-width bins of [0, 1], weighted by their size."""
    if not scored:
        return None
    values = np.asarray([score for score, _ in scored], dtype=np.float64).clip(0.0, 1.0)
    positive = np.asarray([flag for _, flag in scored], dtype=np.float64)
    place = np.minimum((values * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=positive - values, minlength=bins)
    return float(np.abs(gaps).sum() / len(scored))


def abstention(outcomes: Mapping[tuple[bool, bool], int]) -> dict[str, float | int | None]:
    """The table of how often (answerable, answered) occurred: F1 of both classes and their mean (Trust-Score)."""
    counts = Counter(outcomes)
    right, wrong = counts[True, True], counts[False, True]
    over, kept = counts[True, False], counts[False, False]
    f1_answered = _f1(right, wrong, over)
    f1_abstained = _f1(kept, over, wrong)
    both = [value for value in (f1_answered, f1_abstained) if value is not None]
    return {
        "answerable_answered": right,
        "answerable_abstained": over,
        "unanswerable_answered": wrong,
        "unanswerable_abstained": kept,
        "f1_answered": f1_answered,
        "f1_abstained": f1_abstained,
        "f1_mean": _mean(both) if len(both) == 2 else None,
        "over_abstention_rate": over / (over + right) if over + right else None,
        "false_answer_rate": wrong / (wrong + kept) if wrong + kept else None,
    }


def _f1(hits: int, surplus: int, missed: int) -> float | None:
    return 2 * hits / (2 * hits + surplus + missed) if hits + surplus + missed else None


def _mean(values: Sequence[float]) -> float | None:
    return float(sum(values)) / len(values) if values else None
