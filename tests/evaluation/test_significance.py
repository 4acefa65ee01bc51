"""Bootstrap intervals: against the binomial, under permutation, and by coverage."""

from __future__ import annotations

import numpy as np
import pytest

from ragx.errors import RagxError
from ragx.evaluation import significance
from ragx.evaluation.generation import bleu_1
from ragx.evaluation.significance import (
    Metric,
    aggregate,
    aggregate_ratio,
    aggregate_sums,
    bootstrap_ci95,
    paired_bootstrap,
    paired_sums,
    ratio,
)


def test_interval_of_zeros_and_ones_is_the_binomial_one() -> None:
    low, high = bootstrap_ci95([1.0] * 70 + [0.0] * 30, resamples=20_000)
    spread = 1.96 * (0.7 * 0.3 / 100) ** 0.5
    assert low == pytest.approx(0.7 - spread, abs=0.011)
    assert high == pytest.approx(0.7 + spread, abs=0.011)


def test_equals_drawing_questions_one_by_one() -> None:
    scores = np.random.default_rng(1).random(60)
    draws = np.random.default_rng(2).integers(0, 60, (20_000, 60))
    expected = np.quantile(scores[draws].mean(1), (0.025, 0.975))
    assert bootstrap_ci95(scores.tolist(), resamples=20_000) == pytest.approx(expected, abs=2e-3)


def test_order_of_questions_and_process_do_not_matter_but_the_seed_does() -> None:
    scores = np.random.default_rng(3).random(40).tolist()
    assert aggregate(scores) == aggregate(list(reversed(scores)))
    assert bootstrap_ci95(scores, seed=1) != bootstrap_ci95(scores, seed=2)


def test_null_is_counted_and_never_imputed() -> None:
    assert aggregate([1.0, None, None, None]) == Metric(value=1.0, n=1, n_null=3, ci95=(1.0, 1.0))
    assert aggregate([None]) == Metric(value=None, n=0, n_null=1, ci95=None)
    assert aggregate([]).to_json() == {"value": None, "n": 0, "n_null": 0, "ci95": None}


def test_many_distinct_scores_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(4).random(50).tolist()
    whole = bootstrap_ci95(scores)
    monkeypatch.setattr("ragx.evaluation.significance._CELLS", 7 * 50)
    assert bootstrap_ci95(scores) == whole


@pytest.mark.parametrize("bad", [[], [0.5, float("nan")], [float("inf")]])
def test_scores_that_are_none_are_refused(bad: list[float]) -> None:
    with pytest.raises(RagxError, match="scores must be finite and at least one"):
        bootstrap_ci95(bad)


def test_paired_difference_sees_what_unpaired_intervals_hide() -> None:
    # First is right wherever second is, and on 8 of 100 questions more: the two intervals overlap widely.
    first = {str(i): float(i < 58) for i in range(100)}
    second = {str(i): float(i < 50) for i in range(100)}
    result = paired_bootstrap(first, second)
    assert result.value == pytest.approx(0.08)
    assert result.n == 100
    assert result.ci95[0] > 0 and result.p_value < 0.01
    assert bootstrap_ci95(list(second.values()))[1] > bootstrap_ci95(list(first.values()))[0]


def test_paired_difference_is_antisymmetric_in_value_and_keyed_by_id() -> None:
    first = {"a": 1.0, "b": 0.0, "c": 1.0}
    second = {"c": 0.0, "a": 1.0, "b": 0.0}
    assert paired_bootstrap(first, second).value == -paired_bootstrap(second, first).value == pytest.approx(1 / 3)
    assert paired_bootstrap(first, first).p_value == 1.0


def test_other_questions_are_refused() -> None:
    with pytest.raises(RagxError, match="must score the same questions, got 1 ids in one only"):
        paired_bootstrap({"a": 1.0}, {"a": 1.0, "b": 0.0})


def test_a_statistic_of_sums_is_that_of_the_whole_and_not_a_mean() -> None:
    rows = [(1, 4, 4), (3, 4, 8), None, (0, 0, 2)]
    metric = aggregate_sums(rows, bleu_1)
    assert metric.value == pytest.approx(4 / 8 * np.exp(1 - 14 / 8))
    assert (metric.n, metric.n_null) == (3, 1)
    assert aggregate_sums(rows[::-1], bleu_1) == metric
    assert aggregate_sums([None], bleu_1) == Metric(value=None, n=0, n_null=1, ci95=None)


def test_the_interval_of_sums_equals_drawing_questions_one_by_one() -> None:
    chosen = np.random.default_rng(5)
    rows = np.stack([chosen.integers(0, 5, 60), chosen.integers(5, 9, 60)], 1)
    draws = np.random.default_rng(6).integers(0, 60, (20_000, 60))
    sums = rows[draws].sum(1)
    expected = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    found = aggregate_sums([tuple(row) for row in rows.tolist()], ratio)
    assert found.ci95 == pytest.approx(expected, abs=6e-3)
    assert aggregate_ratio(rows) == found


def test_a_paired_difference_of_sums_draws_the_same_questions_for_both() -> None:
    # Both systems vary much over questions and differ by one hit in ten everywhere: paired, the difference is sure.
    chosen = np.random.default_rng(7)
    second = {str(i): (int(hits), 10) for i, hits in enumerate(chosen.integers(0, 9, 80))}
    first = {key: (hits + 1, 10) for key, (hits, _) in second.items()}
    found = paired_sums(first, second, ratio)
    assert found.value == pytest.approx(0.1)
    assert found.ci95 == pytest.approx((0.1, 0.1)) and found.p_value < 0.01 and found.n == 80
    back = paired_sums(second, dict(reversed(first.items())), ratio)
    assert back.value == pytest.approx(-0.1)
    with pytest.raises(RagxError, match="must score the same questions, got 1 ids in one only"):
        paired_sums(first, {**second, "x": (0, 1)}, ratio)
    with pytest.raises(RagxError, match="must score the same questions, got 0 ids"):
        paired_sums({}, {}, ratio)


def test_means_as_sums_give_the_paired_difference_of_means() -> None:
    chosen = np.random.default_rng(8)
    first, second = ({str(i): float(v) for i, v in enumerate(chosen.integers(0, 2, 50))} for _ in range(2))
    means = paired_bootstrap(first, second)
    sums = paired_sums({k: (v, 1) for k, v in first.items()}, {k: (v, 1) for k, v in second.items()}, ratio)
    assert sums.value == pytest.approx(means.value)
    assert sums.ci95 == pytest.approx(means.ci95, abs=0.04)


@pytest.mark.parametrize("shape", [(1, 2), (400, 2), (300, 5)])
def test_the_different_rows_are_those_that_numpy_finds(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).integers(-1, 3, shape).astype(np.float64)
    distinct, counts = significance._distinct(rows)
    expected, times = np.unique(rows, axis=0, return_counts=True)
    assert np.array_equal(distinct, expected)
    assert np.array_equal(counts, times)
