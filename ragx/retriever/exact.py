"""Exact search: every allowed vector is compared, where it lies.

`flat` hands FAISS's kernel the mapped bytes of embeddings.npy, so there is no second copy, on disk or in memory. What
is not float32 there is compared a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ragx.retriever.allowed import Allowed
from ragx.retriever.embeddings import BLOCK, Embeddings
from ragx.retriever.native import faiss

_FEW = 20  # queries below which FAISS compares them one by one anyway, and may as well skip rows


class ExactSearcher(Protocol):
    """Compares every allowed vector, here or elsewhere."""

    @property
    def tolerance(self) -> float:
        """Error of a score, relative to |q| |d|."""
        ...

    def candidates(self, queries: np.ndarray, fetch: int, allowed: Allowed | None) -> tuple[np.ndarray, np.ndarray]:
        """Float32 scores and rows, both (B, fetch), best first; row -1 where there are no more."""
        ...


class FlatSearcher:
    """Searches the stored vectors by FAISS's kernel for inner products."""

    tolerance = 1e-5  # of a float32 score, relative to |q| |d|

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings

    def candidates(self, queries: np.ndarray, fetch: int, allowed: Allowed | None) -> tuple[np.ndarray, np.ndarray]:
        """See `ExactSearcher`."""
        if self._embeddings.in_place and (allowed is None or len(queries) < _FEW):
            return _nearest(queries, self._embeddings.array, fetch, allowed)
        return scan(self._embeddings, queries, fetch, allowed)


def scan(
    embeddings: Embeddings, queries: np.ndarray, fetch: int, allowed: Allowed | None
) -> tuple[np.ndarray, np.ndarray]:
    """As `FlatSearcher.candidates`, a block at a time: whatever the storage; what is not allowed is not read."""
    scores = np.full((len(queries), fetch), -np.inf, dtype=np.float32)
    rows = np.full((len(queries), fetch), -1, dtype=np.int64)
    for numbers, block in _blocks(embeddings, allowed):
        some, found = _nearest(queries, block, min(fetch, len(block)), None)
        scores, rows = np.concatenate([scores, some], 1), np.concatenate([rows, numbers[found]], 1)
        kept = np.argsort(-scores, axis=1, kind="stable")[:, :fetch]
        scores, rows = np.take_along_axis(scores, kept, 1), np.take_along_axis(rows, kept, 1)
    return scores, rows


def products(embeddings: Embeddings, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Float32 q.d (B, F) of each query with its own `rows` (B, F), -inf where a row is -1.

    FAISS's kernel takes one pair at a time, so a product depends on nothing but its two vectors.
    """
    known = np.maximum(rows, 0)
    if embeddings.in_place:
        found = _pairs(queries, embeddings.array, known)
    else:
        step = max(1, BLOCK // rows.shape[1])
        parts = (slice(start, start + step) for start in range(0, len(rows), step))
        found = np.concatenate([_gathered(embeddings, queries[part], known[part]) for part in parts])
    found[rows < 0] = -np.inf
    return found


def as_faiss(embeddings: Embeddings) -> Any:
    """A flat index over `embeddings`, which are in place, for FAISS to compare candidates with; it copies nothing."""
    index, stored = faiss.IndexFlatIP(embeddings.shape[1]), embeddings.array
    nobody = index.codes.owner  # FAISS is told that nothing need be kept alive
    index.codes = faiss.MaybeOwnedVectorUInt8.create_view(faiss.swig_ptr(stored.view(np.uint8)), stored.nbytes, nobody)
    index.ntotal = len(embeddings)
    index.referenced_objects = [stored]  # FAISS's own way to keep what an index points to
    return index


def _pairs(queries: np.ndarray, vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    found = np.empty(rows.shape, dtype=np.float32)
    faiss.fvec_inner_products_by_idx(
        faiss.swig_ptr(found), faiss.swig_ptr(queries), faiss.swig_ptr(vectors), faiss.swig_ptr(rows),
        queries.shape[1], *rows.shape,
    )  # fmt: skip
    return found


def _gathered(embeddings: Embeddings, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return _pairs(queries, embeddings.rows(rows.ravel()), np.arange(rows.size).reshape(rows.shape))


def _blocks(embeddings: Embeddings, allowed: Allowed | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if allowed is None:
        for start, block in embeddings.blocks():
            yield np.arange(start, start + len(block)), block
        return
    numbers = np.flatnonzero(allowed.mask)
    for start in range(0, len(numbers), BLOCK):
        yield numbers[start : start + BLOCK], embeddings.rows(numbers[start : start + BLOCK])


def _nearest(
    queries: np.ndarray, vectors: np.ndarray, fetch: int, allowed: Allowed | None
) -> tuple[np.ndarray, np.ndarray]:
    scores = np.empty((len(queries), fetch), dtype=np.float32)
    rows = np.empty((len(queries), fetch), dtype=np.int64)
    selector = None if allowed is None else allowed.selector()
    faiss.knn_inner_product(
        faiss.swig_ptr(queries), faiss.swig_ptr(vectors), vectors.shape[1], len(queries), len(vectors), fetch,
        faiss.swig_ptr(scores), faiss.swig_ptr(rows), selector,
    )  # fmt: skip
    return scores, rows
