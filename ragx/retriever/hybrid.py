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
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ragx.errors import ConfigError
from ragx.filters import PassageFilter
from ragx.records import Retrieved
from ragx.retriever import fusion
from ragx.retriever.allowed import Allowed
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.edition import Edition
from ragx.retriever.exact import products
from ragx.retriever.filtered import Asked, FilteredRetriever
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


class HybridRetriever(FilteredRetriever):
    """Finds the passages with the largest fused scores, ties by row; implements `ragx.protocols.Retriever`.

    Safe to ask from many threads.

    Args:
        dense, words: over the same passages.
        settings: how they are fused.
        passage_filter: see `FilteredRetriever`.

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
        super().__init__(passage_filter)
        self._dense, self._words, self._settings = dense, words, settings
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

    def _find(self, asked: Asked) -> Retrieved:
        vectors, n_docs = asked.vectors(), asked.n_docs
        allowed = self._dense.visible.allowed(asked.filters)
        count = len(self._dense.passages)
        wide = min(count, max(n_docs, self._settings.candidates))
        fetch = wide if 1 <= n_docs <= count else n_docs  # which the index refuses
        by_vector, _ = self._dense.index.search(vectors, fetch, allowed=allowed)
        width = min(n_docs, by_vector.shape[1])
        fused = [
            self._fuse(query, vector, rows, width, allowed)
            for query, vector, rows in zip(asked.queries, vectors, by_vector, strict=True)
        ]
        rows, scores, offsets = (np.stack(part) for part in zip(*fused, strict=True))
        weighted = self._settings.method == "weighted"
        embeds = np.float32(self._settings.weight) * self._dense.index.embeddings.rows(rows) if weighted else None
        return Retrieved(
            passages=self.passages.take_each(rows),
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
