"""Question files of every layout, row by row with the line each stands on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ragx.data.rows import rows_of
from ragx.errors import DataError

LIST = '[\n  {"q": 1},\n\n  {"q": "a\\nb",\n   "r": 2}, {"q": 3}\n]\n'


def written(path: Path, text: str) -> Path:
    raw = text.encode("utf-8")
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("name", ["q.json", "q.json.gz"])
def test_a_json_list_keeps_the_lines_of_its_elements(tmp_path: Path, name: str) -> None:
    rows = list(rows_of(written(tmp_path / name, "\ufeff" + LIST)))
    assert [(row.line, dict(row.values)) for row in rows] == [
        (2, {"q": 1}),
        (4, {"q": "a\nb", "r": 2}),
        (5, {"q": 3}),
    ]
    assert list(rows_of(written(tmp_path / name, "[]"))) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"q": 1},\n{"q": }]', "q.json:2: element must be JSON, got Expecting value"),
        ('[{"q": 1}\n{"q": 2}]', "q.json:2: list must have a comma or its end after an element, got neither"),
        ('[{"q": 1},\n', "q.json:2: list must be closed, got the end of the file"),
        ('[{"q": 1},\n3]', "q.json:2: element must be an object, got int"),
        ('{\n"a": 1,}', "q.json:2: file must be one JSON document"),
        ('{"a": 1}\n{"a": }', "q.json:2: line must be one JSON object"),
        ("[" * 100_000, "q.json:1: element must be JSON, got deep nesting"),
    ],
)
def test_what_is_wrong_in_a_json_document_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(rows_of(written(tmp_path / "q.json", text)))


def test_an_element_that_is_no_object_can_be_skipped(tmp_path: Path) -> None:
    errors: list[DataError] = []
    rows = list(rows_of(written(tmp_path / "q.json", '[1,\n{"q": 2}, "x"]'), errors=errors))
    assert [row.values for row in rows] == [{"q": 2}]
    assert [(error.line, error.path.name) for error in errors] == [(1, "q.json"), (2, "q.json")]


def test_the_list_of_triviaqa_and_the_columns_of_ms_marco(tmp_path: Path) -> None:
    data = written(tmp_path / "t.json", '{"Domain": "web",\n "Data": [\n{"Question": "x?"}]}')
    assert [(row.line, row.values) for row in rows_of(data)] == [(3, {"Question": "x?"})]
    columns = {"query": {"7": "x?", "9": "y?"}, "answers": {"7": ["a"], "9": ["b"]}}
    marco = written(tmp_path / "m.json", json.dumps(columns))
    assert [row.values for row in rows_of(marco)] == [
        {"query": "x?", "answers": ["a"]},
        {"query": "y?", "answers": ["b"]},
    ]


def test_json_lines_that_are_called_json(tmp_path: Path) -> None:
    rows = list(rows_of(written(tmp_path / "q.json", '{"q": 1}\n{"q": 2}\n')))
    assert [(row.line, row.values["q"]) for row in rows] == [(1, 1), (2, 2)]
    assert [row.values for row in rows_of(written(tmp_path / "q.json", '{"q": 1}'))] == [{"q": 1}]


def test_faults_c6_a_table_arrives_letter_by_letter(tmp_path: Path) -> None:
    long = "x" * 10**6
    text = (
        "\ufeffid, question, answer\r\n"
        '1,"He said ""hi"", twice","a\nb"\r\n'
        "2,NA,null\r\n"
        '3,"tab\there",\U0001f600\r\n'
        f'4,{long},"1"""\r\n'
    )
    rows = list(rows_of(written(tmp_path / "q.csv", text)))
    assert [row.line for row in rows] == [2, 4, 5, 6]
    assert [(row.values["question"], row.values["answer"]) for row in rows] == [
        ('He said "hi", twice', "a\nb"),
        ("NA", "null"),
        ("tab\there", "\U0001f600"),
        (long, '1"'),
    ]


def test_bad_rows_of_a_table(tmp_path: Path) -> None:
    path = written(tmp_path / "q.csv", "question,answer\na\nb,c\n")
    errors: list[DataError] = []
    assert [row.values for row in rows_of(path, errors=errors)] == [{"question": "b", "answer": "c"}]
    assert str(errors[0]).endswith("q.csv:2: row must have 2 fields as the header, got 1. Quote such fields")
    with pytest.raises(DataError, match="q.csv:2: row must have 2 fields"):
        list(rows_of(path))
    with pytest.raises(DataError, match="q.csv:2: row must be well-formed"):
        list(rows_of(written(path, 'question,answer\n"a"b,c\n')))


def test_curatedtrec_is_split_at_tabs_and_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path / "t.tsv", '7\tfactoid\tWho "did"?\t"Wild" Bill\\s?\n8\tfactoid\tx\n9\tfactoid\ty?\tz \r\n')
    errors: list[DataError] = []
    rows = list(rows_of(path, errors=errors))
    assert [(row.line, row.values["question"], row.values["pattern"]) for row in rows] == [
        (1, 'Who "did"?', '"Wild" Bill\\s?'),
        (3, "y?", "z "),
    ]
    assert [error.line for error in errors] == [2]
    with pytest.raises(DataError, match=r"t.tsv:2: line must have 4 fields \(id, type, question, pattern\), got 3"):
        list(rows_of(path))


def test_a_file_that_is_not_utf8_or_breaks_off(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_bytes(b'[{"q": "a"},\n{"q": "\xe9"}]')
    with pytest.raises(DataError, match="q.json:2: line must be UTF-8, got invalid continuation byte"):
        list(rows_of(tmp_path / "q.json"))
    (tmp_path / "q.csv.gz").write_bytes(gzip.compress(b"a,b\n" * 100)[:-9])
    with pytest.raises(DataError, match="q.csv.gz: file must be whole, got an archive that breaks off"):
        list(rows_of(tmp_path / "q.csv.gz"))
