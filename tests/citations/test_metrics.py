"""Formulas on worked numbers (CITATIONS B1, D14-D19); nothing scored is None, never 0 or 1."""

from __future__ import annotations

from typing import Any

import pytest

from ragx.citations.metrics import (
    abstention,
    alce_precision,
    alce_recall,
    auroc,
    expected_calibration_error,
    fraction_of_group,
    partial_aware_precision,
    trec_support,
)
from ragx.citations.provenance_metrics import (
    f1_of,
    fever_label,
    fever_score,
    kilt_precision_at,
    kilt_rank,
    kilt_recall_at,
    kilt_score,
)
from ragx.kilt import r_precision

Sets = list[frozenset[Any]]


def sets(*groups: list[Any]) -> Sets:
    return [frozenset(group) for group in groups]


def judged(*sufficient: str) -> Any:
    """phi as a table: enough where one of these combinations is contained."""
    return lambda some: any(set(names) <= some for names in sufficient)


@pytest.mark.parametrize(
    ("cited", "sufficient", "recall", "precision"),
    [
        ("12", ["1", "2"], 1.0, [1.0, 1.0]),
        ("3", [], 0.0, [0.0]),
        ("245", ["45"], 1.0, [0.0, 1.0, 1.0]),
        ("", [], 0.0, []),
    ],
    ids=["either", "none", "two of three", "nothing cited"],
)
def test_alce(cited: str, sufficient: list[str], recall: float, precision: list[float]) -> None:
    assert alce_recall(cited, n_invalid=0, enough=judged(*sufficient)) == recall
    assert alce_precision(cited, n_invalid=0, enough=judged(*sufficient)) == precision


def test_alce_counts_what_does_not_exist() -> None:
    """F20: an invalid citation takes the recall of its sentence and stays in the denominator."""
    assert alce_recall("1", n_invalid=1, enough=judged("1")) == 0.0
    assert alce_precision("1", n_invalid=1, enough=judged("1")) == [0.0, 0.0]


def test_alce_of_what_nobody_judged_is_none() -> None:
    assert alce_recall("1", n_invalid=0, enough=lambda some: None) is None
    assert alce_precision("12", n_invalid=0, enough=lambda some: None if len(some) == 1 else True) == [None, None]


@pytest.mark.parametrize(
    ("labels", "together", "precise"),
    [
        (["partial", "partial", "partial"], True, [1.0, 1.0, 1.0]),
        (["partial", "full"], True, [0.0, 1.0]),
        (["partial"], False, [0.0]),
        (["partial", "not_judged"], None, [None, None]),
        (["contradict", "none"], False, [0.0, 0.0]),
    ],
)
def test_partial_aware(labels: list[str], together: bool | None, precise: list[float | None]) -> None:
    assert partial_aware_precision(labels, n_invalid=0, together=together) == precise


@pytest.mark.parametrize(
    ("sentences", "figures"),
    [
        ([["full"], ["partial"], ["none"], []], (0.5, 0.375, 1 / 3, 0.25)),
        ([["full", "none"], ["partial"], [], ["partial", "partial"]], (0.5, 0.5, 0.2, 0.25)),
        ([["not_judged"]], (None, None, None, None)),
        ([["unknown_version"]], (0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_d17_trec(sentences: list[list[str]], figures: tuple[float | None, ...]) -> None:
    """D17: weighted precision and recall, strict precision and recall."""
    found = trec_support(sentences)
    names = ("weighted_precision", "weighted_recall", "strict_precision", "strict_recall")
    assert tuple(found[name] for name in names) == pytest.approx(figures)


@pytest.mark.parametrize(("rule", "recall"), [("best", 0.5), ("first", 0.0), ("union", 1.0)])
def test_trec_rules_for_several_citations(rule: str, recall: float) -> None:
    found = trec_support([["none", "partial"]], together=[True], per_sentence=rule)
    assert found["weighted_recall"] == recall


GUESS = [2, 5, 7, 33, 1, 9, 44, 88]
GOLD = sets([1, 2], [5], [7, 9, 11])


def test_d18_kilt() -> None:
    """D18: R-precision .5, P@1 1, P@5 .4, R@5 2/3; exact match counts only at R-precision 1."""
    assert r_precision(GUESS, GOLD) == 0.5
    assert kilt_rank(GUESS, GOLD) == [True, False, True, False, False, False]
    assert [kilt_precision_at(GUESS, GOLD, k) for k in (1, 5)] == [1.0, 0.4]
    assert kilt_recall_at(GUESS, GOLD, 5) == pytest.approx(2 / 3)
    assert kilt_score(1.0, r_precision(GUESS, GOLD)) == 0.0
    assert kilt_score(1.0, r_precision([5], GOLD)) == 1.0


def test_d18_right_page_wrong_chunk() -> None:
    chunk, wrong = ("Peru", "2018", "3"), ("Peru", "2018", "4")
    assert r_precision([wrong[0]], sets([chunk[0]])) == 1.0
    assert r_precision([wrong], sets([chunk])) == 0.0


def test_ids_that_stand_twice_count_once() -> None:
    assert r_precision([2, 2, 1], sets([1, 2])) == 1.0


def test_no_gold_no_figure() -> None:
    assert (r_precision([1], []), kilt_recall_at([1], [], 5), kilt_score(1.0, None)) == (None, None, None)


def fever(cited: list[str], label: str = "REFUTES", predicted: str = "REFUTES") -> Any:
    return fever_score(predicted=predicted, label=label, cited=cited, groups=sets(["p1", "p2"]))


def test_d19_the_pair_of_the_scorer() -> None:
    """D19, E10: strict .5, accuracy 1, precision .833333, recall .5, F1 .625."""
    pair = [fever(["p1"]), fever(["p1", "p2", "p3"])]
    strict, accuracy, precision, recall = (
        sum(getattr(score, name) for score in pair) / 2 for name in ("strict", "accuracy", "precision", "recall")
    )
    assert (strict, accuracy, precision, recall) == pytest.approx((0.5, 1.0, 0.833333, 0.5), abs=1e-6)
    assert f1_of(precision, recall) == pytest.approx(0.625)


def test_d19_edges() -> None:
    """A wrong sentence is 0, nothing predicted is None, a group at place 6 is too late, NEI needs no evidence."""
    wrong, nothing = fever(["p9"]), fever([])
    assert (wrong.precision, wrong.recall, f1_of(wrong.precision, wrong.recall)) == (0.0, 0.0, 0.0)
    assert (nothing.precision, nothing.recall) == (None, 0.0)
    assert fever(["a", "b", "c", "d", "p1", "p2"]).strict == 0.0
    nei = fever([], label="NOT ENOUGH INFO", predicted="not enough info")
    assert (nei.strict, nei.precision) == (1.0, None)


def test_e10_labels_of_fever_in_any_case() -> None:
    assert [fever_label(text) for text in (" supports", "Refuted.", "NEI")] == [
        "SUPPORTS",
        "REFUTES",
        "NOT ENOUGH INFO",
    ]


def test_abstention_table() -> None:
    """R11, R25: answering and abstaining, each with its F1; an empty class has none."""
    table = abstention({(True, True): 6, (True, False): 2, (False, True): 1, (False, False): 3})
    assert table["f1_answered"] == pytest.approx(12 / 15) and table["f1_abstained"] == pytest.approx(6 / 9)
    assert (table["over_abstention_rate"], table["false_answer_rate"]) == (0.25, 0.25)
    only = abstention({(True, True): 4})
    assert (only["f1_answered"], only["f1_abstained"], only["f1_mean"], only["false_answer_rate"]) == (
        1.0,
        None,
        None,
        None,
    )


def test_auroc_is_a_share_of_pairs() -> None:
    scored = [(0.9, True), (0.5, True), (0.5, False), (0.1, False)]
    assert auroc(scored) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    assert auroc([(0.9, True)]) is None and auroc([]) is None


def test_calibration_error() -> None:
    assert expected_calibration_error([(0.95, True), (0.95, False)]) == pytest.approx(0.45)
    assert expected_calibration_error([(1.0, True), (0.0, False)]) == 0.0
    assert expected_calibration_error([]) is None


def test_fraction_of_group() -> None:
    assert fraction_of_group(sets(["a", "b"], ["c", "d", "e"]), frozenset("ab")) == 1.0
    assert fraction_of_group(sets(["a", "b"]), frozenset("a")) == 0.5
    assert fraction_of_group([], frozenset("a")) is None
