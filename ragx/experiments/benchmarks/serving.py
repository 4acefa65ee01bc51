"""Works `open` and `swap`: what an index costs a process that serves it, beside its searches.

open   a fresh process maps an index folder and asks one question; first with files that the system was told to forget,
       then again with what it has kept
swap   eight threads ask while the index is replaced fifty times (section 4.5 in a running process)

Neither has a peer: transformers reads an index whole and cannot replace it. The folders are made by `import_index`, so
they are whole ones: passages, vectors, FAISS's file and manifest.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ragx.experiments.benchmarks import search
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.private_memory import mapped_mib, private_mib, private_peak
from ragx.records import Passage
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.importing import Vectors, import_index
from ragx.retriever.manifest import MANIFEST_FILE

ASKING, SWAPS = 8, 50
_GB = 1e9


def opened(config: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Two rows per size and kind: files cold, where the system can be told to forget them, and warm."""
    for row, (place,) in _made(config, folder, editions=1):
        for cold in (True, False) if hasattr(os, "posix_fadvise") else (False,):
            if cold:
                _forget(place)
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
                figures = fresh.submit(open_and_ask, place, n_docs=config.n_docs[0], threads=config.threads).result()
            yield {**row, "files": "cold" if cold else "warm", **figures}


def open_and_ask(place: Path, *, n_docs: int, threads: int) -> dict[str, float | None]:
    """Seconds and private MiB of opening the folder and of the first search, in this process."""
    with search.threads(threads):
        with private_peak() as opening:
            began = time.perf_counter()
            retriever = DenseRetriever.open(place)
            open_s = time.perf_counter() - began
        with private_peak() as asking:
            began = time.perf_counter()
            _ask(retriever, n_docs)
            search_s = time.perf_counter() - began
    return {
        "open_s": round(open_s, 3),
        "open_mib": opening.extra,
        "search_s": round(search_s, 3),
        "search_mib": asking.extra,
        "mapped_mib": _rounded(mapped_mib()),
    }


def swapped(config: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """One row per size and kind."""
    for row, places in _made(config, folder, editions=2):
        with search.threads(config.threads):
            yield {**row, **swap_and_ask(places, n_docs=config.n_docs[0])}


def swap_and_ask(places: list[Path], *, n_docs: int, asking: int = ASKING, swaps: int = SWAPS) -> dict[str, Any]:
    """Replaces the first of two editions by the other and back, `swaps` times, under `asking` threads.

    Returns:
        answers, and how many of them `failed` or were of two editions at once (`mixed`); milliseconds of a swap; MiB of
        private memory before and after. Before means: when both editions have answered once.
    """
    retriever = DenseRetriever.open(places[0])
    for place in (places[1], places[0]):
        retriever.swap(place)
        _ask(retriever, n_docs)
    editions = {DenseRetriever.open(place).fingerprint: place.name for place in places}
    before, done, tally = private_mib(), threading.Event(), _Tally()

    def ask() -> None:
        while not done.is_set():
            try:
                found = _ask(retriever, n_docs)
                of = {passage.version for row in found.passages for passage in row}
                tally.add(mixed=of != {editions[found.index_fingerprint]})
            except Exception:  # whatever it is, somebody got no answer
                tally.add(failed=True)

    threads = [threading.Thread(target=ask) for _ in range(asking)]
    for thread in threads:
        thread.start()
    seconds = []
    for turn in range(swaps):
        began = time.perf_counter()
        retriever.swap(places[(turn + 1) % 2])
        seconds.append(time.perf_counter() - began)
    done.set()
    for thread in threads:
        thread.join()
    return {
        "swaps": swaps,
        "answers": tally.answers,
        "failed": tally.failed,
        "mixed": tally.mixed,
        "swap_ms": round(1000 * statistics.median(seconds), 1),
        "slowest_ms": round(1000 * max(seconds), 1),
        "before_mib": _rounded(before),
        "after_mib": _rounded(private_mib()),
    }


class _Tally:
    def __init__(self) -> None:
        self.answers = self.failed = self.mixed = 0
        self._lock = threading.Lock()

    def add(self, *, failed: bool = False, mixed: bool = False) -> None:
        with self._lock:
            self.answers, self.failed, self.mixed = self.answers + 1, self.failed + failed, self.mixed + mixed


def _ask(retriever: DenseRetriever, n_docs: int) -> Any:
    embeds = torch.ones(1, retriever.manifest.dimension)
    return retriever.retrieve(["a question"], n_docs, query_embeds=embeds)


def _made(config: Benchmark, folder: Path, *, editions: int) -> Iterator[tuple[dict[str, Any], list[Path]]]:
    for count, dimension in map(search.parse_size, config.sizes):
        for kind in config.index_kinds:
            name = f"{count}x{dimension}-{kind}"
            places = [Path(config.folder or folder) / f"{name}-{number}" for number in range(editions)]
            for place in places:
                if not (place / MANIFEST_FILE).exists():  # written last
                    write_index(place, count=count, dimension=dimension, kind=kind, seed=config.seed)
            size = sum(file.stat().st_size for file in places[0].rglob("*") if file.is_file())
            yield {"vectors": count, "dimension": dimension, "index": kind, "disk_gb": round(size / _GB, 3)}, places


def write_index(place: Path, *, count: int, dimension: int, kind: str, seed: int) -> None:
    """A whole index folder over clustered vectors; each passage bears the folder's name as its version.

    The vectors are a function of the seed alone: those of another one would be another encoder's to a swap.
    """
    passages = (Passage(str(row), place.name, "0", f"Title {row}", f"Passage {row}.") for row in range(count))
    blocks = search.clustered(np.random.default_rng(seed), count=count, dimension=dimension)
    parts = (Vectors("clustered", None, block) for block in blocks)
    import_index(passages, parts, directory=place, edition=place.name, passage_encoder=None, kind=kind)


def _forget(place: Path) -> None:
    """Tells the system to drop what it keeps of the files in memory."""
    for file in place.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _rounded(mib: float | None) -> float | None:
    return None if mib is None else round(mib, 1)
