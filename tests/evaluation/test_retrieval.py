"""success@k and recall@k by passage identity."""

from __future__ import annotations

import pytest

from ragx.errors import RagxError
from ragx.evaluation.retrieval import check_ranking, recall_at, success_at
from ragx.records import PassageKey

A, B, C, D, E = (PassageKey(name, "v1", "0") for name in "ABCDE")


@pytest.mark.parametrize(("k", "success", "recall"), [(1, 0.0, 0.0), (2, 1.0, 0.5), (3, 1.0, 0.5), (4, 1.0, 1.0)])
def test_hand_values(k: int, success: float, recall: float) -> None:
    ranked = [E, A, D, B]
    assert success_at(ranked, [A, B], k) == success
    assert recall_at(ranked, [A, B], k) == recall


def test_a_passage_listed_twice_counts_once() -> None:
    # FAULTS E1: gold A, B, C, D, retrieved A, A, E.
    assert recall_at([A, A, E], [A, B, C, D], 3) == 1 / 4
    assert recall_at([A, E, B], [A, A, B], 3) == 1.0


def test_another_edition_is_another_passage() -> None:
    assert success_at([PassageKey("A", "v2", "0")], [A], 1) == 0.0


def test_unknown_is_not_a_miss() -> None:
    assert success_at([A, B], [], 1) is None
    assert success_at([A, B], [A], 3) is None
    assert recall_at([A, B], [A], 3) is None


def test_k_counts_from_one() -> None:
    with pytest.raises(RagxError, match="k must be >= 1, got 0"):
        success_at([A], [A], 0)


def test_a_list_read_in_the_wrong_direction_is_refused() -> None:
    # FAULTS E2.
    check_ranking([2.0, 1.0, 1.0, -3.0])
    check_ranking([])
    with pytest.raises(RagxError, match="doc_scores must not rise with the rank, got 1.0 then 2.0 at rank 2"):
        check_ranking([1.0, 2.0])
    with pytest.raises(RagxError, match="nan"):
        check_ranking([1.0, float("nan")])
