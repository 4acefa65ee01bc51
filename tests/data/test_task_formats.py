"""Every layout that question sets are published in, with invented rows, as each task reads it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ragx.data.formats import fever_title
from ragx.data.tasks import Reading, read_examples
from ragx.errors import DataError, RagxError
from ragx.records import Example, PassageKey

TWO_WAY = Reading(task="fact_verification", labels={"SUPPORTS": "true", "REFUTES": "false"})
DPR = {
    "question": "x?",
    "answers": ["a", "b", "a"],
    "positive_ctxs": [
        {"title": "Peru", "text": "..", "passage_id": "12"},
        {"title": "Lima", "text": "..", "psg_id": 7},
    ],
    "negative_ctxs": [],
    "hard_negative_ctxs": [],
}
KILT = {
    "id": "k1",
    "input": "x?",
    "output": [
        {"answer": "a", "provenance": [{"wikipedia_id": "1", "title": "Peru"}, {"title": "Lima"}, {"title": "Peru"}]},
        {"provenance": [{"title": "Ica"}]},
        {"answer": "a"},
    ],
}
FEVER = {
    "id": 75397,
    "verifiable": "VERIFIABLE",
    "label": "SUPPORTS",
    "claim": "x.",
    "evidence": [[[1, 2, "Soul_-LRB-film-RRB-", 7], [1, 2, "Fox", 0]], [[3, 4, "Soul_-LRB-film-RRB-", 1]]],
}
POOL = {
    "id": "cf0",
    "source": "climate",
    "claim": "x.",
    "label": "REFUTES",
    "evidence": [{"ctx_id": "ev1", "label": "NOT_ENOUGH_INFO"}, {"ctx_id": "ev2", "label": "REFUTES"}],
}
CLUE = {"category": "C", "air_date": "2000-01-01", "question": "It leads.", "answer": "Lima", "round": "Jeopardy!"}


def key(source: str) -> PassageKey:
    return PassageKey(source, "2018", "0")


def read(path: Path, *rows: Any, **settings: Any) -> list[Example]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_examples(path, reading=Reading(version="2018", **settings))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"question": "x?", "answer": ["a", "b"]}, Example("1", "x?", ("a", "b"))),
        (
            {"id": "-3", "question": "x?", "answers": ["a"], "positive_ctx_id": "qed1", "answer_type": "none"},
            Example("-3", "x?", ("a",), gold=(key("qed1"),)),
        ),
        (
            {"id": "n", "question": "x?", "answers": ["a"], "positive_ctx_ids": ["w1", "w2"]},
            Example("n", "x?", ("a",), gold=(key("w1"), key("w2"))),
        ),
        (DPR, Example("1", "x?", ("a", "b"), gold=(key("12"), key("7")), gold_titles=(("Peru",), ("Lima",)))),
        (KILT, Example("k1", "x?", ("a",), gold_titles=(("Peru", "Lima"), ("Ica",)))),
        (
            {"query_id": 3, "query": "x?", "answers": ["a"], "wellFormedAnswers": ["A."], "query_type": "PERSON"},
            Example("3", "x?", ("A.",), kind="PERSON"),
        ),
        (
            {"question_id": "tc_1", "question": "x?", "answer": {"value": "A", "aliases": ["b", "A"]}},
            Example("tc_1", "x?", ("A", "b")),
        ),
        (
            {"QuestionId": "tc_1", "Question": "x?", "Answer": {"Value": "A", "Aliases": ["b"]}},
            Example("tc_1", "x?", ("A", "b")),
        ),
        (
            {"qid": "t", "dataset": "popqa", "question": "x?", "gold_answer": "A", "aliases": ["b"]},
            Example("t", "x?", ("A", "b")),
        ),
        ({"qId": "wqr0", "qText": "x?", "answers": ["a"]}, Example("wqr0", "x?", ("a",))),
        ({"url": "..", "question": "x?", "answers": ["a"]}, Example("1", "x?", ("a",))),
        (CLUE, Example("1", "It leads.", ("Lima",))),
        (
            {"Show Number": "1", "Category": "C", "Question": "It leads.", "Answer": "Lima"},
            Example("1", "It leads.", ("Lima",)),
        ),
        (
            FEVER,
            Example("75397", "x.", ("SUPPORTS",), gold_titles=(("Soul (film)", "Fox"), ("Soul (film)",))),
        ),
        (POOL, Example("cf0", "x.", ("REFUTES",), kind="climate", gold=(key("ev2"),))),
        (
            {"id": "5", "claim": "x.", "evidence": "It is.", "sentence2": "x.", "gold_label": "REFUTES"},
            Example("5", "x.", ("REFUTES",)),
        ),
    ],
)
def test_each_layout(tmp_path: Path, row: dict[str, Any], expected: Example) -> None:
    assert read(tmp_path / "q.jsonl", row) == [expected]


def test_a_list_of_dprs_in_one_json_document(tmp_path: Path) -> None:
    path = tmp_path / "nq-dev.json"
    for indent in (1, None):  # on one line, ids are still told apart
        path.write_text(json.dumps([DPR, {**DPR, "positive_ctxs": []}], indent=indent))
        first, second = read_examples(path)
        assert (first.gold[0], second.gold) == (PassageKey("12", "1", "0"), ())
        assert (first.id, second.id) == ("1", "2")
    path.write_text(json.dumps([{**DPR, "id": "q"}, {**DPR, "id": "q"}]))
    with pytest.raises(DataError, match=r"nq-dev.json:1: .* 'q' again as element 2 \(first on line 1 as element 1\)"):
        read_examples(path)


def test_question_generation_asks_for_the_clue(tmp_path: Path) -> None:
    (found,) = read(tmp_path / "q.jsonl", CLUE, task="question_generation")
    assert (found.query, found.answers) == ("Lima", ("It leads.",))


def test_labels_become_words_and_other_claims_are_no_part_of_the_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "f.jsonl"
    rows = [FEVER, {**FEVER, "id": 2, "label": "NOT ENOUGH INFO", "evidence": [[[1, None, None, None]]]}, POOL]
    three = Reading(task="fact_verification", labels={**TWO_WAY.labels, "NOT_ENOUGH_INFO": "unknown"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with caplog.at_level(logging.INFO, "ragx.data.tasks"):
        assert [e.answers for e in read_examples(path, reading=TWO_WAY)] == [("true",), ("false",)]
    assert "1 rows are no part of fact_verification" in caplog.text
    found = read_examples(path, reading=three)
    assert [(e.answers, e.gold_titles != ()) for e in found] == [
        (("true",), True),
        (("unknown",), False),
        (("false",), False),
    ]
    path.write_text(json.dumps({**POOL, "label": "NOT_ENOUGH_INFO"}))
    assert read_examples(path, reading=three)[0].answers == ("unknown",)


def test_a_misspelt_label_is_an_error_and_not_another_task(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="q.jsonl:1: label: must be one of SUPPORTS, REFUTES, .* got 'SUPPORT'"):
        read(tmp_path / "q.jsonl", {**FEVER, "label": "SUPPORT"}, task="fact_verification")
    with pytest.raises(RagxError, match=r"labels must be of SUPPORTS, .* got \['supports'\]"):
        Reading(labels={"supports": "true"})
    with pytest.raises(RagxError, match="task must be one of open_qa, .* got 'qa'"):
        Reading(task="qa")


def test_ms_marco_without_a_written_answer_is_no_part_of_the_task(tmp_path: Path) -> None:
    row = {"query_id": 1, "query": "x?", "answers": ["a"], "wellFormedAnswers": "[]"}
    found = read(tmp_path / "q.jsonl", row, {**row, "query_id": 2, "wellFormedAnswers": ["It is a."]})
    assert [(e.id, e.answers) for e in found] == [("2", ("It is a.",))]


def test_patterns_are_read_as_patterns(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("7\tfactoid\tWho?\tA|B\n8\tfactoid\tx?\t(\n")
    assert read_examples(tmp_path / "t.tsv")[1].answers == ("(",)
    with pytest.raises(DataError, match=r"t.tsv:2: answers: must be a regular expression, got '\(' \(missing \)"):
        read_examples(tmp_path / "t.tsv", reading=Reading(task="regex_qa"))


def test_bad_rows_are_skipped_named_and_counted_where_the_config_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q.jsonl"
    good = {"question": "x?", "answer": "a"}
    rows = [json.dumps(good), "{", json.dumps({"question": "y?", "answer": []}), json.dumps({**good, "id": "1"})]
    path.write_text("\n".join([*rows, json.dumps({**good, "id": "9"})]) + "\n")
    errors: list[DataError] = []
    found = read_examples(path, reading=Reading(on_bad_row="skip"), errors=errors)
    assert [e.id for e in found] == ["1", "9"]
    assert [error.line for error in errors] == [2, 3, 4]
    assert "q.jsonl: skipped 3 bad rows" in caplog.text
    assert "skipped" in caplog.text and "q.jsonl:3: answers: must hold at least one answer, got []" in caplog.text
    with pytest.raises(DataError, match="q.jsonl:2: line must be one JSON object"):
        read_examples(path)
    path.write_text("{\n")
    with pytest.raises(DataError, match="q.jsonl: file must hold at least one example"):
        read_examples(path, reading=Reading(on_bad_row="skip"))


def test_rows_that_fit_no_layout_are_refused_with_what_could_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"q.jsonl:1: query: must be given, got the fields \['text'\]. Known: DPR"):
        read(tmp_path / "q.jsonl", {"text": "x"})


def test_the_parts_of_one_file_are_disjoint_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps({"question": f"q{i % 80}?", "answer": "a"}) + "\n" for i in range(400)))
    parts = {name: read_examples(f"{path}@{name}") for name in ("train", "dev", "test")}
    assert sorted(int(e.id) for found in parts.values() for e in found) == list(range(1, 401))
    asked = {name: {e.query for e in found} for name, found in parts.items()}
    assert not asked["train"] & asked["dev"] and not asked["train"] & asked["test"] and not asked["dev"] & asked["test"]
    assert len(asked["train"]) > len(asked["dev"]) + len(asked["test"])
    named = tmp_path / "q.jsonl@dev"
    named.write_text(json.dumps({"question": "whole?", "answer": "a"}))
    assert [e.query for e in read_examples(named)] == ["whole?"]


def test_fevers_names_of_pages() -> None:
    assert fever_title("Beautiful_-LRB-song-RRB-") == "Beautiful (song)"
    assert fever_title("Star_Trek-COLON-_First_-LSB-x-RSB-") == "Star Trek: First [x]"


TEXTS = [
    "Who was Müller at NASA?",
    "two  blanks and a\ttab",
    "first\nsecond\r\nthird",
    'quotes "inside" and ‘outside’',
    "<b>bold</b> &amp; <br/>",
    "Jose\u0301 and Jos\u00e9",
    "\ufb01ne \u2460 \u00bd",
    "NA",
    "null",
    "\U0001f600",
]


@pytest.mark.parametrize("text", TEXTS)
def test_faults_c4_text_is_never_altered(tmp_path: Path, text: str) -> None:
    (found,) = read(tmp_path / "q.jsonl", {"question": text, "answers": [text, f"{text}!"]})
    assert (found.query, found.answers) == (text, (text, f"{text}!"))


@pytest.mark.parametrize("empty", ["", " ", "\n\t"])
def test_an_empty_answer_is_a_bad_row(tmp_path: Path, empty: str) -> None:
    with pytest.raises(DataError, match=r"q.jsonl:1: answers\[1\]: must be text that is not blank"):
        read(tmp_path / "q.jsonl", {"question": "x?", "answers": ["a", empty]})
