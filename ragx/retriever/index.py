"""Maximum inner product search over d(z), section 2.2, in one of the kinds of `ragx.retriever.kinds`.

    top-k of  d(z) . q(x)        inner product, never distance: vectors are not normalised

A searcher finds candidates; their scores are computed again from the stored vectors, each pair alone, by one float32
kernel. So a score depends on neither the batch nor the index kind, equal vectors get equal scores, and ties are ordered
by row. What a filter keeps out never becomes a candidate.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from operator import gt
from pathlib import Path

import numpy as np

from ragx.errors import ShapeError
from ragx.retriever.allowed import Allowed, n_found
from ragx.retriever.approximate import FaissSearcher
from ragx.retriever.embeddings import LARGEST, Embeddings
from ragx.retriever.exact import ExactSearcher, FlatSearcher, products, scan
from ragx.retriever.kinds import EXACT, resolve_parameters, settle
from ragx.retriever.on_device import TorchSearcher

_SPARE = 8  # candidates beyond n_docs, among which ties at the edge are settled
_TOO_FEW = 0.05  # a filter that leaves less of the corpus is searched exactly: a graph would be walked in vain
_logger = logging.getLogger(__name__)


class VectorIndex:
    """Searches (N, D) vectors.

    Attributes:
        kind, parameters: what was built, which may be less than was asked for; see `kinds.settle`.
        embeddings: as stored. Never written to.
        dimension: D.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        *,
        kind: str,
        parameters: Mapping[str, int],
        exact: ExactSearcher,
        nearly: FaissSearcher | None = None,
    ) -> None:
        self.embeddings, self.kind, self.parameters = embeddings, kind, dict(parameters)
        self._exact, self._nearly = exact, nearly
        self._count, self.dimension = map(int, embeddings.shape)

    @classmethod
    def build(cls, embeddings: np.ndarray | Embeddings, *, kind: str = "flat", **parameters: int) -> VectorIndex:
        """Indexes `embeddings` (N, D); they are read in blocks and left as they are. Same vectors, same index.

        Raises:
            ConfigError: `kind` or `parameters`.
            ShapeError: not (N, D) with N, D >= 1, or a value that is not finite (the row is named).
        """
        resolve_parameters(kind, parameters)
        vectors = Embeddings.of(embeddings)
        if len(vectors.shape) != 2 or 0 in vectors.shape:
            raise ShapeError(f"embeddings must be (N, D) with N, D >= 1, got {vectors.shape}.")
        vectors.check_finite()
        kind, settled = settle(kind, parameters, count=len(vectors), dimension=vectors.shape[1])
        nearly = None if kind in EXACT else FaissSearcher.build(vectors, kind=kind, parameters=settled)
        exact = _exact(vectors, kind, "cpu")
        return cls(vectors, kind=kind, parameters=settled, exact=exact, nearly=nearly)

    def write(self, path: str | Path) -> bool:
        """Writes what there is beside the vectors, in FAISS's own format; False where there is nothing."""
        if self._nearly is None:
            return False
        self._nearly.write(Path(path))
        return True

    @classmethod
    def read(
        cls,
        path: str | Path,
        embeddings: np.ndarray | Embeddings,
        *,
        kind: str,
        parameters: Mapping[str, int],
        device: str = "cpu",
    ) -> VectorIndex:
        """Maps what `write` wrote, beside the vectors it was built from.

        Args:
            parameters: as `build` settled them.
            device: that searches, for `torch`.

        Raises:
            IndexMismatchError: unreadable, or of another metric, kind, dimension or count.
        """
        vectors, settled = Embeddings.of(embeddings), resolve_parameters(kind, parameters)
        nearly = None
        if kind not in EXACT:
            nearly = FaissSearcher.read(Path(path), vectors, kind=kind, parameters=settled)
        exact = _exact(vectors, kind, device)
        return cls(vectors, kind=kind, parameters=settled, exact=exact, nearly=nearly)

    def __len__(self) -> int:
        return self._count

    def search(
        self, query_embeds: np.ndarray, n_docs: int, *, allowed: Allowed | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows (B, K) int64 and scores q.d (B, K) float32, best first, ties by row; no row is ever -1.

        Args:
            allowed: the rows that exist for this search. K is `n_docs`, or how many there are where those are fewer.

        Raises:
            ConfigError: `n_docs` below 1 or beyond the number of passages, or nothing allowed.
            ShapeError: `query_embeds` is not (B, D), or not finite.
        """
        n_docs = n_found(n_docs, self._count, allowed)
        self._require_shape(query_embeds)
        if self._nearly is None or (allowed is not None and allowed.share < _TOO_FEW):
            return self._search_exactly(_finite(query_embeds), n_docs, allowed)
        return self._search_nearly(self._nearly, query_embeds, n_docs, allowed)

    def search_exactly(self, query_embeds: np.ndarray, n_docs: int) -> tuple[np.ndarray, np.ndarray]:
        """As `search`, every vector compared; what recall is measured against."""
        self._require_shape(query_embeds)
        return self._search_exactly(_finite(query_embeds), n_docs, None)

    def _require_shape(self, query_embeds: np.ndarray) -> None:
        if query_embeds.ndim != 2 or query_embeds.shape[1] != self.dimension or not len(query_embeds):
            raise ShapeError(
                f"query_embeds must be (B, {self.dimension}) as the index's vectors are, got {query_embeds.shape}. "
                "Use the query encoder that belongs to the index."
            )

    def _search_exactly(
        self, queries: np.ndarray, n_docs: int, allowed: Allowed | None, *, spare: int = _SPARE
    ) -> tuple[np.ndarray, np.ndarray]:
        available = len(self) if allowed is None else allowed.count
        fetch = min(available, n_docs + spare)
        rough, found = self._exact.candidates(queries, fetch, allowed)
        rows, scores = self._rank(queries, found, n_docs)
        if fetch < available:
            # A row that was not fetched might tie with the last one returned: look further for those queries.
            unsettled = rough[:, -1] >= scores[:, -1] - self._exact.tolerance * self._sizes(queries, found)
            if unsettled.any():
                rows[unsettled], scores[unsettled] = self._search_exactly(
                    queries[unsettled], n_docs, allowed, spare=4 * (n_docs + spare)
                )
        return rows, scores

    def _search_nearly(
        self, searcher: FaissSearcher, query_embeds: np.ndarray, n_docs: int, allowed: Allowed | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """FAISS's own ranking of the candidates, and ours for the queries whose order that does not settle."""
        available = self._count if allowed is None else allowed.count
        fetch = min(available, max(n_docs + 1, searcher.rerank))
        ranked = searcher.ranked(query_embeds, n_docs + 1, fetch, allowed)
        if ranked is None:
            return self._search_candidates(searcher, _finite(query_embeds), n_docs, fetch, allowed)
        rows, scores = ranked[0][:, :n_docs], ranked[1][:, :n_docs]
        unsettled = [number for number, found in enumerate(ranked[1].tolist()) if not _falls(found)]
        if unsettled:
            rows[unsettled], scores[unsettled] = self._search_candidates(
                searcher, _finite(query_embeds[unsettled]), n_docs, fetch, allowed
            )
        return rows, scores

    def _search_candidates(
        self, searcher: FaissSearcher, queries: np.ndarray, n_docs: int, fetch: int, allowed: Allowed | None
    ) -> tuple[np.ndarray, np.ndarray]:
        found = searcher.candidates(queries, fetch, allowed)
        short = found[:, n_docs - 1] < 0
        if short.any():
            if short.mean() > 0.01:
                _logger.warning(
                    "the index found fewer than %d passages for %d of %d queries, which were searched exactly; "
                    "raise ef_search of hnsw, nprobe of sq and ivf_pq",
                    n_docs,
                    int(short.sum()),
                    len(queries),
                )
            found[short] = -1
            found[short, :n_docs] = scan(self.embeddings, queries[short], n_docs, allowed)[1]
        return self._rank(queries, found, n_docs)

    def _rank(self, queries: np.ndarray, found: np.ndarray, n_docs: int) -> tuple[np.ndarray, np.ndarray]:
        """The best `n_docs` of the rows `found` (B, F), and their scores; a row of -1 comes after all others."""
        scores = products(self.embeddings, queries, found)
        order = np.lexsort((np.where(found < 0, len(self), found), -scores))[:, :n_docs]
        return np.take_along_axis(found, order, 1), np.take_along_axis(scores, order, 1)

    def _sizes(self, queries: np.ndarray, found: np.ndarray) -> np.ndarray:
        """|q| |d| of each query with the longest of its `found` (B, F), which rounding errors are relative to."""
        longest = [np.linalg.norm(self.embeddings.rows(rows), axis=1).max() for rows in found]
        return np.linalg.norm(queries, axis=1) * np.array(longest)


def _falls(scores: list[float]) -> bool:
    """Whether each score is below the one before it: then none is NaN, only the last may stand for no passage."""
    return scores[0] < math.inf and all(map(gt, scores, scores[1:]))  # plain Python: one call of NumPy costs as much


def _finite(query_embeds: np.ndarray) -> np.ndarray:
    queries = np.ascontiguousarray(query_embeds, dtype=np.float32)
    if not (np.abs(queries) <= LARGEST).all():  # false for NaN too
        raise ShapeError(
            f"query_embeds must be finite and at most {LARGEST:g}, got NaN, infinity or more. Check the query encoder."
        )
    return queries


def _exact(embeddings: Embeddings, kind: str, device: str) -> ExactSearcher:
    return TorchSearcher(embeddings, device=device) if kind == "torch" else FlatSearcher(embeddings)
