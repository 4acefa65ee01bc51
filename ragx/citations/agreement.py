"""How far a judge agrees with people (Honovich et al. 2022, TRUE).

    AUC      chance that a supported row scores above an unsupported one, ties half
    kappa    (observed agreement - agreement by chance) / (1 - agreement by chance)

Counted over the rows that the judge judged, with the share that it did not beside it. `auc_all` covers every row: one
that was not judged stands halfway, at 0.5.

One decision: nothing is imputed. Where a figure has no rows (a judge that never says `full` has no precision of it), it
is None, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ragx.citations.metrics import auroc
from ragx.errors import RagxError


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge against human labels, supported or not.

    Attributes:
        n: rows.
        not_judged: share of them that the judge left open.
        auc, auc_all: of its scores, over judged rows and over all.
        accuracy, kappa: of its decisions over judged rows.
        precision, recall: of "supported".
        precision_unsupported, recall_unsupported: of "not supported"; recalls are over judged rows.
        recall_unsupported_all: of all unsupported rows, the share the judge finds; what a veto is worth.
    """

    n: int
    not_judged: float | None
    auc: float | None
    auc_all: float | None
    accuracy: float | None
    kappa: float | None
    precision: float | None
    recall: float | None
    precision_unsupported: float | None
    recall_unsupported: float | None
    recall_unsupported_all: float | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


def agreement(truth: Sequence[bool], scores: Sequence[float | None], *, threshold: float) -> Agreement:
    """Compares scores with labels; a row counts as supported from `threshold` on, None was not judged.

    Raises:
        RagxError: not one score per label.
    """
    if len(truth) != len(scores):
        raise RagxError(f"scores must be one per label, got {len(scores)} for {len(truth)}. Score every row")
    judged = [(label, score) for label, score in zip(truth, scores, strict=True) if score is not None]
    decided = [(label, score >= threshold) for label, score in judged]
    hits = sum(label and said for label, said in decided)
    rejected = sum(not label and not said for label, said in decided)
    supported, said_supported = sum(label for label, _ in decided), sum(said for _, said in decided)
    unsupported, said_unsupported = len(decided) - supported, len(decided) - said_supported
    return Agreement(
        n=len(truth),
        not_judged=_share(len(truth) - len(judged), len(truth)),
        auc=auroc([(score, label) for label, score in judged]),
        auc_all=auroc([(0.5 if score is None else score, label) for label, score in zip(truth, scores, strict=True)]),
        accuracy=_share(hits + rejected, len(decided)),
        kappa=cohens_kappa([label for label, _ in decided], [said for _, said in decided]),
        precision=_share(hits, said_supported),
        recall=_share(hits, supported),
        precision_unsupported=_share(rejected, said_unsupported),
        recall_unsupported=_share(rejected, unsupported),
        recall_unsupported_all=_share(rejected, sum(not label for label in truth)),
    )


def cohens_kappa(first: Sequence[bool], second: Sequence[bool]) -> float | None:
    """Agreement beyond chance of two raters; None without rows or where chance alone agrees fully."""
    n = len(first)
    if not n:
        return None
    a, b = sum(first) / n, sum(second) / n
    observed = sum(x == y for x, y in zip(first, second, strict=True)) / n
    chance = a * b + (1 - a) * (1 - b)
    return None if chance == 1 else (observed - chance) / (1 - chance)


def best_threshold(truth: Sequence[bool], scores: Sequence[float | None]) -> float:
    """The score from which to say supported that has the best G-mean, sqrt(recall x recall of unsupported).

    Rows that were not judged are left out; the lowest threshold wins a tie.

    Raises:
        RagxError: the judged rows lack one of the two classes.
    """
    judged = [(score, label) for label, score in zip(truth, scores, strict=True) if score is not None]
    positive = sum(label for _, label in judged)
    negative = len(judged) - positive
    if not positive or not negative:
        raise RagxError(
            f"rows must hold supported and unsupported ones, got {positive} and {negative}. Tune on other rows"
        )
    best, threshold = -1.0, 0.0
    above, rejected = positive, 0  # as the threshold passes the scores from below
    for score in sorted({score for score, _ in judged}):
        value = above * rejected / (positive * negative)
        if value > best:
            best, threshold = value, score
        here = [label for other, label in judged if other == score]
        above -= sum(here)
        rejected += len(here) - sum(here)
    return threshold


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
