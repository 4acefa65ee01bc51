"""BM25 in place of the dense retriever, the ablation of section 4.5 (table 6).

    p(z|x)  =  softmax over the n_docs passages of  BM25(x, z)        the scores are used as logits, as the paper does

Scoring is `bm25s`. Text is lower-cased and cut into words, title and text alike; nothing is stemmed and no word is
dropped, so that it serves any language that separates words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from torch import Tensor

from ragx import atomic
from ragx.errors import ConfigError, DataError, IndexMismatchError
from ragx.records import Passage, Retrieved
from ragx.retriever import manifest as manifests
from ragx.retriever.manifest import Manifest
from ragx.retriever.passages import PassageStore

PASSAGES_FOLDER = "passages"
SCORES_FOLDER = "bm25"
_WORD = r"(?u)\w+"
_logger = logging.getLogger(__name__)


def _words(text: str) -> list[str]:
    return re.findall(_WORD, text.lower())


class BM25Retriever:
    """Finds passages by words; implements `ragx.protocols.Retriever`."""

    def __init__(self, manifest: Manifest, passages: PassageStore, scorer: Any) -> None:
        self.manifest, self.passages, self._scorer = manifest, passages, scorer

    @classmethod
    def build(
        cls, passages: Iterable[Passage], directory: str | Path, *, edition: str, k1: float = 1.5, b: float = 0.75
    ) -> BM25Retriever:
        """Indexes `passages` into `directory`, whole or not at all, and opens it.

        Args:
            k1, b: BM25's saturation and length normalisation.

        Raises:
            DataError: no passage, or two with one identity.
            ConfigError: a `directory` that holds something else than an index.
        """
        manifests.require_replaceable(directory)
        with atomic.directory(directory) as folder:
            store = PassageStore.build(passages, folder / PASSAGES_FOLDER)
            scorer = bm25s.BM25(k1=k1, b=b)
            # Words to ids in order of appearance, so that the same passages give the same bytes.
            vocabulary: dict[str, int] = {}
            ids = [
                [vocabulary.setdefault(word, len(vocabulary)) for word in _words(f"{passage.title}\n{passage.text}")]
                for passage in store
            ]
            if not vocabulary:
                raise DataError("passages must hold at least one word for BM25, got none.", path=directory)
            scorer.index(bm25s.tokenization.Tokenized(ids=ids, vocab=vocabulary), show_progress=False)
            scorer.save(str(folder / SCORES_FOLDER), show_progress=False)
            Manifest(
                edition=edition,
                encoder_fingerprint="",
                passages_fingerprint=store.fingerprint,
                dimension=0,
                count=len(store),
                kind="bm25",
                parameters={"k1": k1, "b": b, "word": _WORD},
                metric=manifests.BM25,
                files=manifests.describe_files(folder),
                versions=manifests.library_versions(),
            ).write(folder)
        return cls.open(directory)

    @classmethod
    def open(cls, directory: str | Path, *, verify_hashes: bool | None = None) -> BM25Retriever:
        """Maps what `build` wrote, after checking it.

        Raises:
            IndexMismatchError: anything differs from the manifest.
        """
        directory = Path(directory)
        manifest = Manifest.read(directory)
        manifest.require("metric", manifests.BM25, directory)
        manifest.verify(directory, hashes=verify_hashes)
        passages = PassageStore.open(directory / PASSAGES_FOLDER)
        manifest.require("passages_fingerprint", passages.fingerprint, directory)
        scorer = bm25s.BM25.load(str(directory / SCORES_FOLDER), mmap=True, show_progress=False)
        if not manifest.count == len(passages) == scorer.scores["num_docs"]:
            raise IndexMismatchError(
                f"count must agree, got {manifest.count} in the manifest, {len(passages)} passages and "
                f"{scorer.scores['num_docs']} scored. {manifests.rebuild(directory)}"
            )
        return cls(manifest, passages, scorer)

    @property
    def fingerprint(self) -> str:
        """Identifies index and passages together."""
        return self.manifest.fingerprint

    @property
    def edition(self) -> str:
        """Name of the corpus state."""
        return self.manifest.edition

    def __len__(self) -> int:
        return self.manifest.count

    def retrieve(self, queries: Sequence[str], n_docs: int, *, query_embeds: Tensor | None = None) -> Retrieved:
        """The `n_docs` passages with the largest BM25 score for each of B queries, ties by row.

        `query_embeds` is not used. A query without a known word scores 0 everywhere and gets the first rows.

        Raises:
            ConfigError: `n_docs` below 1 or beyond the corpus.
        """
        if not 1 <= n_docs <= len(self):
            raise ConfigError([f"n_docs must lie between 1 and the {len(self)} passages of the index, got {n_docs}."])
        ranked = [self._rank(query, n_docs) for query in queries]
        rows = np.stack([row for row, _ in ranked])
        found = self.passages.take(rows.ravel())
        return Retrieved(
            passages=[found[start : start + n_docs] for start in range(0, len(found), n_docs)],
            rows=rows,
            doc_embeds=None,
            doc_scores=np.stack([scores for _, scores in ranked]),
            index_fingerprint=self.fingerprint,
        )

    def _rank(self, query: str, n_docs: int) -> tuple[np.ndarray, np.ndarray]:
        vocabulary = self._scorer.vocab_dict
        ids = [vocabulary[word] for word in _words(query) if word in vocabulary]
        scores = self._scorer.get_scores_from_ids(ids) if ids else np.zeros(len(self), dtype=np.float32)
        edge = np.partition(scores, len(scores) - n_docs)[len(scores) - n_docs]
        candidates = np.flatnonzero(scores >= edge)
        rows = candidates[np.lexsort((candidates, -scores[candidates]))[:n_docs]]
        return rows.astype(np.int64), scores[rows].astype(np.float32)
