"""Section 3: the paper's tasks, each a question x with its answers y, read from where people keep them.

    open_qa               question -> answer                        exact match (3.1)
    regex_qa              question -> text that a pattern accepts   CuratedTREC (3.1)
    abstractive_qa        question -> full sentence                 MS MARCO NLG (3.2)
    question_generation   answer -> clue                            Jeopardy (3.3)
    fact_verification     claim -> one label word                   FEVER, 3-way or 2-way (3.4)

A source is a file (`ragx.data.rows`), `hub:NAME:SPLIT` (`ragx.data.hub`), or either with `@train`, `@dev` or `@test`
behind it: eight, one and one tenth of it, by a hash of the query, so that equal queries share a part. Our own form is

    {"question": "Who leads Peru?", "answers": ["Ollanta Humala"], "gold": [["peru", "2016-12", "3"]]}

with `id`, `kind`, `gold`, `gold_titles` and `as_of` where known. One decision: text is never altered. Queries and
answers reach encoder, generator and metrics letter by letter, with their markup, line breaks and Unicode form.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import regex

from ragx import atomic
from ragx.data import hub
from ragx.data.formats import FORMATS, Format, format_of
from ragx.data.rows import Element, rows_of
from ragx.errors import DataError, RagxError
from ragx.jsonl import Row
from ragx.records import Example

TASKS = ("open_qa", "regex_qa", "abstractive_qa", "question_generation", "fact_verification")
LABELS = ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "DISPUTED")  # of FEVER; the last of Climate-FEVER
BAD_ROW = ("refuse", "skip")
PARTS = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}
_SHOWN = 20  # bad rows that the log names one by one
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows become examples.

    Attributes:
        task: one of TASKS.
        labels: the target word of each label; a claim of another label is no part of the task. Empty keeps all labels.
        version: of the passages that gold ids name.
        on_bad_row: `refuse` raises at the first; `skip` leaves it out, names it in the log and counts it.
    """

    task: str = "open_qa"
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = "1"
    on_bad_row: str = "refuse"

    def __post_init__(self) -> None:
        for name, value, options in (("task", self.task, TASKS), ("on_bad_row", self.on_bad_row, BAD_ROW)):
            if value not in options:
                raise RagxError(f"{name} must be one of {', '.join(options)}, got {value!r}. Name one of them")
        unknown = sorted(set(self.labels) - set(LABELS))
        if unknown:
            raise RagxError(f"labels must be of {', '.join(LABELS)}, got {unknown}. Rename them")


_PLAIN = Reading()


def read_examples(
    source: str | Path,
    *,
    require_answers: bool = True,
    reading: Reading = _PLAIN,
    errors: list[DataError] | None = None,
) -> list[Example]:
    """The examples of a source, in its order; one without an id gets the number of its line, in a list its place.

    Args:
        source: a file, a data set on the hub, or a part of one, as above.
        require_answers: whether every row must have an answer; without, `answers` may be empty.
        reading: the task, and what happens to a bad row.
        errors: where given, the bad rows that were skipped are added here.

    Raises:
        DataError: naming file, line and field: a row that cannot be read, a blank query or answer, an id used twice,
            or a source without examples.
    """
    source, part = _located(str(source))
    skipped: list[DataError] | None = [] if reading.on_bad_row == "skip" else None
    rows = hub.hub_rows(source) if source.startswith(hub.PREFIX) else rows_of(source, errors=skipped)
    examples: list[Example] = []
    outside = 0
    for example in _examples(rows, reading, require_answers, skipped):
        if example is None:
            outside += 1
        elif part is None or _draw(example.query) in PARTS[part]:
            examples.append(example)
    _report(source, skipped or [], outside, reading)
    if errors is not None:
        errors.extend(skipped or [])
    if not examples:
        raise DataError("file must hold at least one example, got none. Add a line with query and answers", path=source)
    return examples


def write_examples(path: str | Path, examples: Iterable[Example]) -> None:
    """Writes examples as JSON lines, whole or not at all; the inverse of `read_examples`."""
    with atomic.open_file(path) as handle:
        for example in examples:
            handle.write(json.dumps(example.to_json(), ensure_ascii=False) + "\n")


def _located(source: str) -> tuple[str, str | None]:
    """The source and the part of it that is asked for; a file that is really called so is taken whole."""
    whole, mark, part = source.rpartition("@")
    return (whole, part) if mark and part in PARTS and not Path(source).exists() else (source, None)


def _draw(query: str) -> int:
    """One of ten numbers, the same for the same query on every machine."""
    return int.from_bytes(hashlib.sha256(query.encode("utf-8", "surrogatepass")).digest()[:8], "big") % 10


def _examples(
    rows: Iterable[Row], reading: Reading, require_answers: bool, skipped: list[DataError] | None
) -> Iterator[Example | None]:
    """The example of every sound row, None where the row is no part of the task."""
    layout: Format | None = None
    places: dict[str, str] = {}
    for row in rows:
        try:
            layout = layout or _layout(row)
            example = layout.read(row, reading.version)
            example = None if example is None else _of_task(row, example, reading, require_answers)
            if example is not None:
                if example.id in places:
                    _fail_twice(row, example.id, first=places[example.id])
                places[example.id] = f"line {row.line}{_as_element(row)}"
        except DataError as error:
            if skipped is None:
                raise
            skipped.append(error)
        else:
            yield example


def _fail_twice(row: Row, identity: str, *, first: str) -> NoReturn:
    found = f"{identity!r} again{_as_element(row)} (first on {first})"
    row.fail("id", f"must be unique, got {found}. Rename one, or skip bad rows to keep the first")


def _as_element(row: Row) -> str:
    """Elements of a JSON list may share a line, so they are counted."""
    return f" as element {row.place}" if isinstance(row, Element) else ""


def _layout(row: Row) -> Format:
    found = format_of(row.values)
    if found is None:
        known = ", ".join(dict.fromkeys(layout.name for layout in FORMATS))
        row.fail("query", f"must be given, got the fields {sorted(row.values)}. Known: {known}")
    return found


def _of_task(row: Row, example: Example, reading: Reading, require_answers: bool) -> Example | None:
    """What the task makes of a row."""
    if require_answers and not example.answers:
        given = row.values.get("answers", row.values.get("answer"))
        row.fail("answers", f"must hold at least one answer, got {given!r}. Training and scoring need it")
    if reading.task == "question_generation":
        if not example.answers:
            row.fail("answers", "must hold the answer that the question is generated for, got none. Give one")
        return replace(example, query=example.answers[0], answers=(example.query,))
    if reading.task == "regex_qa":
        for pattern in example.answers:
            _require_pattern(row, pattern)
    if reading.task == "fact_verification" and example.answers:
        return _labeled(row, example, reading.labels)
    return example


def _require_pattern(row: Row, pattern: str) -> None:
    try:
        regex.compile(pattern)
    except regex.error as error:
        row.fail("answers", f"must be a regular expression, got {pattern!r} ({error}). Mend the pattern")


def _labeled(row: Row, example: Example, labels: Mapping[str, str]) -> Example | None:
    label = example.answers[0].replace(" ", "_")
    if label not in LABELS:
        row.fail("label", f"must be one of {', '.join(LABELS)}, got {label!r}. Rename it")
    if not labels:
        return example
    return replace(example, answers=(labels[label],)) if label in labels else None


def _report(source: str, skipped: list[DataError], outside: int, reading: Reading) -> None:
    for error in skipped[:_SHOWN]:
        logger.warning("skipped %s", error)
    if skipped:
        logger.warning("%s: skipped %d bad rows", source, len(skipped))
    if outside:
        logger.info("%s: %d rows are no part of %s", source, outside, reading.task)
