"""The table of a run, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ragx.data.predictions import read_predictions, write_predictions
from ragx.errors import RagxError
from ragx.experiments.evaluate import evaluate
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


def test_the_mean_is_over_questions_not_batches() -> None:
    # FAULTS D8: batches of four right and one wrong are 0.8, not 0.5.
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


def test_passages_in_the_wrong_direction_are_refused() -> None:
    with pytest.raises(RagxError, match="doc_scores must not rise with the rank, got 1.0 then 2.0"):
        evaluate([prediction("d", "Oli", RAIN, PERU)], EXAMPLES[3:])
