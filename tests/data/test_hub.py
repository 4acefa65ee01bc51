"""Data sets by name, from small folders in the schema of those on the hub; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from ragx.data.hub import HubName, parse
from ragx.data.tasks import Reading, read_examples
from ragx.errors import DataError


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def folder(path: Path, **splits: list[dict[str, Any]]) -> str:
    path.mkdir()
    for split, rows in splits.items():
        (path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"hub:{path}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("hub:google/nq_open:validation", HubName("google/nq_open", None, "validation", None)),
        ("hub:a/b:v2.1:train[:10%]", HubName("a/b", "v2.1", "train[:10%]", None)),
        ("hub:a/b:train[5:9]", HubName("a/b", None, "train[5:9]", None)),
        ("hub:a/b@refs/convert/parquet:c:test", HubName("a/b", "c", "test", "refs/convert/parquet")),
    ],
)
def test_names(source: str, expected: HubName) -> None:
    assert parse(source) == expected


def test_a_name_without_a_split_is_refused() -> None:
    with pytest.raises(DataError, match="hub:a/b: source must be hub:NAME.*:SPLIT, got no split"):
        read_examples("hub:a/b")


def test_a_split_and_a_slice_of_it(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}?", "answer": [f"a{i}", "b"]} for i in range(6)]
    name = folder(tmp_path / "nq_open", train=rows, validation=rows[:2])
    found = read_examples(f"{name}:train")
    assert [(e.id, e.query, e.answers) for e in found[:2]] == [("1", "q0?", ("a0", "b")), ("2", "q1?", ("a1", "b"))]
    assert len(found) == 6
    assert [e.query for e in read_examples(f"{name}:validation")] == ["q0?", "q1?"]
    assert [e.query for e in read_examples(f"{name}:train[4:]")] == ["q4?", "q5?"]
    parts = [read_examples(f"{name}:train@train"), found]
    assert {e.query for e in parts[0]} < {e.query for e in parts[1]}


def test_trivia_qa_and_ms_marco_in_their_hub_schema(tmp_path: Path) -> None:
    answer = {"aliases": ["b"], "normalized_aliases": ["b"], "matched_wiki_entity_name": "", "value": "A"}
    name = folder(tmp_path / "trivia_qa", train=[{"question": "x?", "question_id": "tc_1", "answer": answer}])
    assert read_examples(f"{name}:train")[0].answers == ("A", "b")
    passages = {"is_selected": [1], "passage_text": ["p"], "url": ["u"]}
    row = {"answers": ["a"], "passages": passages, "query": "x?", "query_id": 7, "query_type": "PERSON"}
    rows = [{**row, "wellFormedAnswers": ["It is a."]}, {**row, "query_id": 8, "wellFormedAnswers": []}]
    found = read_examples(f"{folder(tmp_path / 'ms_marco', train=rows)}:train", reading=Reading(task="abstractive_qa"))
    assert [(e.id, e.query, e.answers, e.kind) for e in found] == [("7", "x?", ("It is a.",), "PERSON")]


def test_search_qa_in_its_hub_schema(tmp_path: Path) -> None:
    clue = {"category": "C", "air_date": "2000-01-01", "question": "It leads.", "value": "$200", "answer": "lima"}
    name = folder(tmp_path / "search_qa", test=[{**clue, "round": "Jeopardy!", "show_number": 4680}])
    (found,) = read_examples(f"{name}:test", reading=Reading(task="question_generation"))
    assert (found.query, found.answers) == ("lima", ("It leads.",))


def test_fever_has_one_row_a_sentence_and_becomes_one_example_a_claim(tmp_path: Path) -> None:
    def row(i: int, label: str, annotation: int, page: str | None, sentence: int) -> dict[str, Any]:
        evidence = {"evidence_annotation_id": annotation, "evidence_id": annotation + 1}
        where = {"evidence_wiki_url": page, "evidence_sentence_id": sentence}
        return {"id": i, "label": label, "claim": f"claim {i}.", **evidence, **where}

    rows = [row(1, "SUPPORTS", 10, "Soul_-LRB-film-RRB-", 7), row(1, "SUPPORTS", 10, "Fox", 0)]
    rows += [row(1, "SUPPORTS", 20, "Lima", 3), row(2, "NOT ENOUGH INFO", -1, "", -1)]
    labels = {"SUPPORTS": "true", "NOT_ENOUGH_INFO": "unknown"}
    reading = Reading(task="fact_verification", labels=labels)
    first, second = read_examples(f"{folder(tmp_path / 'fever', train=rows)}:train", reading=reading)
    assert (first.id, first.answers, first.gold_titles) == ("1", ("true",), (("Soul (film)", "Fox"), ("Lima",)))
    assert (second.id, second.answers, second.gold_titles) == ("2", ("unknown",), ())


def test_a_data_set_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data set must be loadable, got: .* Check the name and the network"):
        read_examples(f"hub:{tmp_path / 'nowhere'}:train")


def test_a_bad_row_is_named_with_its_number(tmp_path: Path) -> None:
    name = folder(tmp_path / "q", train=[{"question": "x?", "answer": ["a"]}, {"question": "y?", "answer": []}])
    with pytest.raises(DataError, match="q:train:2: answers: must hold at least one answer"):
        read_examples(f"{name}:train")
    assert len(read_examples(f"{name}:train", reading=Reading(on_bad_row="skip"))) == 1
