"""What an audit reads: traces or predictions, the corpus they cite, and frozen gold data; no model, no index.

    predictions.jsonl or traces.jsonl  +  passages (.jsonl, .tsv, .csv or world_leaders:<edition>)  +  gold or questions

One decision: a digest of a file does not depend on the order of its lines, since the audit does not either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ragx.citations.evidence import Evidence, EvidenceStore
from ragx.citations.from_predictions import trace_of
from ragx.citations.gold import Gold
from ragx.citations.trace_checks import check_trace
from ragx.citations.trace_records import Trace
from ragx.data.corpus import passage_of, read_passages
from ragx.data.predictions import prediction_of
from ragx.data.tasks import read_examples
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.facts import EDITIONS
from ragx.data.world_leaders.questions import hot_swap_questions, questions
from ragx.dates import is_date
from ragx.errors import ConfigError
from ragx.jsonl import Row, read_lines, read_rows
from ragx.limits import EMBEDDED
from ragx.records import Example, PassageKey

Parse = Callable[[Row], Trace]
# Fields that the corpus reader does not know; `Evidence.from_row` reads them.
_EXTRA = frozenset(
    "kind parent supersedes tombstone uri lang publisher licence page section start_line end_line lineage "
    "sha256".split()
)


def read_corpus(sources: Sequence[str]) -> EvidenceStore:
    """The passages of several files or embedded editions, each under its own version.

    Raises:
        DataError: naming file, line and field.
        ConfigError: an edition that does not exist.
        RagxError: one identity in two of them.
    """
    return EvidenceStore(evidence for source in sources for evidence in _evidence(source))


def _evidence(source: str) -> Iterator[Evidence]:
    if source.startswith(EMBEDDED):
        name = source.removeprefix(EMBEDDED)
        if name not in EDITIONS:
            raise ConfigError([f"corpus must be a file or {EMBEDDED}{{{','.join(EDITIONS)}}}, got {source!r}."])
        yield from (Evidence(passage, sha256=passage.sha256) for passage in edition(name))
        return
    path = Path(source)
    version = path.name.split(".")[0]
    if path.name.removesuffix(".gz").endswith((".jsonl", ".json")):
        yield from _evidence_rows(path, version)
    else:
        yield from (Evidence(passage) for passage in read_passages(path, version=version))


def _evidence_rows(path: Path, version: str) -> Iterator[Evidence]:
    """As `read_passages`, but a digest that does not fit its text is for the audit to find."""
    lines: dict[PassageKey, int] = {}
    for row in read_rows(path):
        values = {name: value for name, value in row.values.items() if name not in _EXTRA}
        evidence = Evidence.from_row(row, passage_of(Row(path, row.line, values), version=version))
        if evidence.key in lines:
            got = f"{tuple(evidence.key)} again (first on line {lines[evidence.key]})"
            row.fail("source", f"identity must be unique, got {got}. Give each passage its own id or chunk")
        lines[evidence.key] = row.line
        yield evidence


def read_gold(source: str | None) -> dict[str, Gold]:
    """Gold data by question id, from a gold file, a question file or `world_leaders:<split>`; empty for None.

    Raises:
        DataError: naming file, line and field, or a question that stands twice.
    """
    if source is None:
        return {}
    if source.startswith(EMBEDDED):
        return {example.id: Gold.from_example(example) for example in _embedded_questions(source)}
    first = next(iter(read_rows(source)), None)
    if first is None or first.values.get("schema") is None:
        return {example.id: Gold.from_example(example) for example in read_examples(source)}
    golds: dict[str, Gold] = {}
    for row in read_rows(source):
        gold = Gold.from_row(row)
        if gold.qid in golds:
            row.fail("qid", f"must be unique, got {gold.qid!r} again. Keep one of the two")
        golds[gold.qid] = gold
    return golds


def read_dates(source: str | None) -> dict[str, str]:
    """The as-of date of each question of a question file that has one; for predictions, which record none."""
    if source is None:
        return {}
    if source.startswith(EMBEDDED):
        examples: Iterable[Example] = _embedded_questions(source)
        return {example.id: example.as_of for example in examples if example.as_of and is_date(example.as_of)}
    rows = (row.values for row in read_rows(source))
    return {str(v.get("id", v.get("qid"))): v["as_of"] for v in rows if v.get("as_of") and is_date(str(v["as_of"]))}


def _embedded_questions(source: str) -> Sequence[Example]:
    name = source.removeprefix(EMBEDDED)
    if name in ("train", "dev", "test"):
        return questions(name)
    if name.removeprefix("hot_swap/") in EDITIONS:
        return hot_swap_questions(name.removeprefix("hot_swap/"))
    raise ConfigError([f"gold must be a file or {EMBEDDED}{{train,dev,test,hot_swap/<edition>}}, got {source!r}."])


def parser_of(path: str | Path, *, dates: Mapping[str, str], claims: str, task: str) -> Parse:
    """How the lines of a file become traces: as traces, or as predictions of ragx, by its first line.

    Args:
        dates: as-of date by question id, where the file has none.
        claims, task: how predictions are cut into claims.
    """
    first = next(iter(read_rows(path, errors=[])), None)
    if first is not None and "schema" in first.values:
        return parse_trace
    return partial(parse_prediction, dates=dates, claims=claims, task=task)


def parse_trace(row: Row) -> Trace:
    """The trace of a line."""
    check_trace(row)
    return Trace.from_json(row.values)


def parse_prediction(row: Row, *, dates: Mapping[str, str], claims: str, task: str) -> Trace:
    """The trace of the prediction of a line."""
    prediction = prediction_of(row)
    return trace_of(prediction, as_of=dates.get(prediction.id), claims=claims, task=task)


def digest(source: str) -> dict[str, Any]:
    """What a file is, whatever the order of its lines: their number, and the sum of their SHA-256 digests."""
    if source.startswith(EMBEDDED):
        return {"source": source}
    total = count = 0
    for _, raw in read_lines(source):
        total += int.from_bytes(hashlib.sha256(raw.strip()).digest(), "big")
        count += 1
    return {"source": Path(source).name, "lines": count, "lines_sha256": f"{total % 2**256:064x}"}
