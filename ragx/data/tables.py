"""Rows of .tsv and .csv files, each with its line, whether fields are quoted as spreadsheet programs do or not at all.

    csv    a field with a delimiter, a line break or a quotation mark at its start stands in quotation marks, those
           inside doubled (DPR's psgs_w100.tsv); a mark further on inside an unquoted field is a letter
    none   a field is what stands between two tabs, and every quotation mark in it is a letter
    auto   csv; a .tsv that cannot be read so is `none` where nothing in it speaks for csv

What speaks for csv: a line without the header's number of fields, doubled marks in a field that marks enclose, or a
column most of whose fields they enclose. Then the row that is not well-formed is refused: its marks would stay in the
text, or a row be lost.
"""

from __future__ import annotations

import csv
import gzip
import logging
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from ragx.errors import ConfigError, DataError
from ragx.jsonl import Row

QUOTINGS = ("auto", "csv", "none")
DELIMITERS = {".tsv": "\t", ".csv": ","}
_logger = logging.getLogger(__name__)


def read_table(path: str | Path, *, delimiter: str, quoting: str = "auto") -> Iterator[Row]:
    """The rows under the header of a delimited file (`.gz` as well), in order; blank lines are skipped.

    Args:
        delimiter: one character.
        quoting: see the module.

    Raises:
        ConfigError: an unknown `quoting`.
        DataError: naming file and line: a row that is not well-formed or has another number of fields than the header,
            a name twice in the header, a line that is not UTF-8, an archive that breaks off.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if quoting not in QUOTINGS:
        raise ConfigError([f"quoting must be one of {', '.join(QUOTINGS)}, got {quoting!r}."])
    if quoting == "auto":
        quoting = _settled(path, delimiter)
    header: list[str] | None = None
    for line, values in _records(path, delimiter, quoting):
        if header is None:
            header = values
            if len(set(header)) != len(header):
                raise DataError(f"header must name each column once, got {header}. Rename one", path=path, line=line)
            continue
        if len(values) != len(header):
            message = f"row must have {len(header)} fields as the header, got {len(values)}. Quote such fields"
            raise DataError(message, path=path, line=line)
        yield Row(path, line, dict(zip(header, values, strict=True)))


def header_of(path: str | Path, *, delimiter: str) -> list[str]:
    """The names of the columns; empty for an empty file."""
    return next((values for _, values in _records(Path(path), delimiter, "csv")), [])


def _records(path: Path, delimiter: str, quoting: str) -> Iterator[tuple[int, list[str]]]:
    with _open(path) as handle:
        lines = _decoded_lines(handle, path)
        if quoting == "none":
            for number, text in enumerate(lines, start=1):
                if text.strip("\r\n"):
                    yield number, text.rstrip("\n").removesuffix("\r").split(delimiter)
            return
        csv.field_size_limit(sys.maxsize)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        start = 1
        while True:
            try:
                values = next(reader, None)
            except csv.Error as error:
                message = (
                    f"row must be well-formed, got: {error}. Double the quotation marks inside a field, "
                    "or read the file with quoting=none where it quotes nothing"
                )
                raise DataError(message, path=path, line=start) from error
            if values is None:
                return
            if values:
                yield start, values
            start = reader.line_num + 1


def _settled(path: Path, delimiter: str) -> str:
    if delimiter != "\t":  # text is full of commas
        return "csv"
    try:
        for _ in _records(path, delimiter, "csv"):
            pass
    except DataError as error:
        if not isinstance(error.__cause__, csv.Error) or _speaks_for_csv(path, delimiter):
            raise
        _logger.info("%s quotes nothing: quotation marks in it are letters", path)
        return "none"
    return "csv"


def _speaks_for_csv(path: Path, delimiter: str) -> bool:
    width, rows, enclosed = 0, -1, Counter[int]()
    for _, fields in _records(path, delimiter, "none"):
        width = width or len(fields)
        if len(fields) != width:
            return True
        rows += 1  # the header is none
        for column, field in enumerate(fields):
            if len(field) > 1 and field[0] == field[-1] == '"':
                enclosed[column] += 1
                inside = field[1:-1]
                if '""' in inside and '"' not in inside.replace('""', ""):
                    return True
    return any(count > rows / 2 for count in enclosed.values())


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _decoded_lines(handle: IO[bytes], path: Path) -> Iterator[str]:
    """The lines of a file as text, without a byte order mark."""
    line = 0
    try:
        for line, raw in enumerate(handle, start=1):
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                message = f"line must be UTF-8, got {error.reason} at byte {error.start}. Convert the file"
                raise DataError(message, path=path, line=line) from error
            yield text.removeprefix("\ufeff") if line == 1 else text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        message = f"file must be whole, got an archive that breaks off ({error}). Copy it again"
        raise DataError(message, path=path, line=line + 1) from error
