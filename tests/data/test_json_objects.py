"""A JSON array is read object by object, whatever its size and wherever a read ends, with the line of each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ragx.data import json_objects
from ragx.data.json_objects import read_objects
from ragx.errors import DataError

OBJECTS = [{"q": 'a "quoted" } ]', "n": [1, {"x": "ü 😀"}]}, {}, {"text": "y" * 300, "e": "\\"}, {"last": None}]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("packed", [False, True])
def test_objects_come_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None, packed: bool
) -> None:
    monkeypatch.setattr(json_objects, "_CHUNK", chunk)
    content = b"\xef\xbb\xbf" + f" \n{json.dumps(OBJECTS, indent=indent, ensure_ascii=False)}\n".encode()
    file = write(tmp_path / ("a.json" + ".gz" * packed), gzip.compress(content) if packed else content)
    assert [dict(row.values) for row in read_objects(file)] == OBJECTS


def test_lines_are_those_of_an_editor(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", '\n[\n{"a":\n1},\n\n{"b": 2}, {"c": 3}\n]\n')
    assert [(row.line, row.values) for row in read_objects(file)] == [(3, {"a": 1}), (6, {"b": 2}), (6, {"c": 3})]


def test_json_lines_are_read_too(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '\n{"a": [1]}\n\n{"b": 2}\n')
    assert [(row.line, row.values) for row in read_objects(file)] == [(2, {"a": [1]}), (4, {"b": 2})]


def test_an_empty_array_has_no_objects(tmp_path: Path) -> None:
    assert list(read_objects(write(tmp_path / "a.json", "[ \n ]"))) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[\n{"a": 1},\n{"b": }\n]', ":3: element must be JSON, got: Expecting value"),
        ('[\n{"a": 1}\n{"b": 2}]', ":3: elements must be separated by commas, got '{'"),
        ('[{"a": 1},\n', ":2: element must be JSON, got: Expecting value"),
        ('[{"a": 1}\n', ":2: elements must be separated by commas, got 'the end of the file'"),
        ('[{"a": 1},\n[2]]', ":2: element must be an object, got list"),
        (b'[{"a": 1},\n{"b": "\xff"}]', ":2: line must be UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"a.json{message}"):
        list(read_objects(write(tmp_path / "a.json", content)))


def test_an_archive_that_breaks_off_is_named(tmp_path: Path) -> None:
    content = gzip.compress(json.dumps(OBJECTS * 50).encode())[:-20]
    with pytest.raises(DataError, match=r"a.json.gz:\d+: file must be whole, got an archive that breaks off"):
        list(read_objects(write(tmp_path / "a.json.gz", content)))
