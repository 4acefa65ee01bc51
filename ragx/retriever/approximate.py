"""Approximate search by FAISS: a graph (`hnsw`) or lists of near vectors (`sq`, `ivf_pq`).

    lists are made by distance, searched by product:  argmin |d - c|  when d is added,  argmax q . c  when q asks

k-means by distance makes lists of like size and small residuals whatever the norms of the vectors; a list is worth
searching, however, for its inner product with q. Training draws from a seed and one thread links the graph, so that
the same vectors give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ragx import atomic
from ragx.errors import IndexMismatchError
from ragx.retriever.allowed import Allowed
from ragx.retriever.embeddings import Embeddings
from ragx.retriever.native import faiss

_CLASSES = {"hnsw": "IndexHNSWFlat", "sq": "IndexIVFScalarQuantizer", "ivf_pq": "IndexIVFPQ"}
_QUANTIZERS = {4: "QT_4bit", 6: "QT_6bit", 8: "QT_8bit", 16: "QT_fp16"}
_TRAINING_PER_CENTROID = 64
_ROUNDS = 10  # of k-means


class FaissSearcher:
    """Candidates from a FAISS index."""

    def __init__(self, index: Any, *, kind: str, parameters: Mapping[str, int]) -> None:
        self._index, self._kind, self._parameters = index, kind, dict(parameters)
        self._usual: dict[int, Any] = {}  # settings without a filter, by how many are fetched

    @classmethod
    def build(cls, embeddings: Embeddings, *, kind: str, parameters: Mapping[str, int]) -> FaissSearcher:
        """Indexes finite `embeddings` block by block; the same vectors and parameters give the same index."""
        threads = faiss.omp_get_max_threads()
        try:
            if kind == "hnsw":
                faiss.omp_set_num_threads(1)  # threads link nodes in the order they come: other bytes each time
                index = _graph(embeddings, parameters)
            else:
                index = _lists(embeddings, kind, parameters)
        finally:
            faiss.omp_set_num_threads(threads)
        return cls(index, kind=kind, parameters=parameters)

    @classmethod
    def read(cls, path: Path, *, kind: str, parameters: Mapping[str, int]) -> FaissSearcher:
        """Maps what `write` wrote.

        Raises:
            IndexMismatchError: no FAISS index.
        """
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise IndexMismatchError(f"{path} must be a FAISS index, got: {str(error).splitlines()[-1]}") from error
        return cls(index, kind=kind, parameters=parameters)

    def write(self, path: Path) -> None:
        """Writes FAISS's own format."""
        with atomic.open_file(path, "wb") as handle:
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(handle.write))

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises IndexMismatchError where the index is of another kind, metric or (count, dimension)."""
        index, product = self._index, faiss.METRIC_INNER_PRODUCT
        _agree("metric", product, index.metric_type)
        _agree("kind", _CLASSES[self._kind], type(index).__name__)
        _agree("(count, dimension)", shape, (index.ntotal, index.d))
        if self._kind == "hnsw":
            _agree("metric of the vectors", product, faiss.downcast_index(index.storage).metric_type)
        else:
            _agree("nlist", self._parameters["nlist"], index.nlist)
            _agree("metric of the lists", product, faiss.downcast_index(index.quantizer).metric_type)

    @property
    def rerank(self) -> int:
        """How many candidates are to be compared again by their stored vectors, at least."""
        return self._parameters.get("rerank", 0)

    def candidates(self, queries: np.ndarray, fetch: int, allowed: Allowed | None) -> tuple[np.ndarray, np.ndarray]:
        """Scores and rows, both (B, fetch), best first; row -1 where too few were met.

        A filter that lets one row in ten pass makes the search ten times as wide: of what it meets, as many count.
        """
        if allowed is not None:
            settings = self._settings(fetch, 1 / allowed.share, allowed.selector())
        else:
            settings = self._usual.get(fetch) or self._usual.setdefault(fetch, self._settings(fetch, 1.0, None))
        scores, rows = self._index.search(queries, fetch, params=settings)
        return scores, rows

    def _settings(self, fetch: int, effort: float, selector: Any) -> Any:
        if self._kind == "hnsw":
            width = max(self._parameters["ef_search"], fetch)
            return faiss.SearchParametersHNSW(efSearch=int(width * effort), sel=selector)
        probes = min(self._parameters["nlist"], int(self._parameters["nprobe"] * effort))
        return faiss.SearchParametersIVF(nprobe=probes, sel=selector)


def _graph(embeddings: Embeddings, parameters: Mapping[str, int]) -> Any:
    index = faiss.IndexHNSWFlat(embeddings.shape[1], parameters["m"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = parameters["ef_construction"]
    index.hnsw.efSearch = parameters["ef_search"]
    for _, block in embeddings.blocks():
        index.add(block)
    return index


def _lists(embeddings: Embeddings, kind: str, parameters: Mapping[str, int]) -> Any:
    dimension, nlist = embeddings.shape[1], parameters["nlist"]
    by_distance = faiss.IndexFlatL2(dimension)
    arguments = (by_distance, dimension, nlist)
    if kind == "ivf_pq":
        index = faiss.IndexIVFPQ(*arguments, parameters["m"], 8, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.seed = parameters["seed"]
    else:
        quantizer = getattr(faiss.ScalarQuantizer, _QUANTIZERS[parameters["bits"]])
        index = faiss.IndexIVFScalarQuantizer(*arguments, quantizer, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.seed = _ROUNDS, parameters["seed"]
    index.cp.min_points_per_centroid = 1  # `ragx.retriever.kinds.settle` has seen to it
    index.train(_training_vectors(embeddings, nlist, parameters["seed"]))
    for _, block in embeddings.blocks():
        index.add(block)
    by_product = faiss.IndexFlatIP(dimension)
    by_product.add(by_distance.reconstruct_n(0, nlist))
    index.quantizer = by_product
    return index


def _training_vectors(embeddings: Embeddings, nlist: int, seed: int) -> np.ndarray:
    wanted = min(len(embeddings), _TRAINING_PER_CENTROID * max(nlist, 1024))
    rows = np.random.default_rng(seed).choice(len(embeddings), size=wanted, replace=False)
    return embeddings.rows(np.sort(rows))


def _agree(name: str, wanted: object, found: object) -> None:
    if wanted != found:
        raise IndexMismatchError(f"{name} of the FAISS index must be {wanted}, got {found}. Rebuild the index.")
