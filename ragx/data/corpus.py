"""Section 3: the passages z of the knowledge base, read from files people have and written as one JSON object a line.

    {"id": "peru", "title": "Peru", "text": "Lima is ..."}         minimal
    {"source": ..., "version": ..., "chunk": ..., "title": ..., "text": ..., "span": [0, 9], ...}    `Passage.to_json`
    id<TAB>text<TAB>title                                          a header, any order: DPR's psgs_w100.tsv

One decision: no value is guessed at. Text arrives letter by letter ("NA" and "null" are titles like any other), and
what does not parse is refused with its line, since a row lost in silence would shift every later passage.
"""

from __future__ import annotations

import difflib
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.data.tables import DELIMITERS, header_of, read_table
from ragx.errors import DataError
from ragx.jsonl import Row, read_rows
from ragx.records import Passage, text_sha256

DEFAULT_VERSION = "1"
DEFAULT_CHUNK = "0"
FIELDS = ("id", "source", "version", "chunk", "title", "text", "span", "sha256", "valid_from", "valid_to", "acl")
_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which fields of a row are what; the others keep their names."""

    text: str = "text"
    title: str = "title"
    id: str = "id"


def read_passages(
    path: str | Path, *, version: str | None = None, columns: Columns | None = None, quoting: str = "auto"
) -> Iterator[Passage]:
    """The passages of a .jsonl, .tsv or .csv file (each also .gz), in its order, one in memory at a time.

    `source` defaults to the id, else to the title; `chunk` to "0"; other fields are ignored unless they look like a
    misspelt one.

    Args:
        version: of the rows that name none; "1" by default.
        columns: other names for text, title and id.
        quoting: of a table, see `ragx.data.tables`.

    Raises:
        DataError: naming file, line and field: a line that cannot be read, a field of the wrong kind, two passages of
            one identity (both lines are named), or no passage at all.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    rows = _rows(path, columns or Columns(), quoting)
    return unique(path, rows, lambda row: passage_of(row, version=version or DEFAULT_VERSION))


def unique(path: Path, rows: Iterable[Row], passage: Callable[[Row], Passage]) -> Iterator[Passage]:
    """The passage of each row; what names a row's place is `path` and its line.

    Raises:
        DataError: two of one identity, or none at all.
    """
    # The hash of an identity and its line: 21 million tuples of strings would not fit. That two of those have one
    # 64-bit hash by chance has odds of 1 in 80,000, and the next process hashes otherwise.
    seen: dict[int, int] = {}
    for row in rows:
        found = passage(row)
        name = hash(found.key)
        if name in seen:
            row.fail(
                "id",
                f"identity must be unique, got {tuple(found.key)} again (first on line {seen[name]}). "
                "Give each passage its own id or chunk",
            )
        seen[name] = row.line
        yield found
    if not seen:
        raise DataError("corpus must hold at least one passage, got none. Add a line with title and text", path=path)


def write_passages(path: str | Path, passages: Iterable[Passage]) -> None:
    """Writes JSON lines with every field (gzip where `path` ends in .gz), whole or not at all.

    Raises:
        DataError: no passage.
    """
    path = Path(path)
    count = 0
    with atomic.open_file(path, "wb") as handle:
        packed = gzip.GzipFile("", "wb", fileobj=handle, mtime=0) if path.suffix == ".gz" else None
        for passage in passages:
            line = json.dumps(passage.to_json(), ensure_ascii=False) + "\n"
            (packed or handle).write(line.encode("utf-8"))
            count += 1
        if packed is not None:
            packed.close()
        if not count:
            raise DataError("passages must hold at least one passage, got none.", path=path)


def _rows(path: Path, columns: Columns, quoting: str) -> Iterator[Row]:
    name = path.name.removesuffix(".gz")
    suffix = Path(name).suffix.lower()
    if suffix in (".jsonl", ".json"):
        rows = read_rows(path)
    elif suffix in DELIMITERS:
        header = header_of(path, delimiter=DELIMITERS[suffix])
        if header and columns.text not in header:
            message = f"header must name the column `{columns.text}`, got {header}. Begin with: id, text, title"
            raise DataError(message, path=path, line=1)
        rows = read_table(path, delimiter=DELIMITERS[suffix], quoting=quoting)
    else:
        raise DataError(f"file must end in .jsonl, .tsv or .csv, also .gz, got {path.name}. Rename it", path=path)
    return (renamed(row, columns) for row in rows)


def renamed(row: Row, columns: Columns) -> Row:
    """The row with text, title and id under these names.

    Raises:
        DataError: a column that was named and is not there.
    """
    values = dict(row.values)
    for field, name in asdict(columns).items():
        if name == field:
            continue
        if name not in values:
            row.fail(
                name, f"must be given as {field}, got the fields {sorted(map(str, row.values))}. Name another column"
            )
        values.pop(field, None)
        values[field] = values.pop(name)
    return Row(row.path, row.line, values)


def passage_of(row: Row, *, version: str) -> Passage:
    """The passage of one row.

    Raises:
        DataError: as `read_passages`, of this row.
    """
    for name in set(row.values) - set(FIELDS):
        near = difflib.get_close_matches(name, [field for field in FIELDS if field not in row.values], n=1, cutoff=0.8)
        if near:
            row.fail(name, f"must be a known field, got a name like `{near[0]}`. Rename it")
    title = _text(row, "title", row.values.get("title") or "")
    text = _text(row, "text", row.require("text"))
    return Passage(
        source=_source(row, title),
        version=_label(row, "version") or version,
        chunk=_label(row, "chunk") or DEFAULT_CHUNK,
        title=title,
        text=text,
        span=_span(row),
        sha256=_sha256(row, text),
        valid_from=_date(row, "valid_from"),
        valid_to=_date(row, "valid_to"),
        acl=_acl(row),
    )


def _text(row: Row, field: str, value: Any) -> str:
    text = row.string(field, value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        row.fail(field, f"must be Unicode text, got half a surrogate pair in {text[:40]!r}. Mend the escape")
    return text


def _label(row: Row, field: str) -> str | None:
    """A part of the identity; a number counts as its digits, empty as absent."""
    value = row.values.get(field)
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _text(row, field, row.text(field, value))


def _source(row: Row, title: str) -> str:
    named = _label(row, "source") or _label(row, "id") or title
    if not named:
        row.fail("id", "must be given where source and title are empty, got none. Add an id")
    return named


def _span(row: Row) -> tuple[int, int] | None:
    value = row.values.get("span")
    if value is None or value == "":
        return None
    numbers = isinstance(value, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
    if not numbers or len(value) != 2 or not 0 <= value[0] <= value[1]:
        row.fail("span", f"must be [start, end] with 0 <= start <= end, got {value!r}. Count code points of the source")
    return value[0], value[1]


def _sha256(row: Row, text: str) -> str:
    noted = row.values.get("sha256") or ""
    actual = text_sha256(text)
    if noted and noted != actual:
        row.fail("sha256", f"must be the hash of text, {actual}, got {noted!r}. Leave it out to have it made")
    return actual


def _date(row: Row, field: str) -> str | None:
    value = row.values.get(field)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        row.fail(field, f"must be a date as 2016-12-31, 2016-12 or 2016, got {value!r}. Write it so")
    return value


def _acl(row: Row) -> tuple[str, ...]:
    value = row.values.get("acl")
    if value is None or value == "":
        return ()
    return tuple(row.text(f"acl[{i}]", name) for i, name in enumerate(row.items("acl", value)))
