"""Dense retrieval and BM25 over the same passages, fused into one p(z|x); the formulas stand in `fusion`.

`weighted` returns  doc_embeds = w d(z)  and  doc_offsets = (1 - w) r BM25(x, z),  so that the model's

    doc_scores  =  q(x) . doc_embeds + doc_offsets

are the fused scores with their gradient to q(x). `reciprocal_rank` returns scores alone and trains no q(x). A passage
without a word of the query counts as not found by BM25. One decision: both indexes must be over the very same
passages, row by row; their fingerprints are compared when they are opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from ragx.errors import ConfigError, ShapeError
from ragx.filters import PassageFilter
from ragx.records import Retrieved
from ragx.retriever import fusion
from ragx.retriever.allowed import Allowed
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.edition import Edition
from ragx.retriever.exact import products
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import PassageStore

METHODS = ("weighted", "reciprocal_rank")


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """How two rankings become one.

    Attributes:
        method: one of `METHODS`.
        candidates: passages that each of the two finds; n_docs where that is more.
        weight: w of the dense scores, in [0, 1] (`weighted`).
        scale: r, one of `fusion.SCALES` (`weighted`).
        rank_constant: c (`reciprocal_rank`).

    Raises:
        ConfigError: every value out of its range.
    """

    method: str = "weighted"
    candidates: int = 100
    weight: float = 0.5
    scale: str = "deviation"
    rank_constant: float = 60.0

    def __post_init__(self) -> None:
        problems = []
        if self.method not in METHODS:
            problems.append(f"fusion.method must be one of {', '.join(METHODS)}, got {self.method!r}.")
        if self.candidates < 1:
            problems.append(f"fusion.candidates must be >= 1, got {self.candidates}.")
        if not 0 <= self.weight <= 1:
            problems.append(f"fusion.weight must be between 0 and 1, got {self.weight}.")
        if self.scale not in fusion.SCALES:
            problems.append(f"fusion.scale must be one of {', '.join(fusion.SCALES)}, got {self.scale!r}.")
        if not self.rank_constant > 0:
            problems.append(f"fusion.rank_constant must be > 0, got {self.rank_constant}.")
        if problems:
            raise ConfigError(problems)


class HybridRetriever:
    """Finds passages by vectors and by words; implements `ragx.protocols.Retriever`. Safe to ask from many threads.

    Args:
        dense, words: over the same passages.
        settings: how they are fused.
        passage_filter: narrows every search, whatever the search itself asks for.

    Raises:
        IndexMismatchError: other passages, or another order of them.
    """

    def __init__(
        self,
        dense: Edition,
        words: BM25Retriever,
        *,
        settings: FusionSettings,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        words.manifest.require("passages_fingerprint", dense.manifest.passages_fingerprint, words.passages.directory)
        if not words.deleted <= dense.deleted:  # what is gone from one is gone from both
            gone = dense.deleted | words.deleted
            dense = Edition(dense.directory, dense.manifest, dense.passages, dense.index, gone)
        self._dense, self._words, self._settings, self._filter = dense, words, settings, passage_filter
        named = json.dumps([dense.fingerprint, words.fingerprint, asdict(settings)])
        self._fingerprint = hashlib.sha256(named.encode()).hexdigest()

    @classmethod
    def open(
        cls,
        directory: str | Path,
        bm25_directory: str | Path,
        *,
        settings: FusionSettings,
        passage_encoder: PassageEncoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> HybridRetriever:
        """Maps both folders after checking them.

        Raises:
            IndexMismatchError: anything differs from a manifest, from `passage_encoder`, or between the two.
        """
        dense = Edition.open(directory)
        if passage_encoder is not None:
            dense.require_encoder(passage_encoder)
        return cls(dense, BM25Retriever.open(bm25_directory), settings=settings, passage_filter=passage_filter)

    @property
    def fingerprint(self) -> str:
        """Identifies both indexes and how they are fused."""
        return self._fingerprint

    @property
    def manifest(self) -> Manifest:
        """Of the vectors; a checkpoint notes the passage encoder from here."""
        return self._dense.manifest

    @property
    def passages(self) -> PassageStore:
        """The passages by row."""
        return self._dense.passages

    @property
    def edition(self) -> str:
        """Name of the corpus state."""
        return self._dense.manifest.edition

    def __len__(self) -> int:
        return len(self._dense)

    def retrieve(
        self,
        queries: Sequence[str],
        n_docs: int,
        *,
        query_embeds: Tensor | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> Retrieved:
        """The `n_docs` passages with the largest fused score for each of B queries, ties by row; fewer where fewer are
        allowed.

        Args:
            query_embeds: q(x), (B, D); no gradient is kept.
            passage_filter: narrows this search, and the retriever's own filter too.

        Raises:
            ShapeError: `query_embeds` missing, of another shape, or not finite.
            ConfigError: `n_docs` below 1 or beyond the corpus, or no passage allowed.
        """
        if query_embeds is None or len(query_embeds) != len(queries):
            shape = None if query_embeds is None else tuple(query_embeds.shape)
            raise ShapeError(f"query_embeds must hold one vector for each of {len(queries)} queries, got {shape}.")
        vectors = query_embeds.detach().float().cpu().numpy()
        allowed = self._dense.allowed((self._filter, passage_filter))
        count = len(self._dense.passages)
        wide = min(count, max(n_docs, self._settings.candidates))
        fetch = wide if 1 <= n_docs <= count else n_docs  # which the index refuses
        by_vector, _ = self._dense.index.search(vectors, fetch, allowed=allowed)
        width = min(n_docs, by_vector.shape[1])
        fused = [
            self._fuse(query, vector, rows, width, allowed)
            for query, vector, rows in zip(queries, vectors, by_vector, strict=True)
        ]
        rows, scores, offsets = (np.stack(part) for part in zip(*fused, strict=True))
        passages = self.passages.take(rows.ravel())
        weighted = self._settings.method == "weighted"
        embeds = np.float32(self._settings.weight) * self._dense.index.embeddings.rows(rows) if weighted else None
        return Retrieved(
            passages=[passages[start : start + width] for start in range(0, len(passages), width)],
            rows=rows,
            doc_embeds=embeds,
            doc_scores=scores,
            index_fingerprint=self.fingerprint,
            doc_offsets=offsets if weighted else None,
        )

    def _fuse(
        self, query: str, vector: np.ndarray, by_vector: np.ndarray, n_docs: int, allowed: Allowed | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, fused scores and their part that is not q.d, each (n_docs,)."""
        settings, words = self._settings, self._words.scores(query)
        by_words, found = self._words.rank(words, len(by_vector), allowed)
        by_words = by_words[found > 0]
        rows = np.union1d(by_vector, by_words)
        if settings.method == "reciprocal_rank":
            fused = fusion.reciprocal_rank([by_vector.tolist(), by_words.tolist()], constant=settings.rank_constant)
            scores = np.log([fused[row] for row in rows.tolist()])
            offsets = np.zeros(len(rows))
        else:
            dense = products(self._dense.index.embeddings, vector[None], rows[None])[0].astype(np.float64)
            ratio = fusion.scale(dense, words[rows], by=settings.scale)
            offsets = (1 - settings.weight) * ratio * words[rows].astype(np.float64)
            scores = settings.weight * dense + offsets
        scores, offsets = scores.astype(np.float32), offsets.astype(np.float32)
        order = fusion.best(scores, rows, n_docs)
        return rows[order], scores[order], offsets[order]
