"""Bootstrap intervals: against the binomial, under permutation, and by coverage."""

from __future__ import annotations

import numpy as np
import pytest

from ragx.errors import RagxError
from ragx.evaluation.significance import Metric, aggregate, bootstrap_ci95, paired_bootstrap


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
