"""Work `search`: what our checks and exact ranking cost beside a bare call of FAISS, on the same index file.

vectors   c(z) + noise        clusters, as encoders make them; queries are noisy copies of passages
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ragx.errors import ConfigError
from ragx.experiments.benchmarks import agreement
from ragx.experiments.benchmarks.cell import Cell
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.worker import Side
from ragx.retriever.index import VectorIndex
from ragx.retriever.native import faiss

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


def cells(config: Benchmark, folder: Path) -> Iterator[Cell]:
    """One cell per corpus size, index kind, n_docs and batch size.

    Raises:
        ConfigError: a size that is not written as 100000x768, or an unknown kind.
    """
    for (count, dimension), kind in product(map(parse_size, config.sizes), config.index_kinds):
        place = folder / f"{count}x{dimension}-{kind}"
        place.mkdir()
        write_vectors(place, count=count, dimension=dimension, seed=config.seed)
        index = VectorIndex.build(np.load(place / "embeddings.npy", mmap_mode="r"), kind=kind)
        index.write(place / "index.faiss")
        parameters = dict(index.parameters)
        del index
        for n_docs, batch_size in product(config.n_docs, config.batch_sizes):
            task = _Task(place, kind, parameters, n_docs, batch_size)
            row = {"vectors": count, "dimension": dimension, "index": kind, "n_docs": n_docs, "batch_size": batch_size}
            yield Cell(row, partial(_Ours, task), partial(_Peer, task), agreement.answers, items=batch_size)


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
        self.task, self.index_file = task, task.folder / "index.faiss"
        self.queries = np.load(task.folder / "queries.npy")
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
        embeddings = np.load(task.folder / "embeddings.npy", mmap_mode="r")
        self.index = VectorIndex.read(self.index_file, embeddings, kind=task.kind, parameters=task.parameters)

    def search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.index.search(queries, self.task.n_docs)


class _Peer(_Search):
    def __init__(self, task: _Task) -> None:
        super().__init__(task)
        self.index = faiss.read_index(str(self.index_file), faiss.IO_FLAG_MMAP_IFC)

    def search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self.index.search(queries, self.task.n_docs)
        return rows, scores
