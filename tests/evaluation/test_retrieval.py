"""The ranking by passage and by title: by hand, against the definitions written out, and as KILT counts."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from ragx.errors import RagxError
from ragx.evaluation.retrieval import Ranking, check_ranking, r_precision, rank_scores, title_key
from ragx.records import PassageKey

A, B, C, D, E = (PassageKey(name, "v1", "0") for name in "ABCDE")


def scores(ranked: Sequence[object], gold: Sequence[object], *ks: int) -> dict[str, float | None]:
    return rank_scores({"q": Ranking(ranked, gold)}, ks)["q"]


@pytest.mark.parametrize(("k", "success", "recall"), [(1, 0.0, 0.0), (2, 1.0, 0.5), (3, 1.0, 0.5), (4, 1.0, 1.0)])
def test_hand_values(k: int, success: float, recall: float) -> None:
    found = scores([E, A, D, B], [A, B], k)
    assert found[f"success_at.{k}"] == success
    assert found[f"recall_at.{k}"] == recall
    assert found[f"precision_at.{k}"] == recall * 2 / k
    assert found["mrr"] == 0.5


def test_ndcg_by_hand() -> None:
    # Gold at ranks 2 and 4 of two gold passages.
    found = scores([E, A, D, B], [A, B], 4)
    ideal = 1 + 1 / math.log2(3)
    assert found["ndcg_at.4"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)


def test_agrees_with_the_definitions_on_random_rankings() -> None:
    chosen = random.Random(0)
    cases = {
        str(i): Ranking(chosen.sample(range(12), chosen.randint(1, 12)), chosen.sample(range(12), chosen.randint(1, 5)))
        for i in range(200)
    }
    found = rank_scores(cases, (1, 3, 5))
    for key, case in cases.items():
        hits = [item in case.gold for item in case.ranked]
        first = hits.index(True) + 1 if any(hits) else None
        assert found[key]["mrr"] == pytest.approx(1 / first if first else 0.0)
        for k in (1, 3, 5):
            if len(case.ranked) < k:
                expected: list[float | None] = [None] * 4
            else:
                gain = sum(hit / math.log2(rank + 2) for rank, hit in enumerate(hits[:k]))
                ideal = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(case.gold))))
                n = sum(hits[:k])
                expected = [float(n > 0), n / len(case.gold), n / k, gain / ideal]
            names = ("success_at", "recall_at", "precision_at", "ndcg_at")
            assert [found[key][f"{name}.{k}"] for name in names] == pytest.approx(expected)


def test_faults_e1_passages_and_titles_count_apart() -> None:
    # Gold A, B, C, D; retrieved A, A, E: two of three passages are gold, one of three titles is.
    first, second = PassageKey("A", "v1", "0"), PassageKey("A", "v1", "1")
    assert scores([first, second, E], [first, second, B, C, D], 3)["precision_at.3"] == pytest.approx(2 / 3)
    titles = scores(["A", "A", "E"], ["A", "B", "C", "D"], 3)
    assert titles["precision_at.3"] == pytest.approx(1 / 3)
    assert titles["recall_at.3"] == 1 / 4


def test_faults_e1_gold_is_neither_cut_nor_short_of_its_first() -> None:
    assert scores(["A", "x", "y"], ["A", "B", "C", "D"], 1)["precision_at.1"] == 1.0
    assert scores(["D", "x", "y"], ["A", "B", "C", "D"], 1)["precision_at.1"] == 1.0


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ('"Alice"', "Alice"),
        ("a_b", "a b"),
        (" a  b\n", "a b"),
        ("“Ode”", "Ode"),
        ('"', '"'),
        ('"Weird Al" Yankovic', '"Weird Al" Yankovic'),
        ("Jose\u0301", "Jos\u00e9"),
        ("NA", "NA"),
    ],
)
def test_faults_e1_titles_are_compared_without_their_dress(title: str, expected: str) -> None:
    assert title_key(title) == expected


def test_a_passage_listed_twice_counts_once() -> None:
    assert scores([A, A, E], [A, B, C, D], 3)["recall_at.3"] == 1 / 4
    assert scores([A, E, B], [A, A, B], 3)["recall_at.3"] == 1.0
    assert scores([E, E, A], [A], 3)["mrr"] == pytest.approx(1 / 3)
    first = scores([A, E, A], [A], 1, 3)  # it counts where it stands first
    assert [first["mrr"], first["success_at.1"], first["ndcg_at.3"]] == [1.0, 1.0, 1.0]
    assert scores([A, A, B], [A, B], 2)["recall_at.2"] == 0.5  # its second place is used up


def test_another_edition_is_another_passage() -> None:
    assert scores([PassageKey("A", "v2", "0")], [A], 1)["success_at.1"] == 0.0


def test_unknown_is_not_a_miss() -> None:
    assert scores([A, B], [], 1) == dict.fromkeys(scores([A, B], [], 1))
    assert scores([], [A], 1)["mrr"] is None
    found = scores([B, C], [A], 2, 3)
    assert (found["success_at.2"], found["success_at.3"], found["recall_at.3"], found["mrr"]) == (0.0, None, None, 0.0)


def test_k_counts_from_one() -> None:
    with pytest.raises(RagxError, match="k must be >= 1, got 0"):
        scores([A], [A], 0)


def test_faults_e2_direction() -> None:
    ranked = [A, *(PassageKey(str(i), "v1", "0") for i in range(9))]
    best = scores(ranked, [A], 1)
    assert (best["precision_at.1"], best["mrr"]) == (1.0, 1.0)
    worst = scores(ranked[::-1], [A], 1)
    assert [worst["precision_at.1"], worst["mrr"]] == pytest.approx([0.0, 0.1])


def test_faults_e2_a_list_read_in_the_wrong_direction_is_refused() -> None:
    check_ranking([2.0, 1.0, 1.0, -3.0])
    check_ranking([])
    with pytest.raises(RagxError, match="doc_scores must not rise with the rank, got 1.0 then 2.0 at rank 2"):
        check_ranking([1.0, 2.0])
    with pytest.raises(RagxError, match="nan"):
        check_ranking([1.0, float("nan")])


@pytest.mark.parametrize(
    ("ranked", "sets", "expected"),
    [
        (["C", "X", "A"], [["A", "B"], ["C"]], 1.0),
        (["X", "A", "B"], [["A", "B"], ["C"]], 0.5),
        (["A", "A", "B"], [["A", "B"]], 1.0),  # pages are counted once, as KILT does
        (["X"], [["A"], []], 0.0),
        (["A"], [], None),
        ([], [["A"]], None),
    ],
)
def test_r_precision_as_kilt(ranked: list[str], sets: list[list[str]], expected: float | None) -> None:
    assert r_precision(ranked=ranked, gold_sets=sets) == expected


def test_r_precision_of_one_set_agrees_with_ir_measures() -> None:
    import ir_measures

    chosen = random.Random(1)
    for _ in range(200):
        ranked = [str(i) for i in chosen.sample(range(9), 6)]
        gold = [str(i) for i in chosen.sample(range(9), chosen.randint(1, 5))]
        qrels = [ir_measures.Qrel("q", name, 1) for name in gold]
        run = [ir_measures.ScoredDoc("q", name, float(-i)) for i, name in enumerate(ranked)]
        (expected,) = ir_measures.iter_calc([ir_measures.Rprec], qrels, run)
        assert r_precision(ranked=ranked, gold_sets=[gold]) == pytest.approx(expected.value)
