"""Maximum inner product search over d(z), section 2.2: FAISS, exact (`flat`) or a graph (`hnsw`, the paper's).

    top-k of  d(z) . q(x)        inner product, never distance: vectors are not normalised

FAISS finds candidates; their scores are computed again from the float32 vectors, in float64. So a score depends on
neither the batch nor the index kind, equal vectors get equal scores, and ties are ordered by row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ragx import atomic
from ragx.errors import ConfigError, IndexMismatchError, ShapeError
from ragx.retriever.native import faiss

# Parameters and their defaults. hnsw: links per node, candidates while building, candidates while searching.
KINDS: dict[str, dict[str, int]] = {
    "flat": {},
    "hnsw": {"m": 32, "ef_construction": 200, "ef_search": 128},
}
_LEAST = {"m": 2}  # with one link FAISS ends the process
_CLASSES = {"flat": "IndexFlatIP", "hnsw": "IndexHNSWFlat"}
_BLOCK = 65_536  # rows handed to FAISS, or scanned, at a time
_SPARE = 16  # candidates beyond n_docs, among which ties at the edge are settled
_TOLERANCE = 1e-5  # of FAISS's float32 scores, relative
_logger = logging.getLogger(__name__)


def resolve_parameters(kind: str, parameters: Mapping[str, int] | None = None) -> dict[str, int]:
    """The defaults of `kind` with `parameters` laid over them.

    Raises:
        ConfigError: unknown kind, unknown parameter name, or a value that is too small.
    """
    if kind not in KINDS:
        raise ConfigError([f"kind must be one of {', '.join(KINDS)}, got {kind!r}."])
    given = dict(parameters or {})
    known = ", ".join(KINDS[kind]) or "none"
    problems = [
        f"parameters of {kind} must be among: {known}, got {name!r}." for name in given if name not in KINDS[kind]
    ]
    for name, value in given.items():
        least, whole = _LEAST.get(name, 1), isinstance(value, int) and not isinstance(value, bool)
        if name in KINDS[kind] and not (whole and value >= least):
            problems.append(f"{name} must be an integer >= {least}, got {value!r}.")
    if problems:
        raise ConfigError(problems)
    return {**KINDS[kind], **given}


class VectorIndex:
    """A FAISS index over (N, D) vectors, with the vectors at hand.

    Attributes:
        kind, parameters: what was built.
        embeddings: (N, D) float32; may be a memory map. Never written to.
    """

    def __init__(self, index: Any, embeddings: np.ndarray, *, kind: str, parameters: Mapping[str, int]) -> None:
        self._index, self.embeddings, self.kind, self.parameters = index, embeddings, kind, dict(parameters)
        self._check()

    @classmethod
    def build(cls, embeddings: np.ndarray, *, kind: str = "flat", **parameters: int) -> VectorIndex:
        """Indexes `embeddings` (N, D); the array is read in blocks and left as it is. Same vectors, same index.

        Raises:
            ConfigError: `kind` or `parameters`.
            ShapeError: not (N, D) with N, D >= 1, or a value that is not finite (the row is named).
        """
        settled = resolve_parameters(kind, parameters)
        if embeddings.ndim != 2 or 0 in embeddings.shape:
            raise ShapeError(f"embeddings must be (N, D) with N, D >= 1, got {embeddings.shape}.")
        if embeddings.dtype != np.float32:
            embeddings = embeddings.astype(np.float32)
        for start in range(0, len(embeddings), _BLOCK):
            bad = np.flatnonzero(~np.isfinite(embeddings[start : start + _BLOCK]).all(axis=1))
            if bad.size:
                raise ShapeError(f"embeddings must be finite float32, got NaN or infinity in row {start + bad[0]}.")
        index = _empty_index(embeddings.shape[1], kind, settled)
        threads = faiss.omp_get_max_threads()
        try:
            if kind == "hnsw":
                faiss.omp_set_num_threads(1)  # threads link nodes in the order they come: other bytes each time
            for start in range(0, len(embeddings), _BLOCK):
                index.add(np.ascontiguousarray(embeddings[start : start + _BLOCK]))
        finally:
            faiss.omp_set_num_threads(threads)
        return cls(index, embeddings, kind=kind, parameters=settled)

    def write(self, path: str | Path) -> None:
        """Writes FAISS's own format."""
        with atomic.open_file(path, "wb") as handle:
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(handle.write))

    @classmethod
    def read(cls, path: str | Path, embeddings: np.ndarray, *, kind: str, parameters: Mapping[str, int]) -> VectorIndex:
        """Maps what `write` wrote; `embeddings` are the vectors it was built from.

        Raises:
            IndexMismatchError: unreadable, or of another metric, kind, dimension or count.
        """
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise IndexMismatchError(f"{path} must be a FAISS index, got: {str(error).splitlines()[-1]}") from error
        return cls(index, embeddings, kind=kind, parameters=resolve_parameters(kind, parameters))

    def _check(self) -> None:
        self._agree("metric", faiss.METRIC_INNER_PRODUCT, self._index.metric_type)
        self._agree("kind", _CLASSES[self.kind], type(self._index).__name__)
        self._agree("(count, dimension)", self.embeddings.shape, (self._index.ntotal, self._index.d))
        if self.kind == "hnsw":
            storage = faiss.downcast_index(self._index.storage)
            self._agree("metric of the vectors", faiss.METRIC_INNER_PRODUCT, storage.metric_type)

    @staticmethod
    def _agree(name: str, wanted: object, found: object) -> None:
        if wanted != found:
            raise IndexMismatchError(f"{name} of the FAISS index must be {wanted}, got {found}. Rebuild the index.")

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        """D."""
        return int(self._index.d)

    def search(self, query_embeds: np.ndarray, n_docs: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows (B, n_docs) int64 and scores q.d (B, n_docs) float32, best first, ties by row; no row is ever -1.

        Raises:
            ConfigError: `n_docs` below 1 or beyond the number of passages.
            ShapeError: `query_embeds` is not (B, D), or not finite.
        """
        if not 1 <= n_docs <= len(self):
            raise ConfigError([f"n_docs must lie between 1 and the {len(self)} passages of the index, got {n_docs}."])
        if query_embeds.ndim != 2 or query_embeds.shape[1] != self.dimension or not len(query_embeds):
            raise ShapeError(
                f"query_embeds must be (B, {self.dimension}) as the index's vectors are, got {query_embeds.shape}. "
                "Use the query encoder that belongs to the index."
            )
        queries = np.ascontiguousarray(query_embeds, dtype=np.float32)
        if not np.isfinite(queries).all():
            raise ShapeError("query_embeds must be finite, got NaN or infinity. Check the query encoder.")
        if self.kind == "flat":
            return self._search_flat(queries, n_docs, min(len(self), n_docs + _SPARE))
        return self._search_graph(queries, n_docs)

    def _search_flat(self, queries: np.ndarray, n_docs: int, fetch: int) -> tuple[np.ndarray, np.ndarray]:
        rough, candidates = self._index.search(queries, fetch)
        rows, scores = self._rank(queries, candidates, n_docs)
        if fetch < len(self):
            # A row that was not fetched might tie with the last one returned: look further for those queries.
            edge = scores[:, -1]
            unsettled = rough[:, -1] >= edge - _TOLERANCE * np.maximum(1.0, np.abs(edge))
            if unsettled.any():
                rows[unsettled], scores[unsettled] = self._search_flat(
                    queries[unsettled], n_docs, min(len(self), 4 * fetch)
                )
        return rows, scores

    def _search_graph(self, queries: np.ndarray, n_docs: int) -> tuple[np.ndarray, np.ndarray]:
        settings = faiss.SearchParametersHNSW(efSearch=max(self.parameters["ef_search"], n_docs))
        _, candidates = self._index.search(queries, n_docs, params=settings)
        short = (candidates < 0).any(axis=1)
        if short.any():
            if short.mean() > 0.01:
                _logger.warning(
                    "the graph found fewer than %d passages for %d of %d queries, which were searched exactly; "
                    "raise ef_search",
                    n_docs,
                    int(short.sum()),
                    len(queries),
                )
            candidates[short] = self._scan(queries[short], n_docs)
        return self._rank(queries, candidates, n_docs)

    def _scan(self, queries: np.ndarray, n_docs: int) -> np.ndarray:
        best_scores = np.empty((len(queries), 0), dtype=np.float32)
        best_rows = np.empty((len(queries), 0), dtype=np.int64)
        for start in range(0, len(self), _BLOCK):
            scores = queries @ np.asarray(self.embeddings[start : start + _BLOCK]).T
            rows = np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)
            scores, rows = np.concatenate([best_scores, scores], 1), np.concatenate([best_rows, rows], 1)
            kept = np.argsort(-scores, axis=1, kind="stable")[:, :n_docs]
            best_scores, best_rows = np.take_along_axis(scores, kept, 1), np.take_along_axis(rows, kept, 1)
        return best_rows

    def _rank(self, queries: np.ndarray, candidates: np.ndarray, n_docs: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.empty((len(queries), n_docs), dtype=np.int64)
        scores = np.empty((len(queries), n_docs), dtype=np.float32)
        for number, (query, found) in enumerate(zip(queries.astype(np.float64), candidates, strict=True)):
            exact = (self.embeddings[found].astype(np.float64) @ query).astype(np.float32)
            order = np.lexsort((found, -exact))[:n_docs]
            rows[number], scores[number] = found[order], exact[order]
        return rows, scores


def _empty_index(dimension: int, kind: str, parameters: Mapping[str, int]) -> Any:
    if kind == "flat":
        return faiss.IndexFlatIP(dimension)
    index = faiss.IndexHNSWFlat(dimension, parameters["m"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = parameters["ef_construction"]
    index.hnsw.efSearch = parameters["ef_search"]
    return index
