"""Work `search`: each index kind built, its recall, and what our checks and exact ranking cost beside bare FAISS.

vectors   c(z) + noise        clusters, as encoders make them; queries are noisy copies of passages

The peer does the same search with FAISS alone: `IndexFlatIP` for the exact kinds, the same graph for `hnsw`, the same
lists with `IndexRefineFlat`, which compares as many candidates again, for `sq` and `ivf_pq`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragx.errors import ConfigError
from ragx.experiments.benchmarks import agreement
from ragx.experiments.benchmarks.cell import Cell
from ragx.experiments.benchmarks.meter import MIB, Meter
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.worker import Side
from ragx.retriever.index import VectorIndex
from ragx.retriever.native import faiss
from ragx.retriever.recall import recall

N_QUERIES = 32
_PER_CLUSTER = 100
_BLOCK = 65_536


@dataclass(frozen=True)
class _Task:
    folder: Path
    kind: str
    parameters: dict[str, int]
    n_docs: int
    batch_size: int
    device: str


def cells(config: Benchmark, folder: Path) -> Iterator[Cell]:
    """One cell per corpus size, index kind, n_docs and batch size; building is measured on the way.

    Raises:
        ConfigError: a size that is not written as 100000x768, or an unknown kind.
    """
    for count, dimension in map(parse_size, config.sizes):
        place = folder / f"{count}x{dimension}"
        place.mkdir()
        write_vectors(place, count=count, dimension=dimension, seed=config.seed)
        for kind in config.index_kinds:
            with threads(config.threads):
                index, row = built(place, kind, clock=config.clock)
            row = {"vectors": count, "dimension": dimension, "index": index.kind, **row}
            parameters = dict(index.parameters)
            for n_docs, batch_size in product(config.n_docs, config.batch_sizes):
                task = _Task(place, index.kind, parameters, n_docs, batch_size, config.device)
                row = {**row, "n_docs": n_docs, "batch_size": batch_size}
                yield Cell(row, partial(_Ours, task), partial(_Peer, task), agreement.answers, items=batch_size)
            del index


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Works on `count` threads meanwhile."""
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(count)
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])


def built(place: Path, kind: str, *, clock: str) -> tuple[VectorIndex, dict[str, Any]]:
    """The index over the vectors of `place`, written there, with seconds and memory of the build and its recall."""
    meter, made = Meter("cpu"), list[VectorIndex]()
    embeddings = np.load(place / "embeddings.npy", mmap_mode="r")
    seconds = 0.0

    def build() -> None:
        nonlocal seconds
        seconds = getattr(meter.seconds(lambda: made.append(VectorIndex.build(embeddings, kind=kind))), clock)

    memory = meter.extra_mib(build)
    index = made.pop()
    file = place / f"{index.kind}.faiss"
    size = file.stat().st_size if index.write(file) else 0
    found = recall(index, np.load(place / "queries.npy"), min(10, len(index)))
    return index, {
        "build_s": round(seconds, 2),
        "build_mib": None if memory is None else round(memory, 1),
        "index_mib": round(size / MIB, 3),
        "recall": round(found, 3),
    }


def parse_size(text: str) -> tuple[int, int]:
    """(count, dimension) of `100000x768`."""
    count, _, dimension = text.partition("x")
    if not (count.isdecimal() and dimension.isdecimal() and int(count) and int(dimension)):
        raise ConfigError([f"sizes must be written as 100000x768, vectors x dimension, got {text!r}."])
    return int(count), int(dimension)


def write_vectors(folder: Path, *, count: int, dimension: int, seed: int) -> None:
    """`embeddings.npy` (count, dimension) and `queries.npy` (N_QUERIES, dimension), block by block."""
    numbers = np.random.default_rng(seed)
    centers = numbers.standard_normal((max(1, count // _PER_CLUSTER), dimension), dtype=np.float32)
    embeddings = np.lib.format.open_memmap(
        folder / "embeddings.npy", mode="w+", dtype=np.float32, shape=(count, dimension)
    )
    for start in range(0, count, _BLOCK):
        rows = min(_BLOCK, count - start)
        noise = numbers.standard_normal((rows, dimension), dtype=np.float32)
        embeddings[start : start + rows] = centers[numbers.integers(len(centers), size=rows)] + 0.5 * noise
    chosen = embeddings[numbers.integers(count, size=N_QUERIES)]
    queries = chosen + 0.5 * numbers.standard_normal(chosen.shape, dtype=np.float32)
    embeddings.flush()
    np.save(folder / "queries.npy", queries)


class _Search(Side):
    def __init__(self, task: _Task) -> None:
        self.task, self.index_file = task, task.folder / f"{task.kind}.faiss"
        self.queries = np.load(task.folder / "queries.npy")
        self.embeddings = np.load(task.folder / "embeddings.npy", mmap_mode="r")
        self.n_batches = max(1, N_QUERIES // task.batch_size)

    def search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and scores, both (B, n_docs)."""
        raise NotImplementedError

    def step(self, number: int) -> None:
        start = number % self.n_batches * self.task.batch_size
        self.search(self.queries[start : start + self.task.batch_size])

    def check(self) -> dict[str, Tensor]:
        rows, scores = self.search(self.queries)
        return {"ids": torch.from_numpy(rows.reshape(-1, 1)), "logprob": torch.from_numpy(scores.reshape(-1))}


class _Ours(_Search):
    def __init__(self, task: _Task) -> None:
        super().__init__(task)
        self.index = VectorIndex.read(
            self.index_file, self.embeddings, kind=task.kind, parameters=task.parameters, device=task.device
        )

    def search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.index.search(queries, self.task.n_docs)


class _Peer(_Search):
    def __init__(self, task: _Task) -> None:
        super().__init__(task)
        self.settings: Any = None
        if task.kind in ("flat", "torch"):
            self.index = faiss.IndexFlatIP(self.embeddings.shape[1])
            for start in range(0, len(self.embeddings), _BLOCK):
                self.index.add(np.ascontiguousarray(self.embeddings[start : start + _BLOCK]))
            return
        self.index = self.base = faiss.read_index(str(self.index_file), faiss.IO_FLAG_MMAP_IFC)
        if task.kind != "hnsw":
            self.index = faiss.IndexRefineFlat(self.base, faiss.swig_ptr(self.embeddings))
            again = max(task.parameters["rerank"], task.n_docs) / task.n_docs
            of_lists = faiss.SearchParametersIVF(nprobe=task.parameters["nprobe"])
            self.settings = faiss.IndexRefineSearchParameters(k_factor=again, base_index_params=of_lists)

    def search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self.index.search(queries, self.task.n_docs, params=self.settings)
        return rows, scores
