"""JSON lines, read so that whatever is wrong is named as file, line and field.

One decision: a file is read as bytes and split at line feeds only, so that a line number here is the line number an
editor shows, whatever separators the texts themselves contain.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from ragx.errors import DataError
from ragx.records import PassageKey

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One JSON object with its place; the readers below refuse a value by naming that place.

    Attributes:
        path, line: where it stands; lines count from 1.
        values: the object.
    """

    path: Path
    line: int
    values: Mapping[str, Any]

    def fail(self, field: str, message: str) -> NoReturn:
        """Raises the DataError of a field."""
        raise DataError(message, path=self.path, line=self.line, field=field)

    def require(self, field: str) -> Any:
        """The value of a field that must be there."""
        if field not in self.values:
            self.fail(field, f"must be given, got the fields {sorted(self.values)}. Add it to this line")
        return self.values[field]

    def text(self, field: str, value: Any) -> str:
        """`value` as text that is not blank, letter by letter."""
        if not isinstance(value, str) or not value.strip():
            self.fail(field, f"must be text that is not blank, got {value!r}. Write a JSON string")
        return value

    def string(self, field: str, value: Any) -> str:
        """`value` as text that may be empty."""
        if not isinstance(value, str):
            self.fail(field, f"must be text, got {value!r}. Write a JSON string")
        return value

    def number(self, field: str, value: Any) -> float:
        """`value` as a finite number (a JSON true is none)."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.fail(field, f"must be a finite number, got {value!r}. Write the file again with `generate`")
        return float(value)

    def key(self, field: str, value: Any) -> PassageKey:
        """`value` as the identity of a passage."""
        if isinstance(value, list) and len(value) == 3:
            source, version, chunk = value
            if isinstance(source, str) and isinstance(version, str) and isinstance(chunk, str):
                if source and version and chunk:
                    return PassageKey(source, version, chunk)
        self.fail(field, f"must be [source, version, chunk], three texts, got {value!r}. Give all three")

    def items(self, field: str, value: Any) -> list[Any]:
        """`value` as a list."""
        if not isinstance(value, list):
            self.fail(field, f"must be a list, got {value!r}. Put it in brackets")
        return value


def read_rows(path: str | Path, *, torn_end: bool = False, errors: list[DataError] | None = None) -> Iterator[Row]:
    """The objects of a JSON lines file (`.gz` as well) in order; blank lines are skipped.

    Args:
        torn_end: whether a last line without its line feed is dropped, as a kill leaves it, and not read.
        errors: where given, a line that is no JSON object is added here and skipped.

    Raises:
        DataError: a line that is not UTF-8, not JSON or not an object, or a compressed file that ends early.
        FileNotFoundError: there is no such file.
    """
    for line, raw in read_lines(path, torn_end=torn_end):
        try:
            row = row_of(raw, path=path, line=line)
        except DataError as error:
            if errors is None:
                raise
            errors.append(error)
            continue
        yield row


def read_lines(path: str | Path, *, torn_end: bool = False) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, each with its number, from 1; for `row_of`, here or in another process.

    Raises:
        DataError: a compressed file that ends early.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    with _open(path) as handle:
        line = 0
        try:
            for line, raw in enumerate(handle, start=1):
                if torn_end and not raw.endswith(b"\n"):
                    _logger.warning("%s:%d: dropped a last line of %d bytes without its end", path, line, len(raw))
                    return
                text = raw.removeprefix(b"\xef\xbb\xbf") if line == 1 else raw
                if text.strip():
                    yield line, text
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            message = f"file must be whole, got an archive that breaks off ({error}). Copy it again"
            raise DataError(message, path=path, line=line + 1) from error


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def row_of(raw: bytes, *, path: str | Path, line: int) -> Row:
    """The object of one line.

    Raises:
        DataError: a line that is not UTF-8, not JSON or not an object.
    """
    path = path if isinstance(path, Path) else Path(path)
    return Row(path, line, _parse(raw, path, line))


def _parse(raw: bytes, path: Path, line: int) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8").rstrip())  # a column is then one of this line
    except UnicodeDecodeError as error:
        raise DataError(
            f"line must be UTF-8, got {error.reason} at byte {error.start}. Convert the file", path=path, line=line
        ) from error
    except (json.JSONDecodeError, RecursionError) as error:
        reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else "deep nesting"
        raise DataError(
            f"line must be one JSON object, got {reason}. Mend or remove the line", path=path, line=line
        ) from error
    if not isinstance(value, dict):
        raise DataError(
            f"line must be one JSON object, got {type(value).__name__}. Mend or remove the line", path=path, line=line
        )
    return value
