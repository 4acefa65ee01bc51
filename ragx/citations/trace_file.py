"""Files of traces, `ragx-trace-v1`: read with every field checked, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from ragx import atomic
from ragx.citations.trace_checks import check_trace
from ragx.citations.trace_records import Trace
from ragx.errors import DataError, RagxError
from ragx.jsonl import read_rows


def read_traces(path: str | Path, *, errors: list[DataError] | None = None) -> Iterator[Trace]:
    """The traces of a JSON lines file (also `.gz`), in its order, one in memory at a time.

    Args:
        errors: where given, a line that is refused is added here and skipped; what it leaves out counts as an error.

    Raises:
        DataError: naming file, line and field (`check_trace`), or a qid or claim id used twice.
    """
    seen: dict[str, int] = {}
    rows = read_rows(path, errors=errors)
    for row in rows:
        try:
            check_trace(row)
            for name in (row.values["qid"], *(claim["claim_id"] for claim in row.values["claims"])):
                if name in seen:
                    field = "qid" if name == row.values["qid"] else "claims"
                    row.fail(field, f"must be unique, got {name!r} again (first on line {seen[name]}). Rename one")
            trace = Trace.from_json(row.values)
        except DataError as error:
            if errors is None:
                raise
            errors.append(error)
            continue
        seen[trace.qid] = row.line
        seen.update((claim.claim_id, row.line) for claim in trace.claims)
        yield trace


def write_traces(path: str | Path, traces: Iterable[Trace]) -> None:
    """Writes traces as JSON lines, whole or not at all; refuses numbers that are not finite."""
    with atomic.open_file(path) as handle:
        for trace in traces:
            try:
                handle.write(json.dumps(trace.to_json(), ensure_ascii=False, allow_nan=False) + "\n")
            except ValueError as error:
                raise RagxError(f"trace {trace.qid!r} must hold finite numbers only, got {error}. Mend it") from error
