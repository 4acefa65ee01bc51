"""Question files as people write them, and each way in which one can be wrong."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ragx.data.tasks import read_examples, write_examples
from ragx.errors import DataError
from ragx.records import Example, PassageKey


def written(path: Path, *rows: Any) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def test_every_field_comes_back(tmp_path: Path) -> None:
    gold = (PassageKey("peru", "2016-12", "3"), PassageKey("peru", "2016-12", "4"))
    examples = [
        Example("q1", " Who  leads Peru?\t", ("Ollanta\nHumala", "Humala"), kind="holder", gold=gold, as_of="2016-12"),
        Example("q2", "¿Quién\u2028gobernó?", ("Fujimori",)),
    ]
    write_examples(tmp_path / "q.jsonl", examples)
    assert read_examples(tmp_path / "q.jsonl") == examples


def test_the_short_forms(tmp_path: Path) -> None:
    path = written(
        tmp_path / "q.jsonl",
        {"question": "x?", "answer": "a", "topic": "ignored"},
        "",
        {"id": 7, "query": "y?", "answers": ["b", "c"]},
    )
    assert read_examples(path) == [Example("1", "x?", ("a",)), Example("7", "y?", ("b", "c"))]
    assert read_examples(path)[1].id == "7"


def test_compressed_and_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl.gz"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf{"query": "x?", "answer": "NA"}\n'))
    assert read_examples(path) == [Example("1", "x?", ("NA",))]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"q.jsonl.gz:\d: file must be whole, got an archive that breaks off"):
        read_examples(path)


def test_without_answers(tmp_path: Path) -> None:
    path = written(tmp_path / "q.jsonl", {"query": "x?"}, {"query": "y?", "answers": []})
    assert [example.answers for example in read_examples(path, require_answers=False)] == [(), ()]
    with pytest.raises(DataError, match=r"q.jsonl:1: answers: must hold at least one answer, got None"):
        read_examples(path)


GOOD = {"query": "x?", "answers": ["a"]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answers": ["a"]}, "query: must be given, got the fields ['answers']"),
        ({**GOOD, "query": " "}, "query: must be text that is not blank"),
        ({"question": 3, "answers": ["a"]}, "question: must be text that is not blank, got 3"),
        ({**GOOD, "question": "z?"}, "question: must equal `query` where both are given"),
        ({"query": "x?", "anwsers": ["a"]}, "answers: must hold at least one answer"),
        ({"query": "x?", "answers": []}, "answers: must hold at least one answer, got []"),
        ({"query": "x?", "answers": ["a", ""]}, "answers[1]: must be text that is not blank"),
        ({"query": "x?", "answers": [1]}, "answers[0]: must be text that is not blank, got 1"),
        ({"query": "x?", "answer": {"a": 1}}, "answer: must be a list"),
        ({"query": "x?", "answer": " "}, "answer: must be text that is not blank"),
        ({**GOOD, "gold": "peru"}, "gold: must be a list"),
        ({**GOOD, "gold": ["peru"]}, "gold[0]: must be [source, version, chunk]"),
        ({**GOOD, "gold": [["peru", "v1", 3]]}, "gold[0]: must be [source, version, chunk]"),
        ({**GOOD, "id": ""}, "id: must be text that is not blank"),
        ({**GOOD, "id": True}, "id: must be text that is not blank"),
        ({**GOOD, "kind": 1}, "kind: must be text"),
        ({**GOOD, "as_of": 2016}, "as_of: must be text"),
        ({**GOOD, "id": "1"}, "id: must be unique, got '1' again (first on line 1). Rename one, or skip bad rows"),
        ("{", "line must be one JSON object, got Expecting property name"),
        ("[1]", "line must be one JSON object, got list"),
        ("[" * 100_000, "line must be one JSON object, got deep nesting"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_field(tmp_path: Path, row: Any, message: str) -> None:
    path = written(tmp_path / "q.jsonl", GOOD, row)
    with pytest.raises(DataError, match=re.escape(f"q.jsonl:2: {message}")) as caught:
        read_examples(path)
    assert (caught.value.path, caught.value.line) == (path, 2)


def test_a_line_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"query": "x?", "answer": "a"}\n{"query": "\xe9?", "answer": "a"}\n')
    with pytest.raises(DataError, match="q.jsonl:2: line must be UTF-8, got invalid continuation byte at byte 11"):
        read_examples(path)


def test_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="q.jsonl: file must hold at least one example, got none"):
        read_examples(written(tmp_path / "q.jsonl", ""))
