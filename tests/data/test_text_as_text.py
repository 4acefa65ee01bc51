"""An answer is text: from each kind of file to the score its letters stay what they were written as."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragx.data.predictions import read_predictions, write_predictions
from ragx.data.tasks import Reading, read_examples, write_examples
from ragx.errors import DataError
from ragx.evaluation.answers import exact_match, f1
from ragx.generator.inputs import InputBuilder
from ragx.records import Example, Prediction

TEXTS = {
    "decomposed": "Jose\u0301 Marti\u0301",
    "composed": "Jos\u00e9 Mart\u00ed",
    "compatibility": "\u2460 \ufb01rst, 1\u2044\u00bd",
    "line break": "Ollanta\nHumala",
    "tab": "Ollanta\tHumala",
    "carriage return": "Ollanta\r\nHumala",
    "line separator": "Ollanta\u2028Humala\x85",
    "no-break blank": "10\u00a0000",
    "markup": '<b>Lima</b> &amp; <a href="x">Ica</a><br/>',
    "wiki markup": "[[Lima|the city]] ''Ica'' {{PER}}",
    "control token": "</s> <mask> <|im_end|>",
    "right to left": "\u200f\u05d9\u05e8\u05d5\u05e9\u05dc\u05d9\u05dd (Jerusalem)\u200e",
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "missing value": "NA",
    "number": "1e5",
    "quotation": 'He said "hi", then left',
    "backslash": r"C:\new\table",
    "outer blanks": "  Lima ",
}
Write = Callable[[Path, str], Path]


def _lines(path: Path, answer: str) -> Path:
    (path / "q.jsonl").write_text(json.dumps({"question": "x?", "answer": [answer, "other"]}) + "\n")
    return path / "q.jsonl"


def _unescaped(path: Path, answer: str) -> Path:
    row = {"question": "x?", "answer": [answer, "other"]}
    (path / "u.jsonl").write_bytes((json.dumps(row, ensure_ascii=False) + "\n").encode())
    return path / "u.jsonl"


def _list(path: Path, answer: str) -> Path:
    (path / "q.json").write_text(json.dumps([{"qText": "x?", "answers": [answer, "other"]}], indent=1))
    return path / "q.json"


def _aliases(path: Path, answer: str) -> Path:
    row = {"qid": "t", "question": "x?", "gold_answer": answer, "aliases": ["other", answer]}
    (path / "a.json").write_text(json.dumps([row]))
    return path / "a.json"


def _kilt(path: Path, answer: str) -> Path:
    row = {"id": "k", "input": "x?", "output": [{"answer": answer}, {"answer": "other"}, {"answer": answer}]}
    (path / "k.jsonl").write_text(json.dumps(row) + "\n")
    return path / "k.jsonl"


@pytest.mark.parametrize("answer", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("write", [_lines, _unescaped, _list, _aliases, _kilt])
def test_several_answers_arrive_letter_by_letter(write: Write, answer: str, tmp_path: Path) -> None:
    (example,) = read_examples(write(tmp_path, answer))
    assert example.answers == (answer, "other")
    write_examples(tmp_path / "again.jsonl", [example])
    assert read_examples(tmp_path / "again.jsonl") == [example]


@pytest.mark.parametrize("clue", TEXTS.values(), ids=TEXTS)
def test_a_clue_of_a_table_arrives_letter_by_letter(clue: str, tmp_path: Path) -> None:
    with (tmp_path / "c.csv").open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([[" Category", " Question", " Answer"], ["C", clue, "Lima"]])
    (example,) = read_examples(tmp_path / "c.csv", reading=Reading(task="question_generation"))
    assert (example.query, example.answers) == ("Lima", (clue,))


@pytest.mark.parametrize("answer", TEXTS.values(), ids=TEXTS)
def test_a_predictions_file_keeps_it_and_the_score_is_full(answer: str, tmp_path: Path) -> None:
    given = Prediction("1", answer, answer, -1.0, ((answer, -1.0),), (), (), 0, {})
    write_predictions(tmp_path / "p.jsonl", [given])
    (found,) = read_predictions(tmp_path / "p.jsonl")
    assert found == given
    for metric in (exact_match, f1):
        assert metric(prediction=found.answer, answers=["other", answer]) == 1.0
        assert metric(prediction="", answers=["other", answer]) == 0.0
        assert metric(prediction=found.answer, answers=["other"]) == 0.0


@pytest.mark.parametrize("answer", TEXTS.values(), ids=TEXTS)
def test_a_label_spells_the_answer_and_nothing_in_it_is_a_control_token(answer: str, byte_level_tokenizer: Any) -> None:
    (ids,) = InputBuilder(byte_level_tokenizer).targets([answer], max_length=200)
    assert byte_level_tokenizer.decode(ids, skip_special_tokens=False) == f"{answer}</s>"
    assert not set(byte_level_tokenizer.all_special_ids) & set(ids[:-1])


def test_unicode_forms_of_one_text_are_one_answer_and_look_alikes_are_not() -> None:
    assert exact_match(prediction=TEXTS["decomposed"], answers=[TEXTS["composed"]]) == 1.0
    for prediction, answer in (("\u00bd", "1\u20442"), ("1", "\u2460"), ("\ufb01rst", "first")):
        assert exact_match(prediction=prediction, answers=[answer]) == 0.0


def test_blanks_of_any_kind_separate_words_and_markup_is_text() -> None:
    for name in ("line break", "tab", "carriage return"):
        assert exact_match(prediction="Ollanta Humala", answers=[TEXTS[name]]) == 1.0
    assert exact_match(prediction="10 000", answers=[TEXTS["no-break blank"]]) == 1.0
    assert exact_match(prediction="Lima", answers=["<b>Lima</b>"]) == 0.0
    assert f1(prediction="Lima Ica", answers=["<b>Lima</b> Ica"]) == pytest.approx(0.5)


@pytest.mark.parametrize("empty", ["", " ", "\n\t", "\u00a0", None])
def test_an_empty_answer_is_named_and_can_be_skipped(empty: Any, tmp_path: Path) -> None:
    rows = [{"question": "x?", "answers": ["a", empty]}, {"question": "y?", "answers": ["b"]}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"q.jsonl:1: answers\[1\]: must be text that is not blank"):
        read_examples(tmp_path / "q.jsonl")
    errors: list[DataError] = []
    kept = read_examples(tmp_path / "q.jsonl", reading=Reading(on_bad_row="skip"), errors=errors)
    assert kept == [Example("2", "y?", ("b",))] and [error.line for error in errors] == [1]


def test_equal_answers_count_once_and_their_order_stays(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "x?", "answers": ["b", "a", "b", "B"]}) + "\n")
    (example,) = read_examples(tmp_path / "q.jsonl")
    assert example.answers == ("b", "a", "B")
