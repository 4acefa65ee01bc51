"""Passages that a user supplies for each question, in place of a search: one JSON object a line.

    {"query": "Who leads Peru?", "passages": ["Humala leads.", {"title": "Peru", "text": "..."}], "doc_scores": [2, 1]}

`query` or `question`; a passage is a text alone or an object as `ragx.data.corpus` reads it. Without `doc_scores`, the
logits of p(z|x), the passages of that question count alike. One decision: questions are found again by their exact
text, so a question stands in the file once, and a passage means the same text wherever it appears.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ragx.data.corpus import DEFAULT_VERSION, passage_of
from ragx.errors import DataError
from ragx.jsonl import Row, read_rows
from ragx.records import GivenPassages, Passage, PassageKey


@dataclass(frozen=True)
class _PassageRow(Row):
    """A passage inside a line: what is wrong with it is named by its position there."""

    place: str = ""

    def fail(self, field: str, message: str) -> NoReturn:
        """Raises the DataError of a field of this passage."""
        super().fail(f"{self.place}.{field}", message)


def read_given(path: str | Path) -> dict[str, GivenPassages]:
    """What each question of a JSON lines file (also .gz) is answered from, by the question.

    Raises:
        DataError: naming file, line and field: a line that cannot be read, no passage, a passage or a question twice,
            one identity for two texts, scores that are not one finite number a passage, or a file without a question.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    found: dict[str, GivenPassages] = {}
    lines: dict[str, int] = {}
    texts: dict[PassageKey, tuple[Passage, int]] = {}
    for row in read_rows(path):
        field, query = _query(row)
        if query in found:
            row.fail(field, f"must be asked once in the file, got it again (first on line {lines[query]}). Remove one")
        passages = _passages(row, seen=texts)
        found[query] = GivenPassages(passages, _scores(row, len(passages)))
        lines[query] = row.line
    if not found:
        raise DataError("file must hold at least one question, got none. Add a line with its passages", path=path)
    return found


def _query(row: Row) -> tuple[str, str]:
    field = "question" if "query" not in row.values and "question" in row.values else "query"
    return field, row.text(field, row.require(field))


def _passages(row: Row, *, seen: dict[PassageKey, tuple[Passage, int]]) -> tuple[Passage, ...]:
    values = row.items("passages", row.require("passages"))
    if not values:
        row.fail("passages", "must hold at least one passage, got []. Leave the question out or give it one")
    passages: dict[PassageKey, Passage] = {}
    for position, value in enumerate(values):
        place = f"passages[{position}]"
        passage = _passage(row, place, value, position)
        if passage.key in passages:
            row.fail(place, f"must be another passage, got {tuple(passage.key)} again. Give each one its own id")
        first, line = seen.setdefault(passage.key, (passage, row.line))
        if (first.title, first.text) != (passage.title, passage.text):
            got = f"{tuple(passage.key)} for another text than on line {line}"
            row.fail(place, f"must have an identity of its own, got {got}. Give it another id or chunk")
        passages[passage.key] = first
    return tuple(passages.values())


def _passage(row: Row, place: str, value: Any, position: int) -> Passage:
    """A passage without a name of its own is called by its line and place."""
    if isinstance(value, str):
        value = {"text": row.text(place, value)}
    if not isinstance(value, Mapping):
        row.fail(place, f"must be a text or an object with text, got {value!r}. Write it as in a passages file")
    if not any(value.get(name) for name in ("source", "id", "title")):
        value = {**value, "source": f"line {row.line}", "chunk": str(position)}
    return passage_of(_PassageRow(row.path, row.line, value, place=place), version=DEFAULT_VERSION)


def _scores(row: Row, count: int) -> tuple[float, ...] | None:
    if row.values.get("doc_scores") is None:
        return None
    values = row.items("doc_scores", row.values["doc_scores"])
    if len(values) != count:
        row.fail("doc_scores", f"must be one a passage ({count}), got {len(values)}. Leave them out for a flat prior")
    for position, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            row.fail(f"doc_scores[{position}]", f"must be a finite number, got {value!r}. Larger is better")
    return tuple(map(float, values))
