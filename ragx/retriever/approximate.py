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
from ragx.retriever.exact import as_faiss
from ragx.retriever.native import faiss

_CLASSES = {"hnsw": "IndexHNSWFlat", "sq": "IndexIVFScalarQuantizer", "ivf_pq": "IndexIVFPQ"}
_QUANTIZERS = {4: "QT_4bit", 6: "QT_6bit", 8: "QT_8bit", 16: "QT_fp16"}
_TRAINING_PER_CENTROID = 64
_ROUNDS = 10  # of k-means


class FaissSearcher:
    """Candidates from a FAISS index over `embeddings`, which FAISS compares again itself where it can.

    A graph holds the vectors as they are: its own scores are theirs, to the bit, and nothing is compared again.
    """

    def __init__(self, index: Any, embeddings: Embeddings, *, kind: str, parameters: Mapping[str, int]) -> None:
        self._index, self._kind, self._parameters = index, kind, dict(parameters)
        self._ranking: Any = None
        if kind == "hnsw":
            self._ranking = index
        elif embeddings.in_place:
            self._ranking = faiss.IndexRefine(index, as_faiss(embeddings))
        self._usual: dict[
            tuple[int | None, int], Any
        ] = {}  # settings without a filter, by how many are kept and fetched

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
        return cls(index, embeddings, kind=kind, parameters=parameters)

    @classmethod
    def read(cls, path: Path, embeddings: Embeddings, *, kind: str, parameters: Mapping[str, int]) -> FaissSearcher:
        """Maps what `write` wrote, beside the vectors that it was built from.

        Raises:
            IndexMismatchError: no FAISS index, or one of another kind, metric or (count, dimension).
        """
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise IndexMismatchError(f"{path} must be a FAISS index, got: {str(error).splitlines()[-1]}") from error
        _check(index, embeddings.shape, kind=kind, parameters=parameters)
        return cls(index, embeddings, kind=kind, parameters=parameters)

    def write(self, path: Path) -> None:
        """Writes FAISS's own format."""
        with atomic.open_file(path, "wb") as handle:
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(handle.write))

    @property
    def rerank(self) -> int:
        """How many candidates are to be compared again by their stored vectors, at least."""
        return self._parameters.get("rerank", 0)

    def candidates(self, queries: np.ndarray, fetch: int, allowed: Allowed | None) -> np.ndarray:
        """Rows (B, fetch), in no order that counts; -1 behind the others where too few were met."""
        rows: np.ndarray = self._index.search(queries, fetch, params=self._settings(None, fetch, allowed))[1]
        return rows

    def ranked(
        self, queries: np.ndarray, keep: int, fetch: int, allowed: Allowed | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The best `keep` of `fetch` candidates: rows and float32 scores by their stored vectors, both (B, keep).

        FAISS compares them again at less than half the price of `candidates` and `products` for one query; it orders
        equal scores as it likes. None where the vectors do not lie in place, or `keep` are not to be had.
        """
        if self._ranking is None or keep > fetch:
            return None
        scores, rows = self._ranking.search(queries, keep, params=self._settings(keep, fetch, allowed))
        return rows, scores

    def _settings(self, keep: int | None, fetch: int, allowed: Allowed | None) -> Any:
        if allowed is not None:
            return self._made(keep, fetch, 1 / allowed.share, allowed.selector())
        wanted = keep, fetch
        return self._usual.get(wanted) or self._usual.setdefault(wanted, self._made(*wanted, 1.0, None))

    def _made(self, keep: int | None, fetch: int, effort: float, selector: Any) -> Any:
        """With a filter that lets one row in ten pass, a search ten times as wide: of what it meets, as many count."""
        settings: Any
        if self._kind == "hnsw":
            width = min(self._index.ntotal, max(self._parameters["ef_search"], fetch) * effort)
            settings = faiss.SearchParametersHNSW(efSearch=int(width), sel=selector)
        else:
            probes = min(self._parameters["nlist"], int(self._parameters["nprobe"] * effort))
            settings = faiss.SearchParametersIVF(nprobe=probes, sel=selector)
        if keep is None or self._kind == "hnsw":
            return settings
        # FAISS takes the whole part of k_factor * keep: half a candidate more outweighs the rounding of a float.
        return faiss.IndexRefineSearchParameters(k_factor=(fetch + 0.5) / keep, base_index_params=settings)


def _check(index: Any, shape: tuple[int, ...], *, kind: str, parameters: Mapping[str, int]) -> None:
    product = faiss.METRIC_INNER_PRODUCT
    _agree("metric", product, index.metric_type)
    _agree("kind", _CLASSES[kind], type(index).__name__)
    _agree("(count, dimension)", shape, (index.ntotal, index.d))
    if kind == "hnsw":
        _agree("metric of the vectors", product, faiss.downcast_index(index.storage).metric_type)
    else:
        _agree("nlist", parameters["nlist"], index.nlist)
        _agree("metric of the lists", product, faiss.downcast_index(index.quantizer).metric_type)


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
