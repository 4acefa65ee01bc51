"""A judge against people: figures by hand (CITATIONS B1.16)."""

from __future__ import annotations

import pytest

from ragx.citations.agreement import agreement, best_threshold, cohens_kappa
from ragx.errors import RagxError

TRUTH = [True, True, True, False, False, False]


def test_by_hand() -> None:
    found = agreement(TRUTH, [0.9, 0.8, 0.2, 0.7, 0.1, None], threshold=0.5)
    assert found.n == 6 and found.not_judged == pytest.approx(1 / 6)
    # Pairs (supported, unsupported): .9 and .8 beat both .7 and .1, .2 beats only .1.
    assert found.auc == pytest.approx(5 / 6)
    # The row that was not judged stands at .5: below .9 and .8, above .2.
    assert found.auc_all == pytest.approx(7 / 9)
    assert (found.precision, found.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert (found.precision_unsupported, found.recall_unsupported) == (0.5, 0.5)
    assert found.recall_unsupported_all == pytest.approx(1 / 3)
    assert found.accuracy == pytest.approx(3 / 5)
    # Chance: .6 x .6 + .4 x .4 = .52.
    assert found.kappa == pytest.approx((0.6 - 0.52) / 0.48)


def test_ties_count_half() -> None:
    assert agreement(TRUTH, [0.5] * 6, threshold=0.5).auc == 0.5


def test_kappa_of_a_known_table() -> None:
    first = [True] * 25 + [False] * 25
    second = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert cohens_kappa(first, second) == pytest.approx(0.4)
    assert cohens_kappa([True, True], [True, True]) is None
    assert cohens_kappa([], []) is None


def test_a_veto_has_no_precision_of_support() -> None:
    found = agreement(TRUTH, [0.0, None, None, 0.0, 0.0, None], threshold=0.5)
    assert (found.precision, found.recall) == (None, 0.0)
    assert found.precision_unsupported == pytest.approx(2 / 3)
    assert found.recall_unsupported_all == pytest.approx(2 / 3)


def test_nothing_judged_has_no_figures() -> None:
    found = agreement(TRUTH, [None] * 6, threshold=0.5)
    assert (found.not_judged, found.auc, found.auc_all, found.accuracy, found.kappa) == (1.0, None, 0.5, None, None)


def test_the_best_threshold_separates_what_can_be_separated() -> None:
    assert best_threshold(TRUTH, [0.9, 0.8, 0.6, 0.5, 0.4, 0.3]) == 0.6
    assert best_threshold(TRUTH, [0.9, 0.8, None, 0.5, 0.4, None]) == 0.8
    # .6: recall 1 x specificity 2/3; .9: 1/3 x 1; .7: 2/3 x 2/3.
    assert best_threshold(TRUTH, [0.9, 0.7, 0.6, 0.8, 0.4, 0.3]) == 0.6


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(RagxError, match="scores must be one per label, got 1 for 6"):
        agreement(TRUTH, [0.5], threshold=0.5)
    with pytest.raises(RagxError, match="rows must hold supported and unsupported ones, got 3 and 0"):
        best_threshold(TRUTH, [0.1, 0.2, 0.3, None, None, None])
