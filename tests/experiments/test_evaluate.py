"""The table of a run, by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ragx.data.predictions import read_predictions, write_predictions
from ragx.errors import RagxError
from ragx.experiments.evaluate import compare, evaluate
from ragx.records import Citation, Example, PassageKey, Prediction, RetrievedPassage


def retrieved(source: str, text: str, score: float, visible: int | None = None) -> RetrievedPassage:
    end = len(text) if visible is None else visible
    return RetrievedPassage(PassageKey(source, "v1", "0"), source, text, "", score, 0.5, 0.5, (0, end))


PERU = retrieved("peru", "Humala leads Peru.", 2.0)
RAIN = retrieved("rain", "It rains.", 1.0)
CITED = Citation(PERU.key, 0.9, 0.5, (0, 6), "full")
NOT_JUDGED = Citation(RAIN.key, 0.9, 0.5, None, "not_judged")


def prediction(identity: str, answer: str, *passages: RetrievedPassage, cites: Citation | None = None) -> Prediction:
    cited = () if cites is None else (cites,)
    return Prediction(identity, f"{identity}?", answer, -1.0, ((answer, -1.0),), passages, cited, 0, {})


EXAMPLES = [
    Example("a", "a?", ("Humala", "Ollanta Humala"), kind="holder", gold=(PERU.key,)),
    Example("b", "b?", ("Humala",), kind="holder", gold=(PERU.key, RAIN.key)),
    Example("c", "c?", ("Oli Dahal",), kind="successor", gold=(PassageKey("peru", "v2", "0"),)),
    Example("d", "d?", ("Oli",)),
]
PREDICTIONS = [
    prediction("d", "Oli", retrieved("rain", "It rains. Oli", 2.0, visible=9), RAIN, cites=NOT_JUDGED),
    prediction("a", "the humala", PERU, RAIN, cites=CITED),
    prediction("b", "", retrieved("rain", "It rains.", 1.0), retrieved("peru", "Humala leads Peru.", 1.0)),
    prediction("c", "Dahal", PERU, RAIN, cites=NOT_JUDGED),
]


def test_the_table_by_hand() -> None:
    table = evaluate(PREDICTIONS, EXAMPLES, ks=(1, 2, 5))
    value = {
        name: (metric["value"], metric["n"], metric["n_null"]) for name, metric in table.items() if "value" in metric
    }
    assert value["exact_match"] == (0.5, 4, 0)
    assert value["f1"] == (pytest.approx((1 + 0 + 2 / 3 + 1) / 4), 4, 0)
    # Of c and d no passage shows the answer (d's stands where it was cut off), and d is right all the same.
    assert value["correct_without_evidence"] == (0.5, 2, 2)
    assert value["cited_full"] == (0.25, 4, 0)
    success = {k: (m["value"], m["n"], m["n_null"]) for k, m in table["success_at"].items()}
    # a and b have gold in the corpus; c's is of another edition, d has none; nobody has five passages.
    assert success == {
        "1": (pytest.approx(2 / 3), 3, 1),
        "2": (pytest.approx(2 / 3), 3, 1),
        "5": (None, 0, 4),
    }
    assert [table["recall_at"][k]["value"] for k in ("1", "2")] == pytest.approx([1.5 / 3, 2 / 3])
    assert [table["precision_at"][k]["value"] for k in ("1", "2")] == pytest.approx([2 / 3, (1 + 2 + 0) / 2 / 3])
    assert table["mrr"]["value"] == pytest.approx(2 / 3)
    assert table["exact_match"]["ci95"][0] == 0.0 and table["exact_match"]["ci95"][1] == 1.0


def test_by_kind() -> None:
    by_kind = evaluate(PREDICTIONS, EXAMPLES)["by_kind"]
    assert {kind: (row["exact_match"]["value"], row["exact_match"]["n"]) for kind, row in by_kind.items()} == {
        "holder": (0.5, 2),
        "successor": (0.0, 1),
    }


def test_closed_book_has_no_evidence_to_judge() -> None:
    table = evaluate([prediction("d", "Oli")], EXAMPLES[3:])
    assert table["exact_match"]["value"] == 1.0
    assert table["correct_without_evidence"] == {"value": None, "n": 0, "n_null": 1, "ci95": None}
    assert table["cited_full"]["value"] is None


def test_the_file_alone_gives_the_same_digits_in_any_order(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.jsonl", PREDICTIONS)
    expected = evaluate(PREDICTIONS, EXAMPLES)
    assert evaluate(read_predictions(tmp_path / "p.jsonl"), EXAMPLES) == expected
    assert evaluate(PREDICTIONS[::-1], EXAMPLES[::-1]) == expected


def test_faults_d8_the_mean_is_over_questions_not_batches() -> None:
    # Batches of four right and one wrong are 0.8, not 0.5.
    examples = [Example(str(i), f"{i}?", ("x",)) for i in range(5)]
    found = [prediction(str(i), "x" if i < 4 else "y") for i in range(5)]
    assert evaluate(found, examples)["exact_match"]["value"] == pytest.approx(0.8)


def test_other_questions_are_refused() -> None:
    with pytest.raises(RagxError, match="examples must all have a prediction, got none for 'b'"):
        evaluate([p for p in PREDICTIONS if p.id != "b"], EXAMPLES)
    with pytest.raises(RagxError, match=r"must answer the examples, got 1 others \(such as \['d'\]\) and 3 examples"):
        evaluate(PREDICTIONS, EXAMPLES[:3])
    with pytest.raises(RagxError, match="must be of the same questions, got 'a[?]' for 'a', which asks 'A[?]'"):
        evaluate(PREDICTIONS, [replace(EXAMPLES[0], query="A?"), *EXAMPLES[1:]])
    with pytest.raises(RagxError, match="predictions must have unique ids, got 1 ids again"):
        evaluate([*PREDICTIONS, PREDICTIONS[0]], EXAMPLES)
    with pytest.raises(RagxError, match="examples must have unique ids, got 'a' again"):
        evaluate(PREDICTIONS, [*EXAMPLES, EXAMPLES[0]])
    with pytest.raises(RagxError, match="must have answers to be scored, got none for 'a'"):
        evaluate(PREDICTIONS, [replace(EXAMPLES[0], answers=()), *EXAMPLES[1:]])
    with pytest.raises(RagxError, match="got 0 others .* and 0 examples"):
        evaluate([], [])


def test_faults_e2_passages_in_the_wrong_direction_are_refused() -> None:
    with pytest.raises(RagxError, match="doc_scores must not rise with the rank, got 1.0 then 2.0"):
        evaluate([prediction("d", "Oli", RAIN, PERU)], EXAMPLES[3:])


GENERATED = [Example(str(i), f"{i}?", (f"the {word} is here now",)) for i, word in enumerate("abcdefgh")]


def generated(*words: str) -> list[Prediction]:
    return [prediction(str(i), f"the {word} is here", PERU, RAIN) for i, word in enumerate(words)]


@pytest.mark.parametrize("task", ["abstractive_qa", "question_generation"])
def test_faults_e6_corpus_figures_recompute_from_a_shuffled_file_to_the_digit(tmp_path: Path, task: str) -> None:
    found = generated(*"abcdxyzz")
    expected = evaluate(found, GENERATED, task=task)
    order = [5, 2, 7, 0, 1, 6, 3, 4]
    write_predictions(tmp_path / "p.jsonl", [found[i] for i in order])
    read = read_predictions(tmp_path / "p.jsonl")
    assert json.dumps(evaluate(read, GENERATED, task=task)) == json.dumps(expected)
    assert evaluate(read, [GENERATED[i] for i in order], task=task) == expected
    # Four of four words, or three, against five: matches 28 of 32, brevity e^(1-5/4).
    assert expected["bleu_1"]["value"] == pytest.approx(28 / 32 * math.exp(1 - 5 / 4))
    assert (expected["bleu_1"]["n"], expected["bleu_1"]["n_null"]) == (8, 0)
    # 16 trigrams, of which "the z is" and "z is here" occur twice.
    assert expected["distinct_trigrams"]["value"] == pytest.approx(14 / 16)


def test_two_files_give_the_paired_difference() -> None:
    first, second = generated(*"abcdefgh"), generated(*"abcdxyzz")
    found = compare(first, second[::-1], GENERATED, task="abstractive_qa")
    lifted = evaluate(first, GENERATED, task="abstractive_qa")["bleu_1"]["value"]
    assert found["bleu_1"]["value"] == pytest.approx(lifted - 28 / 32 * math.exp(1 - 5 / 4))
    assert found["bleu_1"]["n"] == 8 and found["bleu_1"]["ci95"][0] > 0 and found["bleu_1"]["p_value"] < 0.05
    assert found["rouge_l"]["value"] > 0 and found["rouge_l"]["p_value"] < 0.05
    assert "success_at" not in found  # no question has gold: nothing to compare
    same = compare(first, first, GENERATED, task="abstractive_qa")
    assert (same["bleu_1"]["value"], same["bleu_1"]["p_value"]) == (0.0, 1.0)


def test_a_difference_is_taken_where_both_could_be_scored() -> None:
    # b and c have no right answer in what they read, and d has none for the first system alone.
    first = compare(PREDICTIONS, PREDICTIONS, EXAMPLES, ks=(1, 5))
    assert first["success_at"] == {"1": {"value": 0.0, "ci95": (0.0, 0.0), "p_value": 1.0, "n": 3}}
    closed = [replace(p, passages=(), citations=()) for p in PREDICTIONS]
    found = compare(closed, PREDICTIONS, EXAMPLES)
    assert "success_at" not in found and "correct_without_evidence" not in found
    assert found["exact_match"]["n"] == 4


def test_gold_of_another_version_than_everything_retrieved_is_not_scored(caplog: pytest.LogCaptureFixture) -> None:
    other = replace(EXAMPLES[0], gold=(PassageKey("peru", "2018", "0"),), gold_titles=(("peru",),))
    table = evaluate(PREDICTIONS[1:2], [other], ks=(1,))
    unknown = {"value": None, "n": 0, "n_null": 1, "ci95": None}
    ranking = ("success_at", "recall_at", "precision_at", "ndcg_at")
    for found in (table, table["by_kind"]["holder"]):
        assert [found["mrr"], *(found[name]["1"] for name in ranking)] == [unknown] * 5
    assert table["exact_match"]["value"] == table["title_success_at"]["1"]["value"] == 1.0
    (said,) = caplog.messages
    assert "gold passages are of version ['2018'] and those retrieved of ['v1']" in said
    assert "Give data.passages=FILE" in said and "edition" not in said
    assert not {"success_at", "mrr"} & compare(PREDICTIONS[1:2], PREDICTIONS[1:2], [other]).keys()
    caplog.clear()
    evaluate(PREDICTIONS, EXAMPLES)
    assert not caplog.text


def test_labels_and_patterns() -> None:
    claims = [Example("a", "a?", ("true",), kind="x"), Example("b", "b?", ("false",), kind="y")]
    found = [prediction("a", "true"), prediction("b", "true")]
    table = evaluate(found, claims, task="fact_verification")
    assert table["label_accuracy"]["value"] == 0.5
    assert {kind: row["label_accuracy"]["value"] for kind, row in table["by_kind"].items()} == {"x": 1.0, "y": 0.0}
    patterns = [Example("a", "a?", ("tr.e",)), Example("b", "b?", ("^false",))]
    assert evaluate(found, patterns, task="regex_qa")["regex_match"]["value"] == 0.5
