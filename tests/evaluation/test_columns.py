"""Which figures a task has, question by question."""

from __future__ import annotations

import numpy as np
import pytest

from ragx.data.tasks import TASKS
from ragx.evaluation.columns import Pair, columns
from ragx.records import Example, PassageKey, Prediction, RetrievedPassage


def retrieved(source: str, text: str, *, title: str = "", visible: int | None = None) -> RetrievedPassage:
    end = len(text) if visible is None else visible
    return RetrievedPassage(PassageKey(source, "v1", "0"), title or source, text, "", 1.0, 0.5, 0.5, (0, end))


def pair(answer: str, example: Example, *passages: RetrievedPassage) -> Pair:
    found = Prediction(example.id, example.query, answer, -1.0, ((answer, -1.0),), passages, (), 0, {})
    return found, example


FIRST = {
    "open_qa": {"exact_match", "f1", "correct_without_evidence", "answer_success_at.1"},
    "regex_qa": {"regex_match", "correct_without_evidence", "answer_success_at.1"},
    "abstractive_qa": {
        "bleu_1",
        "rouge_l",
        "rouge_lsum",
        "f1",
        "distinct_trigrams",
        "gold_distinct_trigrams",
        "two_passages",
    },
    "question_generation": {"bleu_1", "q_bleu_1", "distinct_trigrams", "gold_distinct_trigrams", "two_passages"},
    "fact_verification": {"label_accuracy"},
}


@pytest.mark.parametrize("task", TASKS)
def test_the_figures_of_each_task(task: str) -> None:
    found = columns([pair("a", Example("1", "x?", ("a",)))], task=task, ks=[1])
    ranking = {f"{name}_at.1" for name in ("success", "recall", "precision", "ndcg")} | {"mrr"}
    everywhere = {*ranking, *(f"title_{name}" for name in ranking), "r_precision", "cited_full"}
    assert set(found) == FIRST[task] | everywhere


def test_a_pattern_is_looked_for_in_the_answer_and_in_what_was_read() -> None:
    # The second answer is right although the one passage that matches was cut before the match.
    example = Example("1", "x?", (r"1,?9\d\d", "never"))
    hidden = retrieved("b", "It was in 1,950.", visible=9)
    pairs = [
        pair("in 1900", example, retrieved("a", "1901")),
        pair("1999", Example("2", "y?", example.answers), hidden),
        pair("no", Example("3", "z?", example.answers), retrieved("c", "none")),
    ]
    found = columns(pairs, task="regex_qa", ks=[1])
    assert found["regex_match"].rows == [1.0, 1.0, 0.0]
    assert found["correct_without_evidence"].rows == [None, 1.0, 0.0]
    assert found["answer_success_at.1"].rows == [1.0, 1.0, 0.0]


def test_a_pattern_without_end_leaves_the_figure_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragx.evaluation.patterns.TIMEOUT", 0.02)
    example = Example("1", "x?", ("(a|aa)+$",))
    text = "a" * 60 + "b"
    found = columns([pair(text, example, retrieved("a", text))], task="regex_qa", ks=[1])
    assert found["regex_match"].rows == [None]
    assert found["answer_success_at.1"].rows == found["correct_without_evidence"].rows == [None]


def test_dprs_top_k_accuracy_looks_for_the_answer_in_the_text() -> None:
    example = Example("1", "x?", ("Lima",))
    passages = [retrieved("a", "Limassol."), retrieved("b", "In Peru.", title="Lima"), retrieved("c", "LIMA is big.")]
    found = columns([pair("x", example, *passages)], task="open_qa", ks=[1, 2, 3, 4])
    assert [found[f"answer_success_at.{k}"].rows for k in (1, 2, 3, 4)] == [[0.0], [0.0], [1.0], [None]]
    assert found["success_at.1"].rows == [None]  # no gold passage is known


def test_faults_e1_titles_of_fever_and_never_the_question() -> None:
    example = Example("1", "Lima", ("true",), gold_titles=(("Soul (film)", "Fox"), ("Peru",)))
    passages = [
        retrieved("a", "", title="Lima"),
        retrieved("b", "", title='"Soul_(film)"'),
        retrieved("c", "", title="Fox"),
    ]
    found = columns([pair("true", example, *passages)], task="fact_verification", ks=[1, 2, 3])
    assert [found[f"title_success_at.{k}"].rows[0] for k in (1, 2, 3)] == [0.0, 1.0, 1.0]
    assert found["title_recall_at.3"].rows[0] == pytest.approx(2 / 3)
    assert found["title_precision_at.3"].rows[0] == pytest.approx(2 / 3)
    assert found["r_precision"].rows == [0.5]  # of the first set; Peru is not the first title
    assert found["label_accuracy"].rows == [1.0]


def test_counts_of_generated_texts_and_a_text_without_trigrams() -> None:
    pairs = [pair("a b c d", Example("1", "x", ("a b c e",))), pair("a", Example("2", "y", ("a b",)))]
    found = columns(pairs, task="question_generation", ks=[1])
    assert [tuple(row) for row in found["bleu_1"].rows] == [(3, 4, 4), (1, 1, 2)]  # type: ignore[arg-type]
    assert found["bleu_1"].statistic is not None
    assert float(found["bleu_1"].statistic(np.array([4, 5, 6]))) == pytest.approx(4 / 5 * np.exp(1 - 6 / 5))
    assert found["distinct_trigrams"].rows == [(2.0, 2.0), None]


def test_diversity_of_the_references_stands_beside_that_of_the_answers() -> None:
    """Answers a b c and a b c share their trigram; of the references a b c d and x b c d half are shared."""
    pairs = [pair("a b c", Example("1", "x", ("a b c d",))), pair("a b c", Example("2", "y", ("x b c d",)))]
    found = columns(pairs, task="question_generation", ks=[1])
    assert found["distinct_trigrams"].rows == [(0.5, 1.0), (0.5, 1.0)]
    assert found["gold_distinct_trigrams"].rows == [(1.5, 2.0), (1.5, 2.0)]
