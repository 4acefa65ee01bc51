"""What one question adds to every figure of the summary.

    Ratio(hits, of)   for rates over citations or claims: summed over questions, then divided (micro)
    number or None    for scores of a question: averaged over the questions that have one (macro)

One decision: a question keeps its own numerator and denominator, so that intervals are drawn over questions, the unit
that was sampled, and never over citations as if each were independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Ratio(NamedTuple):
    """A numerator and its denominator; a question whose denominator is 0 has nothing to say."""

    hits: float
    of: float


Score = Ratio | float | None


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """How right the answer is, computed where the answer metrics are.

    Attributes:
        exact_match, f1, accuracy: against the accepted answers; accuracy is whether one of them stands in the answer.
        without_evidence: exact match where no packed passage holds an accepted answer; None where one does.
    """

    exact_match: float | None = None
    f1: float | None = None
    accuracy: float | None = None
    without_evidence: float | None = None


@dataclass(frozen=True, slots=True)
class QuestionScores:
    """Everything that the summary needs of one question.

    Attributes:
        qid: the question.
        groups: what it belongs to, for tables by model, task, category and origin: (table, name).
        values: by metric.
        counted: what happened in it, as (table, name), as often as it did.
        pairs: (posterior, whether the passage supports the claim), of judged passages.
        outcome: (answerable, answered); None without gold data.
    """

    qid: str
    groups: tuple[tuple[str, str], ...]
    values: dict[str, Score]
    counted: tuple[tuple[str, str], ...]
    pairs: tuple[tuple[float, bool], ...]
    outcome: tuple[bool, bool] | None


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is there; None where nothing is."""
    given = [value for value in values if value is not None]
    return float(sum(given)) / len(given) if given else None
