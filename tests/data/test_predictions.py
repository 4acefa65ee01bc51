"""Prediction files: everything comes back, and nothing broken is read; the stream survives kills."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragx.data.prediction_stream import PredictionStream
from ragx.data.predictions import read_predictions, to_line, write_predictions
from ragx.errors import DataError, RagxError
from ragx.records import Citation, Example, PassageKey, Prediction, RetrievedPassage, text_sha256

PERU = RetrievedPassage(
    PassageKey("peru", "v1", "0"), "Peru", "Humala leads.", text_sha256("Humala leads."), 2.0, 0.75, 0.9, (0, 13)
)
CHILE = RetrievedPassage(PassageKey("chile", "v1", "0"), "Chile", "Santiago", "", 1.0, 0.25, 0.1, (0, 4))
FULL = Prediction(
    id="1",
    query="Who leads\tPeru?",
    answer="Humala\u2028",
    logprob=-0.1,
    hypotheses=(("Humala", -0.1), ("", -3.0)),
    passages=(PERU, CHILE),
    citations=(Citation(PERU.key, 0.9, 0.7, (0, 6), "full"), Citation(CHILE.key, 0.1, None, None, "not_judged")),
    cut_tokens=4,
    provenance={"kind": "rag_token", "decoding": {"num_beams": 4}},
)
CLOSED_BOOK = Prediction("2", "x?", "", -1.5, (), (), (), 0, {})


def test_every_field_comes_back(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.jsonl", iter([FULL, CLOSED_BOOK]))
    assert read_predictions(tmp_path / "p.jsonl") == [FULL, CLOSED_BOOK]
    assert (tmp_path / "p.jsonl").read_bytes().count(b"\n") == 2


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_predictions(path, [CLOSED_BOOK])
    with pytest.raises(DataError, match=r"p.jsonl:2: id: must be unique, got '2' again"):
        write_predictions(path, [CLOSED_BOOK, CLOSED_BOOK])
    with pytest.raises(RagxError, match="prediction '1' must hold finite numbers only"):
        write_predictions(path, [replace(FULL, logprob=float("nan"))])
    assert read_predictions(path) == [CLOSED_BOOK]
    assert [file.name for file in tmp_path.iterdir()] == ["p.jsonl"]


def drop(field: str) -> Callable[[dict[str, Any]], Any]:
    return lambda row: row.pop(field)


def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], Any]:
    def change(row: Any) -> None:
        for step in path[:-1]:
            row = row[step]
        row[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("answer"), "answer: must be given"),
        (put(1, "score"), "score: must be one of"),
        (put(3, "id"), "id: must be text"),
        (put("", "query"), "query: must be text that is not blank"),
        (put(None, "answer"), "answer: must be text"),
        (put("x", "logprob"), "logprob: must be a finite number, got 'x'"),
        (put(True, "logprob"), "logprob: must be a finite number, got True"),
        (put(float("nan"), "logprob"), "logprob: must be a finite number, got nan"),
        (put(["a"], "hypotheses", 0), "hypotheses[0]: must be [text, logprob]"),
        (put(float("-inf"), "hypotheses", 1, 1), "hypotheses[1][1]: must be a finite number, got -inf"),
        (put({}, "passages"), "passages: must be a list"),
        (put({}, "passages", 1), "passages[1]: must be an object with exactly"),
        (put("peru", "passages", 0, "key"), "passages[0].key: must be [source, version, chunk]"),
        (put(float("nan"), "passages", 0, "prior"), "passages[0].prior: must be a finite number, got nan"),
        (put(1.2, "passages", 0, "posterior"), "passages[0].posterior: must be a probability, got 1.2"),
        (put(0.55, "passages", 0, "prior"), "passages: must have priors that sum to 1, got 0.8"),
        (
            put([0, 9], "passages", 1, "visible"),
            "passages[1].visible: must be [start, end) with 0 <= start <= end within 8",
        ),
        (put([3, 1], "citations", 0, "span"), "citations[0].span: must be [start, end)"),
        (put("yes", "citations", 0, "support"), "citations[0].support: must be one of"),
        (put(1.5, "cut_tokens"), "cut_tokens: must be a whole number >= 0, got 1.5"),
        (put("x", "provenance"), "provenance: must be an object"),
        (put("2", "id"), "id: must be unique, got '2' again (first on line 1)"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    row = json.loads(to_line(FULL))
    change(row)
    path = tmp_path / "p.jsonl"
    path.write_text(to_line(CLOSED_BOOK) + json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"p.jsonl:2: {message}")):
        read_predictions(path)


def test_a_line_cut_by_a_kill_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(to_line(CLOSED_BOOK) + to_line(FULL)[:-9], encoding="utf-8")
    with pytest.raises(DataError, match="p.jsonl:2: line must be one JSON object"):
        read_predictions(path)
    assert read_predictions(path, torn_end=True) == [CLOSED_BOOK]


EXAMPLES = [Example(str(i), f"question {i}?", ("a",)) for i in range(7)]
ANSWERS = [replace(CLOSED_BOOK, id=e.id, query=e.query, provenance={"seed": 0}) for e in EXAMPLES]


def stream(path: Path, *, batch_size: int = 2, provenance: dict[str, Any] | None = None) -> PredictionStream:
    return PredictionStream(path, EXAMPLES, provenance=provenance or {"seed": 0}, batch_size=batch_size)


def run(path: Path, *, until: int = 7) -> int:
    """Answers what is left in batches of two, at most up to question `until`; returns how many were there before."""
    ours = stream(path)
    before = ours.done
    with ours.open() as handle:
        for start in range(before, until, 2):
            ours.append(handle, ANSWERS[start : start + 2])
    if ours.done == len(EXAMPLES):
        ours.finish()
    return before


@pytest.mark.parametrize("cut", [0, 1, 60, 150, 250, 400, 10**6])
def test_a_kill_at_any_byte_changes_nothing_in_the_end(tmp_path: Path, cut: int) -> None:
    run(tmp_path / "whole.jsonl")
    path = tmp_path / "p.jsonl"
    run(path, until=5)
    assert not path.exists()
    partial = tmp_path / "p.jsonl.partial"
    partial.write_bytes(partial.read_bytes()[:cut])
    lines = partial.read_bytes().count(b"\n")
    assert run(path) == lines - lines % 2
    assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert read_predictions(path) == ANSWERS
    assert not partial.exists()


def test_a_whole_file_is_kept_and_a_shortened_one_completed(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    run(path)
    content = path.read_bytes()
    assert stream(path).complete and path.read_bytes() == content
    path.write_bytes(content[: len(content) // 2])
    assert run(path) == 2
    assert path.read_bytes() == content


def test_killed_before_the_last_rename(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    run(path)
    path.rename(tmp_path / "p.jsonl.partial")
    assert stream(path).complete and read_predictions(path) == ANSWERS


def test_another_run_is_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    run(path, until=4)
    with pytest.raises(RagxError, match=r"same run, got other values of beams, seed \(None, now 4\)"):
        stream(path, provenance={"seed": 1, "beams": 4})
    with pytest.raises(RagxError, match="must answer the questions asked, in their order, got '0' where '1' is asked"):
        PredictionStream(path, EXAMPLES[1:], provenance={"seed": 0}, batch_size=2)
    with pytest.raises(RagxError, match="at most the 1 questions asked, got 4"):
        PredictionStream(path, EXAMPLES[:1], provenance={"seed": 0}, batch_size=2)
    assert read_predictions(tmp_path / "p.jsonl.partial") == ANSWERS[:4]


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"mine": 1}\nunfinished', encoding="utf-8")
    with pytest.raises(DataError, match="notes.jsonl:1: mine: must be one of"):
        stream(path)
    assert path.read_text(encoding="utf-8") == '{"mine": 1}\nunfinished'


def test_misuse_is_refused(tmp_path: Path) -> None:
    ours = stream(tmp_path / "p.jsonl")
    with (
        ours.open() as handle,
        pytest.raises(RagxError, match=r"in the order of the questions, got \['1'\] for \['0'\]"),
    ):
        ours.append(handle, ANSWERS[1:2])
    with pytest.raises(RagxError, match="must answer all 7 questions, got 0"):
        ours.finish()
    with pytest.raises(RagxError, match="examples must have unique ids, got 1 again"):
        PredictionStream(tmp_path / "q.jsonl", [EXAMPLES[0]] * 2, provenance={}, batch_size=1)
    with pytest.raises(RagxError, match="batch_size must be >= 1, got 0"):
        stream(tmp_path / "q.jsonl", batch_size=0)
