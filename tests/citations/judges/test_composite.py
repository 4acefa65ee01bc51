"""The order of the judges: frozen labels, violated constraints, exact span, entailment, words."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ragx.citations.judges.composite import CompositeJudge
from ragx.citations.judges.exact_span import ExactSpanJudge
from ragx.citations.judges.frozen import FrozenLabels
from ragx.citations.judges.lexical import LexicalJudge
from ragx.citations.judges.verdict import Verdict
from ragx.citations.judging import ask, hypothesis
from ragx.citations.support import JUDGES, build_judge
from ragx.errors import ConfigError
from ragx.protocols import Judge, ScoringJudge
from ragx.records import Passage


class Says:
    """A judge that always says the same and remembers what it was asked."""

    def __init__(self, label: str, name: str) -> None:
        self.id, self._label, self.asked = name, label, ""

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        self.asked = claim
        return self._label

    def score(self, claim: str, passages: Sequence[Passage]) -> float | None:
        return 0.25


V2 = Passage("lodging", "v2", "a", "", "Lodging is limited to 750 yuan a night in the port.")
YES, NO = Says("full", "nli"), Says("none", "lexical")


def test_what_is_decided_by_whom() -> None:
    judge = CompositeJudge(nli=YES, lexical=NO)
    assert judge.verdict("Lodging is limited to 600 yuan.", [V2]) == Verdict("contradict", "constraints")
    assert judge.verdict("limited to 750 yuan a night", [V2]) == Verdict("full", "exact_span")
    assert judge.verdict("At most 750 yuan may be spent on a bed.", [V2]) == Verdict("full", "nli")
    assert CompositeJudge(lexical=NO).verdict("Beds are cheap.", [V2]) == Verdict("none", "lexical", heuristic=True)
    assert CompositeJudge().verdict("Beds are cheap.", [V2]).label == "not_judged"


def test_frozen_labels_come_before_everything_and_leave_the_rest_open() -> None:
    labels = FrozenLabels({("q", "c1", V2.key): "partial"})
    judge = CompositeJudge(lexical=NO)
    exact = "limited to 750 yuan a night"
    assert judge.labelled(labels.of("q", "c1")).verdict(exact, [V2]) == Verdict("partial", "frozen")
    assert judge.labelled(labels.of("q", "c2")).verdict(exact, [V2]) == Verdict("full", "exact_span")


def test_scores_are_those_of_who_decided() -> None:
    judge = CompositeJudge(nli=YES)
    assert judge.score("Lodging is limited to 600 yuan.", [V2]) == 0.0
    assert judge.score("limited to 750 yuan", [V2]) == 1.0
    assert judge.score("Beds are cheap.", [V2]) == 0.25
    assert CompositeJudge().score("Beds are cheap.", [V2]) is None


def test_a_short_answer_is_found_as_it_is_and_weighed_with_its_question() -> None:
    nli = Says("full", "nli")
    judge = CompositeJudge(nli=nli).about("What is the limit?")
    assert judge.verdict("750 yuan", [V2]).judge == "exact_span"
    judge.judge("a lot", [V2])
    assert nli.asked == "What is the limit? a lot"


def test_a_quote_of_several_lines_takes_one_run_from_each_passage() -> None:
    one = Passage("one", "v1", "a", "", "First line.\nSecond line.\nThird line.")
    two = Passage("two", "v1", "a", "", "Other line.")
    judge = ExactSpanJudge()
    assert judge.judge("First line.\nSecond line.", [one]) == "full"
    assert judge.judge("First line.\nThird line.", [one]) == "not_judged"
    assert judge.judge("Second line.\nThird line.\nOther line.", [one, two]) == "full"
    assert judge.judge("First line.\nOther line.\nThird line.", [one, two]) == "not_judged"
    assert (judge.score("Other line.", [two]), judge.score("Another line.", [two])) == (1.0, None)


@pytest.mark.parametrize("name", [name for name in JUDGES if name != "nli"])
def test_every_judge_can_be_had_by_name(name: str) -> None:
    judge = build_judge(name)
    assert isinstance(judge, Judge) and judge.id.startswith(name)
    assert judge.judge("Lodging is limited to 750 yuan", [V2]) in ("full", "not_judged")
    assert isinstance(judge, ScoringJudge) == (name != "constraints")


def test_judges_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(ConfigError, match="judge must be one of exact_span, .*, got 'llm'"):
        build_judge("llm")
    with pytest.raises(ConfigError, match="checkpoint must be given for judge nli"):
        build_judge("nli")
    assert build_judge("composite", lexical=LexicalJudge(full=1.0)).judge("cheap 750 yuan beds", [V2]) != "full"


BREE = Passage("bree", "v1", "a", "Bree", "Ann Lee was mayor of Bree until 2014. The inn is kept by Barliman Hill.")
FAR = Passage("inn", "v1", "a", "Inns", "The inn in question is kept by Barliman Hill.")
MAYOR = "Who was the mayor of Bree until 2014?"


def test_a_wrong_name_from_the_right_passage_is_no_full_support() -> None:
    """Both names stand word for word in the passage; only the sentence of the first speaks of the mayor."""
    judge = CompositeJudge(lexical=LexicalJudge()).about(MAYOR)
    assert judge.verdict("Ann Lee", [BREE]) == Verdict("full", "exact_span", heuristic=True)
    assert judge.verdict("Barliman Hill", [BREE]) == Verdict("partial", "lexical", heuristic=True)
    assert judge.verdict("Barliman Hill", [FAR]) == Verdict("none", "lexical", heuristic=True)
    assert judge.verdict("Frodo Baggins", [BREE]) == Verdict("none", "lexical", heuristic=True)
    # A sentence with "barliman", "hill" and, in the title, "bree" of the six words mayor bree until 2014 barliman hill.
    assert judge.score("Barliman Hill", [BREE]) == pytest.approx(3 / 6)
    assert (judge.score("Ann Lee", [BREE]), judge.score("Frodo Baggins", [BREE])) == (1.0, 0.0)


def test_an_entailment_model_decides_on_a_name_that_words_leave_open() -> None:
    nli = Says("none", "nli")
    judge = CompositeJudge(nli=nli, lexical=LexicalJudge()).about(MAYOR)
    assert judge.verdict("Barliman Hill", [BREE]) == Verdict("none", "nli")
    assert nli.asked == f"{MAYOR} Barliman Hill"
    assert judge.verdict("Ann Lee", [BREE]).judge == "exact_span"
    assert CompositeJudge().about(MAYOR).verdict("Barliman Hill", [BREE]).label == "not_judged"


def test_without_a_question_the_words_are_enough() -> None:
    assert CompositeJudge(lexical=NO).verdict("The inn is kept by Barliman Hill.", [BREE]).judge == "exact_span"


def test_an_answer_over_two_sentences_is_weighed_with_its_passage() -> None:
    judge = CompositeJudge(lexical=LexicalJudge()).about("Who was mayor and who keeps the inn?")
    assert judge.judge("mayor of Bree until 2014. The inn is kept by Barliman Hill.", [BREE]) == "full"


def test_a_judge_is_asked_for_an_answer_as_it_reads_questions() -> None:
    composite, lexical, exact = CompositeJudge(lexical=LexicalJudge()), LexicalJudge(), ExactSpanJudge()
    assert hypothesis(composite, "Ann Lee", question=MAYOR) == (composite.about(MAYOR), "Ann Lee")
    assert hypothesis(lexical, "Ann Lee", question=MAYOR) == (lexical, f"{MAYOR} Ann Lee")
    assert hypothesis(exact, "Ann Lee", question=MAYOR) == (exact, "Ann Lee")
    assert hypothesis(lexical, "Ann Lee was mayor.", question="") == (lexical, "Ann Lee was mayor.")
    assert ask(composite, "Barliman Hill", [BREE], question=MAYOR) == ("partial", "lexical")
    assert ask(composite, "Barliman Hill", [BREE]) == ("full", "exact_span")
