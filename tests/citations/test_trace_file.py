"""ragx-trace-v1 on disk: the round trip, and every way in which a line is refused (CITATIONS C3, C7, D40)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragx.citations.trace_file import read_traces, write_traces
from ragx.citations.trace_records import (
    Answer,
    Budget,
    Candidate,
    Citation,
    Claim,
    Dropped,
    Packed,
    TokenScores,
    Trace,
)
from ragx.errors import DataError, RagxError
from tests.citations.cases import key

A, B = key("A.v1.a"), key("B.v1.b")
FULL = Trace(
    qid="q7",
    question="What is the limit?",
    as_of="2026-09-14",
    category="multi",
    model={"kind": "rag_token", "ckpt": "sha256:00", "index_id": "wiki-2018-12"},
    decode={"method": "beam"},
    retrieved=(Candidate(1, A, 12.5), Candidate(2, B, 11.0)),
    packed=(Packed(1, 1, A, prior=1.0, tokens=4, visible=(0, 412), sha256="00"),),
    dropped=(Dropped(B, "pack", "over_budget", 3),),
    budget=Budget("token", 10, 2, 2, 6, 2),
    extra_retrieval=(key("Z.v1.z"),),
    answer=Answer("answered", "It is 750.", None),
    claims=(Claim("q7.c1", "It is 750.", (0, 10)),),
    citations=(
        Citation("q7.c1", A, 1, "posterior", 0.87, 1.13, 0.6, (10, 64), None),
        Citation("q7.c1", None, 9, "inline", note="out_of_range"),
        Citation("q7.c1", ["A", "v1"], origin="external"),
    ),
    attribution=TokenScores("complete", (0.0,), ((-0.1, -0.2),), ((0, 2), (3, 9))),
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes FULL with changes at dotted places."""

    def write(**changes: Any) -> Path:
        row = json.loads(json.dumps(FULL.to_json()))
        for place, value in changes.items():
            target = row
            *steps, last = place.split("__")
            for step in steps:
                target = target[int(step)] if step.isdigit() else target[step]
            if value is ...:
                del target[last]
            else:
                target[int(last) if last.isdigit() else last] = value
        path = tmp_path / "traces.jsonl"
        path.write_text("\n" + json.dumps(row) + "\n")
        return path

    return write


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    """DS8, R15, A4.2: every stage with ids, versions, scores, choices and claimed citations, at claim level."""
    path = tmp_path / "traces.jsonl"
    write_traces(path, [FULL, Trace("q8", "And?", Answer("abstained", "", "insufficient_evidence"))])
    assert next(read_traces(path)) == FULL
    assert [trace.answer.reason_code for trace in read_traces(path)] == [None, "insufficient_evidence"]


@pytest.mark.parametrize(
    ("changes", "field", "got"),
    [
        ({"schema": "ragx-trace-v0"}, "schema", "must be 'ragx-trace-v1', got 'ragx-trace-v0'"),
        ({"question": ...}, "question", "must be given"),
        ({"quesion": "x"}, "quesion", "got an unknown field"),
        ({"question": " "}, "question", "must be text that is not blank"),
        ({"as_of": "last year"}, "as_of", "must be a date"),
        ({"C__1__score": float("nan")}, r"C\[1\].score", "must be a finite number, got nan"),
        ({"S__0__prior": float("nan")}, r"S\[0\].prior", "must be a finite number, got nan"),
        ({"S__0__prior": 0.8}, "S.prior", "must sum to 1 over all of S, got 1 of 1 with sum 0.8"),
        ({"S__0__key": ["A", "v1"]}, r"S\[0\].key", "three texts"),
        ({"S__0__pos": True}, r"S\[0\].pos", "must be a whole number >= 1, got True"),
        ({"S__0__visible": [5, 3]}, r"S\[0\].visible", "0 <= start <= end"),
        ({"claims__0__span": [0, 11]}, r"claims\[0\].span", "must lie within the 10 code points of the answer"),
        ({"citations__0__claim_id": "q7.c9"}, r"citations\[0\].claim_id", r"must be one of \['q7.c1'\]"),
        ({"citations__0__origin": "guess"}, r"citations\[0\].origin", "must be one of"),
        ({"attribution__logp": [[-0.1]]}, "attribution", "must have 1 rows of 2 tokens"),
        ({"attribution__logp__0__1": 0.5}, r"attribution.logp\[0\]\[1\]", "must be a log-probability"),
        ({"answer__status": "gave up"}, "answer.status", "must be one of"),
        ({"claims": {}}, "claims", "must be a list"),
        ({"budget__unit": ...}, "budget.unit", "must be given"),
        ({"claims__0__worthy": "yes"}, r"claims\[0\].worthy", "must be true or false"),
    ],
)
def test_d40_what_is_refused_is_named(write: Callable[..., Path], changes: Any, field: str, got: str) -> None:
    """D40, C7: file, line and field."""
    with pytest.raises(DataError, match=rf"traces.jsonl:2: {field}: .*{got}"):
        list(read_traces(write(**changes)))


def test_d40_ids_are_unique(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    write_traces(path, [FULL, FULL])
    with pytest.raises(DataError, match=r"traces.jsonl:2: qid: must be unique, got 'q7' again \(first on line 1\)"):
        list(read_traces(path))


def test_a_claim_id_stands_once_in_a_file(tmp_path: Path) -> None:
    """A3.3b: claims are kept apart by id, never by their text."""
    path = tmp_path / "traces.jsonl"
    other = Trace("q8", "And?", Answer(text="It is 750."), claims=FULL.claims)
    write_traces(path, [FULL, other])
    with pytest.raises(DataError, match="traces.jsonl:2: claims: must be unique, got 'q7.c1' again"):
        list(read_traces(path))


def test_d40_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    write_traces(path, [FULL])
    path.write_text(path.read_text() + '{"schema": "ragx-tr')
    with pytest.raises(DataError, match="traces.jsonl:2: line must be one JSON object"):
        list(read_traces(path))
    errors: list[DataError] = []
    assert list(read_traces(path, errors=errors)) == [FULL]
    assert [error.line for error in errors] == [2]


def test_nothing_that_is_not_a_number_is_written(tmp_path: Path) -> None:
    bad = Trace("q", "x?", Answer(text=""), retrieved=(Candidate(1, A, float("inf")),))
    with pytest.raises(RagxError, match="trace 'q' must hold finite numbers only"):
        write_traces(tmp_path / "traces.jsonl", [bad])
    assert not (tmp_path / "traces.jsonl").exists()
