"""Figures added up from single questions: ratios over citations, means over questions, and nothing imputed."""

from __future__ import annotations

import pickle

import pytest

from ragx.citations.tally import QuestionScores, Ratio
from ragx.experiments.audit_summary import Figures, addend
from ragx.experiments.audit_worker import Outcome


def scores(qid: str, **values: Ratio | float | None) -> QuestionScores:
    counted = (("claim_status", "supported"), ("claim_status", "supported"), ("judge", "frozen"))
    return QuestionScores(
        qid, (("model", "rag_token"),), dict(values), counted, ((0.9, True), (0.2, False)), (True, True)
    )


def test_ratios_are_summed_scores_are_averaged_and_what_is_absent_is_null() -> None:
    figures = Figures()
    figures.add(addend(scores("a", coverage_any=Ratio(1, 4), exact_match=1.0, forbidden=Ratio(9, 9))))
    figures.add(addend(scores("b", coverage_any=Ratio(2, 2), exact_match=None, alce_recall=0.5)))
    figures.add(addend(scores("c", coverage_any=Ratio(0, 0), exact_match=0.0)))
    summary = figures.summary(seed=0)
    metrics = {name: found for section in summary["metrics"].values() for name, found in section.items()}
    assert "forbidden" not in metrics
    coverage, exact, f1 = metrics["coverage_any"], metrics["exact_match"], metrics["f1"]
    assert (coverage["value"], coverage["level"], coverage["n"], coverage["n_null"]) == (0.5, "micro", 2, 1)
    assert (exact["value"], exact["level"], exact["n"], exact["cases"]) == (0.5, "macro", 2, 2)
    assert (f1["value"], f1["level"], f1["n"], f1["n_null"]) == (None, "macro", 0, 3)
    assert summary["counts"] == {"claim_status": {"supported": 6}, "judge": {"frozen": 3}}
    assert summary["by"]["model"]["rag_token"]["coverage_any"]["value"] == 0.5
    assert (summary["posterior"]["n"], summary["posterior"]["auroc"]) == (6, 1.0)
    assert summary["abstention"]["answerable_answered"] == 3


def test_an_outcome_comes_back_from_another_process_as_it_was() -> None:
    sent = Outcome("q", 3, ("q.c1",), b"a\n", b"b\n", b"c\n", addend(scores("q", exact_match=1.0)), 2)
    assert Outcome.of(pickle.loads(pickle.dumps(sent.plain()))) == sent
    refused = Outcome("", 4, error=("qid", "must be text"))
    assert Outcome.of(refused.plain()) == refused and refused.scores is None


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_order_of_questions_makes_no_difference(order: tuple[int, ...]) -> None:
    rows = [scores(str(i), coverage_any=Ratio(i, 3), exact_match=float(i % 2)) for i in range(3)]
    straight, turned = Figures(), Figures()
    for i in range(3):
        straight.add(addend(rows[i]))
        turned.add(addend(rows[order[i]]))
    assert straight.summary(seed=0) == turned.summary(seed=0)
