"""What a bi-encoder is trained on (section 2.2; Karpukhin et al. 2020, section 3.2): questions and their passages.

    DPR    {"question", "positive_ctxs": [{"title", "text", "passage_id"}], "negative_ctxs", "hard_negative_ctxs"}
    ids    {"question", "positive_ctx_ids": ["12"], "hard_negative_ctx_ids": ["7"]}       passages in another file
    ours   {"question", "gold": [["peru", "2016-12", "3"]]}                               the same

One array, as DPR's files are, or JSON lines. Questions and passages arrive letter by letter. A question is skipped, and
counted, where no passage answers it; every other row that cannot be used is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragx.data.json_objects import read_objects
from ragx.errors import DataError
from ragx.jsonl import Row
from ragx.records import Example, Passage, PassageKey

_logger = logging.getLogger(__name__)
_KINDS = ("positive", "hard_negative", "negative")
_POSITIVE = ("positive_ctxs", "positive_ctx_ids", "positive_ctx_id", "gold")


@dataclass(frozen=True, slots=True)
class Context:
    """A passage to train on.

    Attributes:
        title, text: what the encoder reads.
        id: in its corpus; empty where the file gives none.
    """

    title: str
    text: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class RetrieverExample:
    """A question with the passages that answer it and some that do not.

    Attributes:
        id: of the question, for messages.
        query: the question, letter by letter.
        positives: one or more; any of them is a gold passage of the question.
        hard_negatives: found for the question by another retriever, without the answer.
        negatives: others.
    """

    id: str
    query: str
    positives: tuple[Context, ...]
    hard_negatives: tuple[Context, ...] = ()
    negatives: tuple[Context, ...] = ()


def read_retriever_examples(
    path: str | Path, *, passages: Iterable[Passage] | None = None, most_negatives: int = 100
) -> list[RetrieverExample]:
    """The questions of a file that have a passage, in its order.

    Args:
        passages: the corpus that ids and gold keys are looked up in; read once, in order.
        most_negatives: of each kind that are kept of a question, the first ones.

    Raises:
        DataError: naming file, line and field: a field of the wrong kind, an id that is not in `passages`, ids without
            `passages`, or no question that has a passage.
        FileNotFoundError: there is no such file.
    """
    found = [_Asked.of(row, most_negatives) for row in read_objects(path)]
    known = _look_up({ref.key for asked in found for ref in asked.references()}, passages)
    return _usable([asked.example(known) for asked in found], str(path))


def from_examples(examples: Iterable[Example], passages: Iterable[Passage]) -> list[RetrieverExample]:
    """The questions that have a gold passage, with those of `passages`.

    Raises:
        DataError: a gold key that is not in `passages`, or no question that has one.
    """
    examples = list(examples)
    known = _look_up({key for example in examples for key in example.gold}, passages)
    missing = next((key for example in examples for key in example.gold if key not in known), None)
    if missing is not None:
        raise DataError(
            f"gold must be in the passages, got {tuple(missing)!r}. Give the edition of it", path="examples"
        )
    found = [RetrieverExample(e.id, e.query, tuple(known[key] for key in e.gold)) for e in examples]
    return _usable(found, "examples")


def _usable(examples: list[RetrieverExample], place: str) -> list[RetrieverExample]:
    usable = [example for example in examples if example.positives]
    if not usable:
        raise DataError("file must hold a question with a passage that answers it, got none.", path=place)
    if len(usable) < len(examples):
        lost = len(examples) - len(usable)
        _logger.warning("%s: skipped %d of %d questions without a passage", place, lost, len(examples))
    return usable


@dataclass(frozen=True, slots=True)
class _Reference:
    """A passage named by id (a string) or by key, and where it is named."""

    row: Row
    field: str
    key: str | PassageKey


@dataclass(frozen=True, slots=True)
class _Asked:
    """A row before its passages are looked up: by kind, in the order of `_KINDS`."""

    id: str
    query: str
    parts: tuple[list[Context | _Reference], ...]

    @classmethod
    def of(cls, row: Row, most: int) -> _Asked:
        """Raises DataError for a field of the wrong kind."""
        field = next((name for name in ("question", "query") if name in row.values), None)
        if field is None:
            row.fail("question", f"must be given, got the fields {sorted(row.values)}. Add `question`")
        query, identity = row.text(field, row.values[field]), row.values.get("id")
        parts: list[list[Context | _Reference]] = [[*_contexts(row, kind), *_ids(row, kind)] for kind in _KINDS]
        gold = row.items("gold", row.values.get("gold") or [])
        parts[0] += [_Reference(row, f"gold[{i}]", row.key(f"gold[{i}]", key)) for i, key in enumerate(gold)]
        if not any(name in row.values for name in _POSITIVE):
            got = f"the fields {sorted(row.values)}"
            row.fail("positive_ctxs", f"must be given, got {got}. Add it, positive_ctx_ids or gold")
        return cls(
            str(row.line) if identity is None else str(identity), query, (parts[0], *(p[:most] for p in parts[1:]))
        )

    def references(self) -> list[_Reference]:
        """What is to be looked up."""
        return [part for parts in self.parts for part in parts if isinstance(part, _Reference)]

    def example(self, known: Mapping[str | PassageKey, Context]) -> RetrieverExample:
        """With its passages; raises DataError where one is not `known`."""
        found = [tuple(_resolved(part, known) for part in parts) for parts in self.parts]
        return RetrieverExample(self.id, self.query, *found)


def _contexts(row: Row, kind: str) -> list[Context]:
    name = f"{kind}_ctxs"
    contexts = []
    for i, value in enumerate(row.items(name, row.values.get(name) or [])):
        field = f"{name}[{i}]"
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            row.fail(field, f"must be an object with title and text, got {str(value)[:60]!r}. Mend it")
        title = row.string(f"{field}.title", value.get("title") or "")
        identity = next((value[key] for key in ("passage_id", "psg_id", "id") if value.get(key) is not None), "")
        contexts.append(Context(title, value["text"], str(identity)))
    return contexts


def _ids(row: Row, kind: str) -> list[_Reference]:
    name, single = f"{kind}_ctx_ids", f"{kind}_ctx_id"
    values: list[Any] = row.items(name, row.values.get(name) or [])
    named = [(f"{name}[{i}]", value) for i, value in enumerate(values)]
    if row.values.get(single) is not None:
        named.insert(0, (single, row.values[single]))
    return [_Reference(row, field, _id(row, field, value)) for field, value in named]


def _id(row: Row, field: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return row.text(field, value)


def _look_up(wanted: set[str | PassageKey], passages: Iterable[Passage] | None) -> dict[str | PassageKey, Context]:
    known: dict[str | PassageKey, Context] = {}
    if wanted and passages is not None:
        for passage in passages:
            for name in (passage.source, passage.key):
                if name in wanted and name not in known:  # of chunks with one id the first
                    known[name] = Context(passage.title, passage.text, "|".join(passage.key))
    return known


def _resolved(part: Context | _Reference, known: Mapping[str | PassageKey, Context]) -> Context:
    if isinstance(part, Context):
        return part
    if part.key not in known:
        name = tuple(part.key) if isinstance(part.key, PassageKey) else part.key
        part.row.fail(part.field, f"must be in the passages, got {name!r}. Give the file of passages it is from")
    return known[part.key]
