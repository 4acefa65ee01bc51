"""Frozen gold data (CITATIONS C3): read with every field checked; from a question file as well."""

from __future__ import annotations

from typing import Any

import pytest

from ragx.citations.gold import QUESTION, Gold
from ragx.errors import DataError
from ragx.jsonl import Row
from ragx.records import Example
from tests.citations.cases import key

A, B = ["A", "v1", "a"], ["B", "v1", "b"]
ROW: dict[str, Any] = {
    "schema": "ragx-gold-v1",
    "qid": "q7",
    "answerable": True,
    "answers": ["750"],
    "groups": {"q7.c1": [[A, B]]},
    "support": [
        {"claim_id": "q7.c1", "key": A, "label": "partial"},
        {"claim_id": "q7.c1", "keys": [A, B], "label": "full"},
    ],
    "evidence_spans": [{"key": A, "span": [53, 65]}],
    "labeller": "two annotators",
    "frozen_at": "2026-01-01",
}


def read(**changes: Any) -> Gold:
    return Gold.from_row(Row("gold.jsonl", 3, {**ROW, **changes}))  # type: ignore[arg-type]


def test_a_line() -> None:
    """DS9, DS10, R10: groups as sets of sets, labels by claim and passage, who froze them and when."""
    gold = read()
    assert gold.groups == {"q7.c1": (frozenset([key("A.v1.a"), key("B.v1.b")]),)}
    assert gold.labels == {("q7.c1", key("A.v1.a")): "partial"}
    assert gold.joint_labels == {("q7.c1", frozenset([key("A.v1.a"), key("B.v1.b")])): "full"}
    assert (gold.spans, gold.labeller) == ({key("A.v1.a"): (53, 65)}, "two annotators")


def test_groups_of_the_question() -> None:
    assert read(groups=[[A], [B]]).groups == {QUESTION: (frozenset([key("A.v1.a")]), frozenset([key("B.v1.b")]))}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "v2"}, "schema: must be 'ragx-gold-v1', got 'v2'"),
        ({"answerable": "yes"}, "answerable: must be true or false"),
        ({"anwsers": []}, "anwsers: must be one of .* unknown field"),
        ({"groups": [[]]}, r"groups\[0\]: must hold at least one key"),
        ({"groups": [[["A"]]]}, r"groups\[0\]\[0\]: must be \[source, version, chunk\]"),
        ({"support": [{"claim_id": "c", "key": A, "label": "yes"}]}, r"support\[0\].label: must be one of"),
        ({"support": [{"key": A, "label": "full"}]}, r"support\[0\]: must have claim_id, label and key"),
        ({"support": [*ROW["support"], {**ROW["support"][0], "label": "none"}]}, r"support\[2\]: must agree .*'none'"),
        ({"evidence_spans": [{"key": A}]}, r"evidence_spans\[0\]: must be an object with key and span"),
        ({"qid": ""}, "qid: must be text that is not blank"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"gold.jsonl:3: {message}"):
        read(**changes)


def test_a_question_file_is_gold_too() -> None:
    """Each gold passage states the answer by itself."""
    gold = Gold.from_example(Example("q", "Who?", ("X",), kind="leader", gold=(key("A.v1.a"), key("B.v1.b"))))
    assert [len(group) for group in gold.groups[QUESTION]] == [1, 1]
    assert (gold.answers, gold.category) == (("X",), "leader")
