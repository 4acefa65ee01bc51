"""Frozen gold data, `ragx-gold-v1`, one question a line.

    {"schema": "ragx-gold-v1", "qid": "q7", "answerable": true, "answers": ["750"],
     "groups": [[["A", "v1", "a"], ["B", "v1", "b"]]],      W: minimal sufficient groups, of the question or by claim
     "support": [{"claim_id": "q7.c1", "keys": [["A", "v1", "a"]], "label": "partial"}],
     "labeller": "two annotators", "frozen_at": "2026-01-01"}

One decision: a pair that nobody labelled is `not_judged`, never `none`. A key outside every group has no label either;
but passages that hold no group do not suffice, since the groups given are all there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragx.jsonl import Row
from ragx.records import Example, PassageKey

SCHEMA = "ragx-gold-v1"
LABELS = ("full", "partial", "none", "contradict")
QUESTION = "*"  # stands for a claim id where something holds for the whole question
_FIELDS = (
    "schema", "qid", "answerable", "answers", "groups", "support", "reason_code", "label", "evidence_spans", "labeller",
    "frozen_at", "category",
)  # fmt: skip

_WITH_LABEL = {"claim_id", "label"}
_LABEL_FIELDS = {*_WITH_LABEL, "key", "keys"}

Keys = frozenset[PassageKey]
Groups = tuple[Keys, ...]


@dataclass(frozen=True, slots=True)
class Gold:
    """What is known about one question before any system answers it.

    Attributes:
        qid: the question.
        answerable: whether the corpus suffices to answer it.
        answers: accepted answers; empty where none were written down.
        groups: per claim id, or under `*` for the question, its minimal sufficient groups of passages.
        labels: support by (claim id, passage).
        joint_labels: support by (claim id, several passages together).
        reason_code: why an unanswerable question should be left unanswered.
        label: FEVER's: SUPPORTS, REFUTES or NOT ENOUGH INFO.
        spans: where in a gold passage the support stands, code points [start, end).
        labeller, frozen_at: who wrote it and when it was frozen (ISO).
        category: for tables by category.
        question: its text; None where it is not written down.
    """

    qid: str
    answerable: bool = True
    answers: tuple[str, ...] = ()
    groups: Mapping[str, Groups] = field(default_factory=dict)
    labels: Mapping[tuple[str, PassageKey], str] = field(default_factory=dict)
    joint_labels: Mapping[tuple[str, Keys], str] = field(default_factory=dict)
    reason_code: str | None = None
    label: str | None = None
    spans: Mapping[PassageKey, tuple[int, int]] = field(default_factory=dict)
    labeller: str = ""
    frozen_at: str | None = None
    category: str = ""
    question: str | None = None

    @classmethod
    def from_example(cls, example: Example) -> Gold:
        """The gold data of a question file: each gold passage states the answer by itself."""
        groups = {QUESTION: tuple(frozenset([key]) for key in example.gold)} if example.gold else {}
        return cls(
            qid=example.id, answers=example.answers, groups=groups, category=example.kind, question=example.query
        )

    @classmethod
    def from_row(cls, row: Row) -> Gold:
        """The gold data of a line.

        Raises:
            DataError: naming file, line and field.
        """
        values = row.values
        if values.get("schema") != SCHEMA:
            row.fail("schema", f"must be {SCHEMA!r}, got {values.get('schema')!r}. Write the file in this form")
        for name in values:
            if name not in _FIELDS:
                row.fail(name, f"must be one of {list(_FIELDS)}, got an unknown field. Remove it")
        answerable = values.get("answerable", True)
        if not isinstance(answerable, bool):
            row.fail("answerable", f"must be true or false, got {answerable!r}. Write it without quotation marks")
        texts = {name: values[name] for name in ("reason_code", "label", "frozen_at") if values.get(name) is not None}
        answers = row.items("answers", values.get("answers") or [])
        labels, joint_labels = _labels(row)
        return cls(
            qid=row.text("qid", row.require("qid")),
            answerable=answerable,
            answers=tuple(row.text(f"answers[{i}]", answer) for i, answer in enumerate(answers)),
            groups=_groups(row),
            labels=labels,
            joint_labels=joint_labels,
            spans=dict(_spans(row)),
            labeller=row.string("labeller", values.get("labeller") or ""),
            category=row.string("category", values.get("category") or ""),
            **{name: row.text(name, value) for name, value in texts.items()},
        )


def _groups(row: Row) -> dict[str, Groups]:
    given: Any = row.values.get("groups") or {}
    by_claim = given if isinstance(given, dict) else {QUESTION: given}
    return {
        claim: _sets(row, "groups" if claim == QUESTION else f"groups.{claim}", by_claim[claim]) for claim in by_claim
    }


def _sets(row: Row, place: str, value: Any) -> Groups:
    return tuple(_set(row, f"{place}[{i}]", keys) for i, keys in enumerate(row.items(place, value)))


def _set(row: Row, place: str, value: Any) -> Keys:
    keys = frozenset(row.key(f"{place}[{j}]", key) for j, key in enumerate(row.items(place, value)))
    if not keys:
        row.fail(place, "must hold at least one key, got none. Leave the group out")
    return keys


def _labels(row: Row) -> tuple[dict[tuple[str, PassageKey], str], dict[tuple[str, Keys], str]]:
    """The labels of single passages, and of several together."""
    single: dict[tuple[str, PassageKey], str] = {}
    joint: dict[tuple[str, Keys], str] = {}
    for i, item in enumerate(row.items("support", row.values.get("support") or [])):
        if not isinstance(item, dict) or not _WITH_LABEL <= item.keys() <= _LABEL_FIELDS:
            row.fail(f"support[{i}]", f"must have claim_id, label and key or keys, got {item!r}. Mend this entry")
        claim_id, label = item["claim_id"], item["label"]
        if label not in LABELS:
            row.fail(f"support[{i}].label", f"must be one of {list(LABELS)}, got {label!r}. Leave unlabelled pairs out")
        if not isinstance(claim_id, str):
            row.fail(f"support[{i}].claim_id", f"must be text, got {claim_id!r}. Write a JSON string")
        known: str
        if "keys" not in item:
            known = single.setdefault((claim_id, row.key(f"support[{i}].key", item.get("key"))), label)
        else:
            keys = _set(row, f"support[{i}].keys", item["keys"])
            alone = next(iter(keys)) if len(keys) == 1 else None
            known = (
                joint.setdefault((claim_id, keys), label)
                if alone is None
                else single.setdefault((claim_id, alone), label)
            )
        if known != label:
            row.fail(f"support[{i}]", f"must agree with the label given before, got {label!r} after {known!r}")
    return single, joint


def _spans(row: Row) -> Iterator[tuple[PassageKey, tuple[int, int]]]:
    for i, item in enumerate(row.items("evidence_spans", row.values.get("evidence_spans") or [])):
        place = f"evidence_spans[{i}]"
        span = item.get("span") if isinstance(item, dict) else None
        if not isinstance(span, list) or len(span) != 2 or not all(type(x) is int for x in span):
            row.fail(place, f"must be an object with key and span [start, end), got {item!r}. Mend this entry")
        yield row.key(f"{place}.key", item.get("key")), (span[0], span[1])
