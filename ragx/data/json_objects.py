"""The objects of a JSON file, one in memory at a time: an array over the whole file, as DPR writes, or JSON lines.

DPR's `biencoder-nq-train.json` is one array of several gigabytes, which `json.load` would hold at once.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from ragx.errors import DataError
from ragx.jsonl import Row, read_rows

_CHUNK = 1 << 20  # bytes that are read at a time
_MOST = 1 << 28  # of one object: beyond it a bracket is missing somewhere
_BLANK = " \t\r\n"


def read_objects(path: str | Path) -> Iterator[Row]:
    """The objects of a .json or .jsonl file (`.gz` as well) in order, each with the line it begins on.

    Raises:
        DataError: content that is not UTF-8 or not JSON, an element that is no object, an archive that breaks off.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    with _open(path) as handle:
        start = next((text for text in _chunks(handle, path) if text.strip()), "")
    return _Array(path).rows() if start.lstrip()[:1] == "[" else read_rows(path)


class _Array:
    """Reads an array element by element; `line` is that of the position in the buffer."""

    def __init__(self, path: Path) -> None:
        self.path, self.line, self.buffer, self.position, self.ended = path, 1, "", 0, False
        self._decoder = json.JSONDecoder()

    def rows(self) -> Iterator[Row]:
        with _open(self.path) as raw:
            self._text = _chunks(raw, self.path)
            self._take("[", "array must open with [")
            if self._next() == "]":
                return
            while True:
                yield self._element()
                if self._take(",]", "elements must be separated by commas") == "]":
                    return

    def _element(self) -> Row:
        self._next()
        wanted, reason = _CHUNK, "nothing"
        while True:
            try:
                value, end = self._decoder.raw_decode(self.buffer, self.position)
                break
            except (json.JSONDecodeError, RecursionError) as error:
                reason = error.msg if isinstance(error, json.JSONDecodeError) else "deep nesting"
                if self.ended or wanted > _MOST or isinstance(error, RecursionError):
                    self._fail(f"element must be JSON, got: {reason}. Mend the file or copy it again, whole")
                self._read(wanted)
                wanted *= 2
        row = Row(self.path, self.line, value if isinstance(value, dict) else {})
        if not isinstance(value, dict):
            self._fail(f"element must be an object, got {type(value).__name__}. Mend the file")
        self._advance(end)
        return row

    def _take(self, allowed: str, condition: str) -> str:
        found = self._next()
        if not found or found not in allowed:
            self._fail(f"{condition}, got {found or 'the end of the file'!r}. Mend the file or copy it again, whole")
        self._advance(self.position + 1)
        return found

    def _next(self) -> str:
        """The next character that is not blank, not taken; empty at the end."""
        while True:
            end = self.position
            while end < len(self.buffer) and self.buffer[end] in _BLANK:
                end += 1
            self._advance(end)
            if end < len(self.buffer) or self.ended:
                return self.buffer[end : end + 1]
            self._read(_CHUNK)

    def _advance(self, end: int) -> None:
        self.line += self.buffer.count("\n", self.position, end)
        self.position = end

    def _read(self, wanted: int) -> None:
        parts, got = [self.buffer[self.position :]], 0
        while got < wanted:
            text = next(self._text, None)
            if text is None:
                self.ended = True
                break
            parts.append(text)
            got += len(text)
        self.buffer, self.position = "".join(parts), 0

    def _fail(self, message: str) -> None:
        raise DataError(message, path=self.path, line=self.line)


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _chunks(handle: IO[bytes], path: Path) -> Iterator[str]:
    """The text of a file in parts, whether it has lines or not; a letter is never cut in two."""
    decoder, line = codecs.getincrementaldecoder("utf-8-sig")(), 1
    try:
        while True:
            block = handle.read(_CHUNK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += error.object.count(b"\n", 0, error.start)
                message = f"line must be UTF-8, got {error.reason}. Convert the file"
                raise DataError(message, path=path, line=line) from error
            if not block:
                return
            line += text.count("\n")
            yield text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        message = f"file must be whole, got an archive that breaks off ({error}). Copy it again"
        raise DataError(message, path=path, line=line) from error
