"""BM25 in place of the dense retriever, the ablation of section 4.5 (table 6).

    p(z|x)  =  softmax over the n_docs passages of  BM25(x, z)        the scores are used as logits, as the paper does

Scoring is `bm25s`. Text is lower-cased and cut into words, title and text alike; nothing is stemmed and no word is
dropped, so that it serves any language that separates words. Words are counted over the whole corpus whatever a filter
keeps out, so that a passage's score does not depend on who asks.
"""

from __future__ import annotations

import logging
import math
import re
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from ragx import atomic
from ragx.errors import ConfigError, DataError, IndexMismatchError
from ragx.filters import PassageFilter
from ragx.records import Passage, PassageKey, Retrieved
from ragx.retriever import deletions
from ragx.retriever import manifest as manifests
from ragx.retriever.allowed import Allowed, n_found
from ragx.retriever.filtered import Asked, FilteredRetriever
from ragx.retriever.manifest import Manifest
from ragx.retriever.passages import PassageStore
from ragx.retriever.visible import VisibleRows

PASSAGES_FOLDER = "passages"
SCORES_FOLDER = "bm25"
_WORD = r"(?u)\w+"
_DEFAULTS = {"k1": 1.5, "b": 0.75}
logging.getLogger("bm25s").setLevel(logging.INFO)  # it announces every index at DEBUG, whatever the root says


def resolve_parameters(given: Mapping[str, Any]) -> dict[str, float]:
    """k1 (saturation) and b (length normalisation) with `given` laid over their defaults.

    Raises:
        ConfigError: another name, k1 below 0 or infinite, or b not between 0 and 1.
    """
    problems = [f"parameters of bm25 must be among: k1, b, got {name!r}." for name in given if name not in _DEFAULTS]
    settled = {**_DEFAULTS, **given}
    for name, most in (("k1", math.inf), ("b", 1.0)):
        value = settled[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most or value == math.inf:
            problems.append(f"{name} must be a number from 0{'' if most == math.inf else ' to 1'}, got {value!r}.")
    if problems:
        raise ConfigError(problems)
    return {name: float(value) for name, value in settled.items()}


def _words(text: str) -> list[str]:
    return re.findall(_WORD, text.lower())


class BM25Retriever(FilteredRetriever):
    """Finds the passages with the largest BM25 scores, ties by row; implements `ragx.protocols.Retriever`.

    Reads no `query_embeds`. A query without a known word scores 0 everywhere and gets the first rows. Safe to ask from
    many threads.

    Args:
        manifest, passages, scorer: of one folder, as opened.
        deleted: keys that are hidden though their rows are there.
        passage_filter: see `FilteredRetriever`.
    """

    def __init__(
        self,
        manifest: Manifest,
        passages: PassageStore,
        scorer: Any,
        *,
        deleted: frozenset[PassageKey] = frozenset(),
        passage_filter: PassageFilter | None = None,
    ) -> None:
        super().__init__(passage_filter)
        self.manifest, self.passages, self._scorer = manifest, passages, scorer
        self.deleted, self._visible = deleted, VisibleRows(passages, deleted)

    @classmethod
    def build(
        cls, passages: Iterable[Passage], directory: str | Path, *, edition: str, **parameters: float
    ) -> BM25Retriever:
        """Indexes `passages` into `directory`, whole or not at all, and opens it.

        Args:
            parameters: k1 and b, see `resolve_parameters`.

        Raises:
            DataError: no passage, or two with one identity.
            ConfigError: `parameters`, or a `directory` that holds something else than an index.
        """
        settled = resolve_parameters(parameters)
        manifests.require_replaceable(directory)
        deletions.warn_of(directory, kept=False)
        with atomic.directory(directory) as folder:
            store = PassageStore.build(passages, folder / PASSAGES_FOLDER)
            scorer = bm25s.BM25(**settled)
            # Words to ids in order of appearance, so that the same passages give the same bytes.
            vocabulary: dict[str, int] = {}
            ids = [  # arrays take half the memory of lists
                array("i", (vocabulary.setdefault(word, len(vocabulary)) for word in _words(f"{p.title}\n{p.text}")))
                for p in store
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
                parameters={**settled, "word": _WORD},
                metric=manifests.BM25,
                files=manifests.describe_files(folder),
                versions=manifests.library_versions(),
            ).write(folder)
        return cls.open(directory)

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        passage_filter: PassageFilter | None = None,
        verify_hashes: bool | None = None,
    ) -> BM25Retriever:
        """Maps what `build` wrote, after checking it; passages that were deleted since are hidden.

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
        deleted = deletions.read(directory)
        return cls(manifest, passages, scorer, deleted=deleted, passage_filter=passage_filter)

    @property
    def fingerprint(self) -> str:
        """Identifies index and passages together, those that are deleted apart."""
        return deletions.fingerprint(self.manifest.fingerprint, self.deleted)

    @property
    def edition(self) -> str:
        """Name of the corpus state."""
        return self.manifest.edition

    def __len__(self) -> int:
        return len(self._visible)

    def _find(self, asked: Asked) -> Retrieved:
        allowed = self._visible.allowed(asked.filters)
        ranked = [self.rank(self.scores(query), asked.n_docs, allowed) for query in asked.queries]
        rows = np.stack([found for found, _ in ranked])
        return Retrieved(
            passages=self.passages.take_each(rows),
            rows=rows,
            doc_embeds=None,
            doc_scores=np.stack([scores for _, scores in ranked]),
            index_fingerprint=self.fingerprint,
        )

    def scores(self, query: str) -> np.ndarray:
        """BM25(x, z) of every row, (N,) float32; 0 where no word of the query is in the passage."""
        vocabulary = self._scorer.vocab_dict
        ids = [vocabulary[word] for word in _words(query) if word in vocabulary]
        scores = self._scorer.get_scores_from_ids(ids) if ids else np.zeros(self.manifest.count)
        return np.asarray(scores, dtype=np.float32)

    @staticmethod
    def rank(scores: np.ndarray, n_docs: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the `n_docs` largest `scores` (N,) that are allowed, int64, best first, ties by row; and those.

        Errors as of `n_found`.
        """
        n_docs = n_found(n_docs, len(scores), allowed)
        rows = np.arange(len(scores)) if allowed is None else np.flatnonzero(allowed.mask)
        edge = np.partition(scores[rows], len(rows) - n_docs)[len(rows) - n_docs]
        rows = rows[scores[rows] >= edge]
        rows = rows[np.lexsort((rows, -scores[rows]))[:n_docs]]
        return rows.astype(np.int64), scores[rows]
