"""The extractive composer over a file of requests, each stage written apart.

    documents + requests  ->  retrieved.jsonl   packed.jsonl   cited.jsonl      C, S and R of every question
                              traces.jsonl      answers.jsonl                   for the audit; as ka-answer-v1

Without files of the user's, the practice set: twelve questions (three each of one source, several sources, no answer,
conflicting versions) and the seven rows of the failure table. One decision: the set is frozen. Its digests were written
before any run and are compared before each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.citations.answer_form import answer_object, check_answer, is_well_formed, trace_of_answer
from ragx.citations.composer import Request, compose
from ragx.citations.documents import Library
from ragx.citations.trace_file import write_traces
from ragx.citations.trace_records import Trace
from ragx.errors import DataError
from ragx.jsonl import Row, read_rows

PRACTICE = Path(__file__).parents[1] / "citations" / "fixtures"
_LISTS = ("matters", "principal")
_FIELDS = tuple(Request.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and the answer that somebody else proposes for it; None where it is to be composed."""

    request: Request
    proposal: Mapping[str, Any] | None = None


def read_requests(path: str | Path) -> list[Asked]:
    """The requests of a JSON lines file; `proposal` holds a ka-answer-v1 object.

    Raises:
        DataError: naming file, line and field.
    """
    return [_asked(row) for row in read_rows(path)]


def _asked(row: Row) -> Asked:
    values = dict(row.values)
    proposal = values.pop("proposal", None)
    for name in values:
        if name not in _FIELDS:
            row.fail(name, f"must be one of {', '.join(_FIELDS)}, proposal, got an unknown field. Remove it")
    for name in ("qid", "question", "as_of"):
        row.text(name, row.require(name))
    row.items("matters", row.require("matters"))
    if proposal is not None and not (isinstance(proposal, dict) and is_well_formed(proposal)):
        row.fail("proposal", "must be a ka-answer-v1 object, got another form. See ragx/citations/answer_form.py")
    lists = {
        name: tuple(row.text(name, item) for item in row.items(name, values[name])) for name in _LISTS if name in values
    }
    for name in ("window", "reserve"):
        if name in values and (type(values[name]) is not int or values[name] < 0):
            row.fail(name, f"must be a whole number >= 0, got {values[name]!r}. Count code points")
    return Asked(Request(**{**values, **lists}), proposal)


def verify_frozen(folder: str | Path = PRACTICE) -> dict[str, str]:
    """The digests of a frozen set, by file.

    Raises:
        DataError: a file that is not what was frozen.
    """
    folder = Path(folder)
    frozen: dict[str, str] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["sha256"]
    for name, digest in frozen.items():
        found = _digest(folder / name)
        if found != digest:
            raise DataError(f"sha256 must be {digest}, got {found}. Restore the file", path=folder / name)
    return frozen


def run_practice(library: Library, asked: Iterable[Asked], directory: str | Path) -> list[Trace]:
    """Composes or takes over every answer and writes the files of each stage into a folder, whole or not at all."""
    traces: list[Trace] = []
    answers: list[dict[str, Any]] = []
    for item in asked:
        if item.proposal is None:
            trace = compose(item.request, library)
            answer: Mapping[str, Any] = answer_object(trace, library)
        else:
            trace, answer = trace_of_answer(item.proposal, item.request), item.proposal
        checks = check_answer(answer, item.request, library)
        traces.append(trace)
        answers.append({"qid": item.request.qid, "answer": answer, "checks": asdict(checks)})
    rows = [trace.to_json() for trace in traces]
    with atomic.directory(directory) as folder:
        for name, fields in (
            ("retrieved", ("C",)),
            ("packed", ("S", "dropped", "budget")),
            ("cited", ("answer", "claims", "citations")),
        ):
            _write(folder / f"{name}.jsonl", ({"qid": row["qid"], **{f: row[f] for f in fields}} for row in rows))
        _write(folder / "answers.jsonl", answers)
        write_traces(folder / "traces.jsonl", traces)
    return traces


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with atomic.open_file(path) as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
