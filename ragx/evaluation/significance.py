"""How sure a figure is: 95% bootstrap intervals over questions, and paired differences (Koehn 2004).

    mean        of one score a question
    statistic   of sums over questions: a ratio of sums, corpus BLEU from its counts

One decision: a resample draws how often each distinct score occurs (a multinomial), which has the same distribution as
drawing questions one by one. So the interval does not depend on the order of the questions, 0/1 scores cost next to
nothing, and the same seed gives the same digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ragx.errors import RagxError

RESAMPLES = 2000
_CELLS = 4_000_000  # resamples x distinct scores held at once
_Array = npt.NDArray[np.float64]
Statistic = Callable[[_Array], _Array]  # from sums over questions (..., C) to values (...)


@dataclass(frozen=True, slots=True)
class Metric:
    """A mean over questions.

    Attributes:
        value: the mean; None where no question could be scored. Never imputed.
        n: questions that were scored.
        n_null: questions that could not be (no gold passage known, fewer passages than k).
        ci95: 95% bootstrap interval over the scored questions; None where there are none.
    """

    value: float | None
    n: int
    n_null: int
    ci95: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much better the first system is on the same questions.

    Attributes:
        value: mean of first - second.
        ci95: its 95% bootstrap interval.
        p_value: two-sided bootstrap p-value of no difference.
        n: questions.
    """

    value: float
    ci95: tuple[float, float]
    p_value: float
    n: int

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


def aggregate(scores: Iterable[float | None], *, seed: int = 0) -> Metric:
    """The mean of per-question scores with its interval; None is a question that could not be scored."""
    given = list(scores)
    scored = [score for score in given if score is not None]
    if not scored:
        return Metric(value=None, n=0, n_null=len(given), ci95=None)
    mean = float(np.mean(np.sort(_finite(scored))))
    return Metric(value=mean, n=len(scored), n_null=len(given) - len(scored), ci95=bootstrap_ci95(scored, seed=seed))


def aggregate_ratio(pairs: npt.ArrayLike, *, seed: int = 0) -> Metric:
    """Sum of hits over sum of cases, with the interval over resampled questions.

    Args:
        pairs: (N, 2), hits and cases of each question; one without cases could not be scored. With one case each this
            is the mean of the hits.
    """
    given = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    scored = given[given[:, 1] > 0]
    return _of_sums(scored, ratio, n_null=len(given) - len(scored), seed=seed)


def ratio(sums: _Array) -> _Array:
    """Hits over cases of sums (..., 2)."""
    found: _Array = sums[..., 0] / sums[..., 1]
    return found


def aggregate_sums(rows: Sequence[npt.ArrayLike | None], statistic: Statistic, *, seed: int = 0) -> Metric:
    """A statistic of sums over questions, with the interval over resampled questions.

    Args:
        rows: C counts of each question; None where it could not be scored.
        statistic: from sums (..., C) to values (...); it must be finite on every sum of rows.
    """
    scored = np.asarray([row for row in rows if row is not None], dtype=np.float64)
    return _of_sums(scored, statistic, n_null=len(rows) - len(scored), seed=seed)


def _of_sums(scored: _Array, statistic: Statistic, *, n_null: int, seed: int) -> Metric:
    if not len(scored):
        return Metric(value=None, n=0, n_null=n_null, ci95=None)
    distinct, counts = _distinct(scored)
    drawn = statistic(_resampled_sums(distinct, counts, seed=seed, resamples=RESAMPLES))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Metric(float(statistic(counts @ distinct)), len(scored), n_null, (float(low), float(high)))


def _distinct(rows: _Array) -> tuple[_Array, npt.NDArray[np.int64]]:
    """The different rows of (N, C), N >= 1, in order, and how often each stands there.

    What `np.unique(rows, axis=0, return_counts=True)` gives in a ninth of its time, which sorts records: an audit of
    100,000 answers calls this ninety times.
    """
    ordered = rows[np.lexsort(rows.T[::-1])]
    first = np.r_[True, (ordered[1:] != ordered[:-1]).any(axis=1)]
    starts = np.flatnonzero(first)
    return ordered[starts], np.diff(np.r_[starts, len(ordered)])


def paired_sums(
    first: Mapping[str, npt.ArrayLike], second: Mapping[str, npt.ArrayLike], statistic: Statistic, *, seed: int = 0
) -> PairedDifference:
    """As `paired_bootstrap`, of a statistic of sums: each resample draws the same questions for both systems.

    Raises:
        RagxError: as `paired_bootstrap`.
    """
    _require_same_questions(first, second)
    rows = np.asarray([[first[key], second[key]] for key in first], dtype=np.float64)  # (N, 2, C)
    width = rows.shape[2]
    distinct, counts = _distinct(rows.reshape(len(rows), -1))
    drawn = _resampled_sums(distinct, counts, seed=seed, resamples=RESAMPLES)
    differences = statistic(drawn[:, :width]) - statistic(drawn[:, width:])
    total = counts @ distinct
    value = float(statistic(total[:width]) - statistic(total[width:]))
    return _paired(value, differences, len(rows))


def bootstrap_ci95(scores: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 2.5% and 97.5% percentiles of the mean over resampled questions.

    Raises:
        RagxError: no scores, or one that is not finite.
    """
    low, high = np.quantile(_resampled_means(_finite(scores), seed=seed, resamples=resamples), (0.025, 0.975))
    return float(low), float(high)


def paired_bootstrap(
    first: Mapping[str, float], second: Mapping[str, float], *, seed: int = 0, resamples: int = RESAMPLES
) -> PairedDifference:
    """Compares two systems question by question, by id.

    Raises:
        RagxError: the two do not answer the same questions, or there are none.
    """
    _require_same_questions(first, second)
    difference = _finite([first[key] - second[key] for key in first])
    means = _resampled_means(difference, seed=seed, resamples=resamples)
    return _paired(float(np.mean(np.sort(difference))), means, len(difference))


def _require_same_questions(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    if first.keys() != second.keys() or not first:
        odd = sorted(first.keys() ^ second.keys())
        raise RagxError(
            f"first and second must score the same questions, got {len(odd)} ids in one only "
            f"(such as {odd[:1]}). Score both on the same file"
        )


def _paired(value: float, differences: _Array, n: int) -> PairedDifference:
    """The difference with the spread of its resamples."""
    low, high = np.quantile(differences, (0.025, 0.975))
    # One is added to both counts: a p-value of zero cannot be known from finitely many resamples.
    tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    p_value = min(1.0, 2 * (tail + 1) / (len(differences) + 1))
    return PairedDifference(value=value, ci95=(float(low), float(high)), p_value=p_value, n=n)


def _finite(scores: Sequence[float]) -> npt.NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64)
    if not len(values) or not np.isfinite(values).all():
        raise RagxError(
            f"scores must be finite and at least one, got {len(values)} with "
            f"{int((~np.isfinite(values)).sum())} not finite. Leave out what was not scored"
        )
    return values


def _resampled_means(values: npt.NDArray[np.float64], *, seed: int, resamples: int) -> npt.NDArray[np.float64]:
    distinct, counts = np.unique(values, return_counts=True)
    return _resampled_sums(distinct, counts, seed=seed, resamples=resamples) / len(values)


def _resampled_sums(
    distinct: npt.NDArray[np.float64], counts: npt.NDArray[np.intp], *, seed: int, resamples: int
) -> npt.NDArray[np.float64]:
    """Sums of `counts.sum()` draws of the `distinct` rows, one a resample."""
    generator = np.random.default_rng(seed)
    total = int(counts.sum())
    size = max(1, _CELLS // len(distinct))
    sums = [
        generator.multinomial(total, counts / total, size=min(size, resamples - done)) @ distinct
        for done in range(0, resamples, size)
    ]
    return np.concatenate(sums)
