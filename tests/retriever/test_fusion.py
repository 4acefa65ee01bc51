"""The formulas of fusion, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ragx.errors import ConfigError
from ragx.retriever import fusion


def test_reciprocal_rank_by_hand() -> None:
    fused = fusion.reciprocal_rank([[7, 8, 9], [9, 5]], constant=60)
    assert fused == pytest.approx({7: 1 / 61, 8: 1 / 62, 9: 1 / 63 + 1 / 61, 5: 1 / 62})
    assert fusion.reciprocal_rank([[7], []], constant=1) == {7: 0.5}
    with pytest.raises(ConfigError, match="rank_constant must be > 0, got 0"):
        fusion.reciprocal_rank([[1]], constant=0)


DENSE, WORDS = np.array([2.0, 0.0, 4.0]), np.array([0.0, 3.0, 3.0])


@pytest.mark.parametrize(("by", "expected"), [("range", 4 / 3), ("deviation", math.sqrt((8 / 3) / 2)), ("none", 1.0)])
def test_the_scale_by_hand(by: str, expected: float) -> None:
    assert fusion.scale(DENSE, WORDS, by=by) == pytest.approx(expected)
    assert fusion.scale(DENSE + 100, WORDS + 7, by=by) == pytest.approx(expected)  # a constant changes no prior


@pytest.mark.parametrize("by", fusion.SCALES)
def test_scores_that_do_not_vary_are_left_as_they_are(by: str) -> None:
    flat = np.full(3, 5.0)
    assert fusion.scale(flat, WORDS, by=by) == fusion.scale(DENSE, flat, by=by) == 1.0
    assert fusion.scale(DENSE[:1], WORDS[:1], by=by) == 1.0


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(ConfigError, match="scale must be one of deviation, range, none, got 'minmax'"):
        fusion.scale(DENSE, WORDS, by="minmax")


def test_ties_go_by_row() -> None:
    scores, rows = np.array([1.0, 2.0, 2.0, 1.0]), np.array([4, 9, 3, 1])
    assert rows[fusion.best(scores, rows, 3)].tolist() == [3, 9, 1]
