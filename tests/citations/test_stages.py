"""Where gold evidence was lost (CITATIONS C3, D05; R4, F1, F2)."""

from __future__ import annotations

from typing import Any

import pytest

from ragx.citations.stages import StageLoss
from ragx.citations.trace_records import Budget, Dropped, Packed
from tests.citations.cases import audit, gold, key, store, trace

A1, B1, E1 = "A.v1.a", "B.v1.b", "E.v1.e"
CORPUS = store(A1, B1, E1)


def loss(known: Any, cited: Any = None, **fields: Any) -> StageLoss:
    return audit(trace(cited, **fields), known, CORPUS).losses[0]


@pytest.mark.parametrize(
    ("stage", "groups", "fields"),
    [
        ("not_in_corpus", [["Q.v1.q"]], {"packed": [A1]}),
        ("retrieval_miss", [[B1]], {"packed": [A1]}),
        ("packing_miss", [[B1]], {"packed": [A1], "retrieved": [A1, B1]}),
        ("citation_miss", [[A1]], {"packed": [A1]}),
        ("ok", [[A1]], {"packed": [A1], "cited": {"c": [A1]}}),
    ],
)
def test_each_stage(stage: str, groups: Any, fields: dict[str, Any]) -> None:
    """R4, R15, F1, F2, DS7: not retrieved, retrieved and not packed, packed and not cited."""
    assert loss(gold(groups=groups), fields.pop("cited", None), **fields).stage == stage


def test_d05_budget() -> None:
    """D05, A2.1, F2: both retrieved, only A fits; the group is in C, not in S, for want of room."""
    found = loss(
        gold(groups=[[A1, B1]]),
        packed=[A1],
        retrieved=[A1, B1],
        packed_rows=(Packed(1, 1, key(A1), prior=1.0, tokens=4),),
        dropped=(Dropped(key(B1), "pack", "over_budget", 3),),
        budget=Budget("token", 10, 2, 2, 6, 2),
    )
    assert (found.stage, found.reasons) == ("packing_miss", ("over_budget",))
    assert (found.in_retrieved, found.in_packed, found.in_cited) == (True, False, False)


@pytest.mark.parametrize(
    ("visible", "stage"), [((0, 5), "visibility_miss"), ((0, 40), "citation_miss"), (None, "citation_miss")]
)
def test_f13_what_was_cut_off_was_not_seen(visible: Any, stage: str) -> None:
    """F13, A9.3: the gold span lies beyond the cut."""
    row = Packed(1, 1, key(A1), prior=1.0, visible=visible, truncated=visible is not None)
    known = gold(groups=[[A1]], spans={key(A1): (10, 20)})
    assert loss(known, packed=[A1], packed_rows=(row,)).stage == stage


def test_the_furthest_group_counts() -> None:
    """R5: a half of each of two groups is nothing; one whole group is enough."""
    known = gold(groups=[[A1, B1], [E1]])
    assert loss(known, packed=[A1]).stage == "retrieval_miss"
    assert loss(known, {"c": [E1]}, packed=[A1, E1]).stage == "ok"


def test_an_invalid_citation_is_none() -> None:
    assert loss(gold(groups=[[A1]]), {"c": [A1]}, packed=[B1], retrieved=[B1, A1]).stage == "packing_miss"


def test_claims_have_their_own_groups() -> None:
    found = audit(trace({"c": [A1], "d": [A1]}, packed=[A1, B1]), gold(groups={"c": [[A1]], "d": [[B1]]}), CORPUS)
    assert [(row.claim_id, row.stage) for row in found.losses] == [("c", "ok"), ("d", "citation_miss")]


def test_an_unanswerable_question_loses_nothing() -> None:
    assert audit(trace(packed=[A1]), gold(groups=[[A1]], answerable=False), CORPUS).losses == ()
