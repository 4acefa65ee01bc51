"""Work `search`: each index kind built, its recall, and what our checks and exact ranking cost beside bare FAISS.

vectors   c(z) + noise        clusters, as encoders make them; queries are noisy copies of passages

The peer does the same search with FAISS alone: `IndexFlatIP` for the exact kinds, the same graph for `hnsw`, the same
lists with `IndexRefine`, which compares as many candidates again, for `sq` and `ivf_pq`. Both map the same files.

With `folder` what was made stays there: vectors, indexes, and each row that was measured, so that a run which was
stopped goes on where it stood, and another adds kinds and sizes.
"""

from __future__ import annotations

import json
import logging
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
from tqdm.auto import tqdm

from ragx import atomic
from ragx.errors import ConfigError
from ragx.experiments.benchmarks import agreement
from ragx.experiments.benchmarks.cell import Cell
from ragx.experiments.benchmarks.meter import MIB, Meter
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.private_memory import private_peak
from ragx.experiments.benchmarks.worker import Side
from ragx.retriever.embeddings import Embeddings
from ragx.retriever.exact import as_faiss
from ragx.retriever.index import VectorIndex
from ragx.retriever.kinds import EXACT
from ragx.retriever.native import faiss
from ragx.retriever.recall import recall

N_QUERIES = 32
_PER_CLUSTER = 100
_NUMBERS = 2**24  # of the vectors that are drawn at a time
_logger = logging.getLogger(__name__)


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
    folder = Path(config.folder or folder)
    for count, dimension in map(parse_size, config.sizes):
        place = folder / f"{count}x{dimension}-{config.seed}"
        write_vectors(place, count=count, dimension=dimension, seed=config.seed)
        for kind in config.index_kinds:
            with threads(config.threads):
                made = built(place, kind, clock=config.clock)
            for n_docs, batch_size in product(config.n_docs, config.batch_sizes):
                task = _Task(place, made["index"], made["parameters"], n_docs, batch_size, config.device)
                row = {"vectors": count, "dimension": dimension, "index": made["index"], **made["figures"]}
                row |= {"n_docs": n_docs, "batch_size": batch_size}
                kept = place / f"{made['index']}.{n_docs}.{batch_size}.json"
                yield Cell(row, partial(_Ours, task), partial(_Peer, task), agreement.answers, batch_size, kept=kept)


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


def built(place: Path, kind: str, *, clock: str) -> dict[str, Any]:
    """Builds the index of `kind` over the vectors of `place` and writes it there, unless it is there already.

    Returns:
        its kind and parameters (`index`, `parameters`), and the `figures` of the build: seconds, private MiB, MiB of
        the file, recall.
    """
    note = place / f"{kind}.build.json"
    if note.exists():
        made: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
        return made
    _logger.info("building %s in %s", kind, place)
    embeddings = np.load(place / "embeddings.npy", mmap_mode="r")
    indexes: list[VectorIndex] = []
    with private_peak() as memory:
        seconds = Meter("cpu").seconds(lambda: indexes.append(VectorIndex.build(embeddings, kind=kind)))
    index = indexes.pop()
    file = place / f"{index.kind}.faiss"
    size = file.stat().st_size if index.write(file) else 0
    _logger.info("built in %.0f s of CPU; measuring its recall", seconds.cpu)
    found = recall(index, np.load(place / "queries.npy"), min(10, len(index)))
    figures = {
        "build_s": round(getattr(seconds, clock), 2),
        "build_mib": memory.extra,
        "index_mib": round(size / MIB, 3),
        "recall": round(found, 3),
    }
    made = {"index": index.kind, "parameters": dict(index.parameters), "figures": figures}
    with atomic.open_file(note) as handle:
        json.dump(made, handle)
    return made


def parse_size(text: str) -> tuple[int, int]:
    """(count, dimension) of `100000x768`."""
    count, _, dimension = text.partition("x")
    if not (count.isdecimal() and dimension.isdecimal() and int(count) and int(dimension)):
        raise ConfigError([f"sizes must be written as 100000x768, vectors x dimension, got {text!r}."])
    return int(count), int(dimension)


def write_vectors(folder: Path, *, count: int, dimension: int, seed: int) -> None:
    """`embeddings.npy` (count, dimension) and `queries.npy` (N_QUERIES, dimension), block by block, once."""
    if (folder / "queries.npy").exists():  # written last
        return
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(seed)
    embeddings = np.lib.format.open_memmap(
        folder / "embeddings.npy", mode="w+", dtype=np.float32, shape=(count, dimension)
    )
    start = 0
    with tqdm(total=count, desc="vectors", unit="vector", disable=count * dimension <= _NUMBERS) as bar:
        for block in clustered(numbers, count=count, dimension=dimension):
            embeddings[start : start + len(block)] = block
            start += len(block)
            bar.update(len(block))
    chosen = embeddings[numbers.integers(count, size=N_QUERIES)]
    queries = chosen + 0.5 * numbers.standard_normal(chosen.shape, dtype=np.float32)
    embeddings.flush()
    with atomic.open_file(folder / "queries.npy", "wb") as handle:
        np.save(handle, queries)


def clustered(numbers: np.random.Generator, *, count: int, dimension: int) -> Iterator[np.ndarray]:
    """`count` vectors in blocks (R, dimension) of float32, about a hundred to a cluster."""
    centers = numbers.standard_normal((max(1, count // _PER_CLUSTER), dimension), dtype=np.float32)
    size = max(1, _NUMBERS // dimension)
    for start in range(0, count, size):
        rows = min(size, count - start)
        noise = numbers.standard_normal((rows, dimension), dtype=np.float32)
        noise *= np.float32(0.5)
        noise += centers[numbers.integers(len(centers), size=rows)]
        yield noise


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
        vectors = as_faiss(Embeddings.of(self.embeddings))
        if task.kind in EXACT:
            self.index = vectors
            return
        self.index = self.base = faiss.read_index(str(self.index_file), faiss.IO_FLAG_MMAP_IFC)
        if task.kind != "hnsw":
            self.vectors, self.index = vectors, faiss.IndexRefine(self.base, vectors)
            again = (max(task.parameters["rerank"], task.n_docs) + 0.5) / task.n_docs
            of_lists = faiss.SearchParametersIVF(nprobe=task.parameters["nprobe"])
            self.settings = faiss.IndexRefineSearchParameters(k_factor=again, base_index_params=of_lists)

    def search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self.index.search(queries, self.task.n_docs, params=self.settings)
        return rows, scores
