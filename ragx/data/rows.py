"""The rows of question files, whatever holds them: JSON lines, one JSON document, a table with or without a header.

    .jsonl     one object a line                                NQ-open, KILT, FEVER
    .json      a list of objects, alone or as the field `Data` or `data`; or columns {"query": {"0": ...}, ...}
               DPR's retriever data, WebQuestions, TriviaQA; MS MARCO
    .csv       a header, RFC 4180 quoting                       J! Archive's clues
    .tsv       no header, no quoting: id, kind, question, pattern    CuratedTREC

Each also .gz. One decision: every row keeps the line it stands on, also inside one JSON document, so that a bad one is
named as file:line and can be skipped without losing its neighbors.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragx.errors import DataError
from ragx.jsonl import Row, read_lines, read_rows

_TREC = ("id", "type", "question", "pattern")
_BLANK = " \t\r\n"


@dataclass(frozen=True)
class Element(Row):
    """One object of a JSON list, several of which may share a line.

    Attributes:
        place: in the list, from 1.
    """

    place: int


def rows_of(path: str | Path, *, errors: list[DataError] | None = None) -> Iterator[Row]:
    """The rows of a question file, in its order.

    Args:
        errors: where given, a row that cannot be read is added here and skipped.

    Raises:
        DataError: a row that cannot be read, or a file that cannot be read on from some place.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix == ".json":
        return _document_rows(path, errors)
    if suffix == ".csv":
        return _csv_rows(path, errors)
    if suffix == ".tsv":
        return _trec_rows(path, errors)
    return read_rows(path, errors=errors)


def _fail(error: DataError, errors: list[DataError] | None) -> None:
    if errors is None:
        raise error
    errors.append(error)


def _text(path: Path) -> str:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        message = f"file must be whole, got an archive that breaks off ({error}). Copy it again"
        raise DataError(message, path=path) from error
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"line must be UTF-8, got {error.reason}. Convert the file", path=path, line=line) from error


def _document_rows(path: Path, errors: list[DataError] | None) -> Iterator[Row]:
    text = _text(path)
    start = _skip(text, 0)
    if text[start : start + 1] == "[":
        yield from _list_rows(path, text, start, errors)
        return
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        if _looks_like_lines(text):
            yield from read_rows(path, errors=errors)
            return
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        message = f"file must be one JSON document, got {getattr(error, 'msg', 'deep nesting')}. Mend it"
        raise DataError(message, path=path, line=line) from error
    for name in ("Data", "data"):
        if isinstance(document, dict) and isinstance(document.get(name), list):
            yield from _list_rows(path, text, text.index("[", text.index(f'"{name}"')), errors)
            return
    if not isinstance(document, dict) or not document or not all(isinstance(c, dict) for c in document.values()):
        yield from read_rows(path, errors=errors)  # a single object on one line, or a refusal that says what is wanted
        return
    yield from _column_rows(path, document)


def _looks_like_lines(text: str) -> bool:
    """Whether a .json file in truth holds JSON lines, as many data sets do."""
    first = text.lstrip(_BLANK).split("\n", 1)[0].rstrip()
    return first.startswith("{") and first.endswith("}")


def _column_rows(path: Path, columns: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """MS MARCO's layout: an object of columns, each an object from row number to value."""
    for number, key in enumerate(next(iter(columns.values())), start=1):
        yield Row(path, number, {name: column[key] for name, column in columns.items() if key in column})


def _list_rows(path: Path, text: str, start: int, errors: list[DataError] | None) -> Iterator[Row]:
    """The objects of a JSON list that opens at `start`; an element that is no object is one bad row."""
    decoder = json.JSONDecoder()
    line, counted, number = 1, 0, 0
    place = _skip(text, start + 1)
    while text[place : place + 1] not in ("]", ""):
        line, counted, number = line + text.count("\n", counted, place), place, number + 1
        try:
            value, end = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError) as error:
            message = f"element must be JSON, got {getattr(error, 'msg', 'deep nesting')}. Mend or remove it"
            raise DataError(message, path=path, line=line) from error  # where the next begins is not known
        if isinstance(value, dict):
            yield Element(path, line, value, number)
        else:
            message = f"element must be an object, got {type(value).__name__}. Mend or remove it"
            _fail(DataError(message, path=path, line=line), errors)
        place = _skip(text, end)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != "]":
            line += text.count("\n", counted, place)
            message = "list must have a comma or its end after an element, got neither. Mend it"
            raise DataError(message, path=path, line=line)
    if text[place : place + 1] != "]":
        message = "list must be closed, got the end of the file. Copy it again"
        raise DataError(message, path=path, line=text.count("\n") + 1)


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in _BLANK:
        place += 1
    return place


def _csv_rows(path: Path, errors: list[DataError] | None) -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    header: list[str] | None = None
    start = 1
    while True:
        try:
            values = next(reader, None)
        except csv.Error as error:
            message = f"row must be well-formed, got: {error}. Double the quotation marks inside a field"
            raise DataError(message, path=path, line=start) from error  # later rows may be parts of this one
        if values is None:
            return
        if header is None:
            header = [name.strip() for name in values]
        elif len(values) == len(header):
            yield Row(path, start, dict(zip(header, values, strict=True)))
        elif values:
            message = f"row must have {len(header)} fields as the header, got {len(values)}. Quote such fields"
            _fail(DataError(message, path=path, line=start), errors)
        start = reader.line_num + 1


def _trec_rows(path: Path, errors: list[DataError] | None) -> Iterator[Row]:
    for line, raw in read_lines(path):
        try:
            values = raw.decode("utf-8").rstrip("\r\n").split("\t")
        except UnicodeDecodeError as error:
            _fail(DataError(f"line must be UTF-8, got {error.reason}. Convert the file", path=path, line=line), errors)
            continue
        if len(values) == len(_TREC):
            yield Row(path, line, dict(zip(_TREC, values, strict=True)))
        else:
            message = f"line must have {len(_TREC)} fields ({', '.join(_TREC)}), got {len(values)}. Mend it"
            _fail(DataError(message, path=path, line=line), errors)
