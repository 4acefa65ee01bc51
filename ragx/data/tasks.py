"""Section 3: questions x with their answers y, in the form people keep them: one JSON object a line.

    {"question": "Who leads Peru?", "answers": ["Ollanta Humala"], "gold": [["peru", "2016-12", "3"]]}

`query` or `question`, `answers` or `answer`; `id`, `kind`, `gold` and `as_of` may be absent, other fields are ignored.
One decision: a query is never altered. It reaches encoder and generator letter by letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.errors import DataError
from ragx.jsonl import Row, read_rows
from ragx.records import Example


def read_examples(path: str | Path, *, require_answers: bool = True) -> list[Example]:
    """The examples of a JSON lines file, in its order; an example without `id` gets its line number as id.

    Args:
        path: the file; `.gz` is read as well.
        require_answers: whether every line must have an answer; without, `answers` may be empty.

    Raises:
        DataError: naming file, line and field: a line that cannot be read, a blank query or answer, an id used twice,
            or a file without examples.
    """
    examples: list[Example] = []
    lines: dict[str, int] = {}
    for row in read_rows(path):
        example = _example(row, require_answers=require_answers)
        if example.id in lines:
            row.fail("id", f"must be unique, got {example.id!r} again (first on line {lines[example.id]}). Rename one")
        lines[example.id] = row.line
        examples.append(example)
    if not examples:
        raise DataError("file must hold at least one example, got none. Add a line with query and answers", path=path)
    return examples


def write_examples(path: str | Path, examples: Iterable[Example]) -> None:
    """Writes examples as JSON lines, whole or not at all; the inverse of `read_examples`."""
    with atomic.open_file(path) as handle:
        for example in examples:
            handle.write(json.dumps(example.to_json(), ensure_ascii=False) + "\n")


def _example(row: Row, *, require_answers: bool) -> Example:
    field, query = _either(row, "query", "question")
    if query is None:
        row.fail("query", f"must be given, got the fields {sorted(row.values)}. Add `query` or `question`")
    identity = row.values.get("id")
    if isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    as_of = row.values.get("as_of")
    gold = row.items("gold", row.values.get("gold") or [])
    return Example(
        id=str(row.line) if identity is None else row.text("id", identity),
        query=row.text(field, query),
        answers=_answers(row, require=require_answers),
        kind=row.string("kind", row.values.get("kind") or ""),
        gold=tuple(row.key(f"gold[{i}]", key) for i, key in enumerate(gold)),
        as_of=None if as_of is None else row.text("as_of", as_of),
    )


def _answers(row: Row, *, require: bool) -> tuple[str, ...]:
    field, value = _either(row, "answers", "answer")
    answers = [] if value is None else [value] if isinstance(value, str) else row.items(field, value)
    if require and not answers:
        row.fail(field, f"must hold at least one answer, got {value!r}. Training and scoring need it")
    return tuple(row.text(f"{field}[{i}]" if isinstance(value, list) else field, a) for i, a in enumerate(answers))


def _either(row: Row, name: str, other: str) -> tuple[str, Any]:
    """The field that is given, with its value; both, saying different things, is an error."""
    first, second = row.values.get(name), row.values.get(other)
    if first is not None and second is not None and first != second:
        row.fail(other, f"must equal `{name}` where both are given, got {second!r} beside {first!r}. Remove one")
    return (name, first) if first is not None or second is None else (other, second)
