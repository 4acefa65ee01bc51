"""How long an audit takes: synthetic traces, corpus and frozen labels of a given size, audited in a process of its own.

    n answers with five citations each, one claim a citation, ten passages retrieved and packed, every citation labelled

One decision: the files are those of a real run in shape (keys, hashes, priors, spans, dates), so that no check is
skipped for want of a field.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from ragx import atomic
from ragx.citations.gold import LABELS, SCHEMA
from ragx.citations.trace_file import write_traces
from ragx.citations.trace_records import Answer, Candidate, Citation, Claim, Packed, Trace
from ragx.experiments.audit import run_audit
from ragx.experiments.audit_settings import audit_settings
from ragx.records import Passage, PassageKey
from ragx.schema_audit import AuditCitations

CITATIONS = 5
RETRIEVED = 10
_EVERY_S = 0.25
_WORDS = "north river leader office treaty began ended term between council region harbor first later".split()


def write_benchmark(directory: str | Path, n: int, *, seed: int = 0) -> None:
    """Writes traces.jsonl, corpus.jsonl and gold.jsonl of `n` answers; the corpus has as many passages as answers."""
    directory = Path(directory)
    draw = random.Random(seed)
    passages = [_passage(i, draw) for i in range(max(n, RETRIEVED))]
    with atomic.open_file(directory / "corpus.jsonl") as handle:
        handle.writelines(json.dumps(passage.to_json()) + "\n" for passage in passages)
    golds: list[dict[str, Any]] = []
    write_traces(directory / "traces.jsonl", _traces(n, passages, draw, golds))
    with atomic.open_file(directory / "gold.jsonl") as handle:
        handle.writelines(json.dumps(gold) + "\n" for gold in golds)


def settings(directory: str | Path, *, workers: int = 1) -> AuditCitations:
    """The audit of those files with frozen labels alone."""
    directory = Path(directory)
    files = {name: directory / f"{name}.jsonl" for name in ("traces", "corpus", "gold")}
    return audit_settings(
        files["traces"], corpus=[files["corpus"]], gold=files["gold"], judge="frozen", workers=workers
    )


def measure(folder: Path, sizes: Sequence[int], *, workers: int, seed: int = 0) -> Iterator[dict[str, float]]:
    """Audits of `sizes` answers, one after the other; all rows so far are in `folder`/benchmark_audit.json.

    Yields:
        answers; seconds of the wall clock; cpu_s over all processes; mib, the most that the auditing process and its
        workers held together, a page that several share counted once. Memory is that of a second audit: the system
        walks every page of a process to count the shared ones, and a process that is being counted stands still.
    """
    rows: list[dict[str, float]] = []
    for n in sizes:
        write_benchmark(folder / f"{n}", n, seed=seed)
        timed, _ = _alone(folder / f"{n}", workers, watch=False)
        _, held = _alone(folder / f"{n}", workers, watch=True)
        rows.append({"answers": n, **timed, "mib": held / 2**20})
        with atomic.open_file(folder / "benchmark_audit.json") as handle:
            json.dump({"workers": workers, "rows": rows}, handle, indent=1)
        yield rows[-1]


def _alone(folder: Path, workers: int, *, watch: bool) -> tuple[dict[str, float], float]:
    """What `_audit` returns from a process of its own, and the most bytes that it and its workers held, if watched."""
    most = 0.0
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
        audit = alone.submit(_audit, folder, workers)
        while watch and not audit.done():
            most = max(most, sum(map(_held, psutil.Process().children(recursive=True))))
            time.sleep(_EVERY_S)
        return audit.result(), most


def _audit(folder: Path, workers: int) -> dict[str, float]:
    """Runs where nothing else did, so that memory is the audit's own."""
    began, before = time.perf_counter(), _cpu_s()
    run_audit(settings(folder, workers=workers), folder / "audit")
    return {"seconds": time.perf_counter() - began, "cpu_s": _cpu_s() - before}


def _cpu_s() -> float:
    """CPU seconds of this process and of workers that ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _held(process: psutil.Process) -> int:
    """Bytes, shared pages in shares where the system tells them; 0 of a process that has just ended."""
    try:
        memory = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(getattr(memory, "pss", memory.rss))


def _passage(i: int, draw: random.Random) -> Passage:
    text = " ".join(draw.choices(_WORDS, k=60)) + f" number {i}."
    return Passage(f"source{i // 4}", "2018-12", str(i % 4), f"Title {i // 4}", text, span=(0, len(text)))


def _traces(n: int, passages: list[Passage], draw: random.Random, golds: list[dict[str, Any]]) -> Iterator[Trace]:
    for i in range(n):
        found = draw.sample(passages, RETRIEVED)
        sentences = [f"Statement {j} of answer {i}." for j in range(CITATIONS)]
        text = " ".join(sentences)
        claims, citations, labels, position = [], [], [], 0
        for j, sentence in enumerate(sentences):
            claim_id = f"q{i}.c{j + 1}"
            claims.append(Claim(claim_id, sentence, (position, position + len(sentence))))
            position += len(sentence) + 1
            passage = found[j]
            span = (0, len(passage.text) // 2)
            citations.append(Citation(claim_id, passage.key, origin="external", evidence_span=span))
            labels.append(_label(claim_id, passage.key, draw))
        golds.append({"schema": SCHEMA, "qid": f"q{i}", "answers": [sentences[0]], "support": labels})
        yield Trace(
            qid=f"q{i}",
            question=f"What is known of matter {i}?",
            answer=Answer(text=text),
            retrieved=tuple(Candidate(rank, p.key, 20.0 - rank) for rank, p in enumerate(found, 1)),
            packed=tuple(
                Packed(place, place, p.key, prior=1 / RETRIEVED, visible=(0, len(p.text)), sha256=p.sha256)
                for place, p in enumerate(found, 1)
            ),
            claims=tuple(claims),
            citations=tuple(citations),
            as_of="2018-12",
            task="qa_long",
            model={"kind": "rag_token"},
        )


def _label(claim_id: str, key: PassageKey, draw: random.Random) -> dict[str, Any]:
    return {"claim_id": claim_id, "key": list(key), "label": draw.choice(LABELS)}
