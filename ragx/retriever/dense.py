"""Dense retrieval over a frozen index, sections 2.2 and 2.4: opened by mapping, filtered, swapped while in use.

    p(z|x) over the n_docs passages with the largest  d(z) . q(x),  among those that may be seen

A search reads the reference to the `Edition` in use once and a swap replaces it once, so every answer comes from
exactly one edition.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from ragx.filters import PassageFilter
from ragx.records import Passage, PassageKey, Retrieved
from ragx.retriever import recall
from ragx.retriever.edition import Edition
from ragx.retriever.filtered import Asked, FilteredRetriever
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import PassageStore

_logger = logging.getLogger(__name__)


class DenseRetriever(FilteredRetriever):
    """Finds the passages with the largest q.d, ties by row; implements `ragx.protocols.Retriever`.

    Searches by `query_embeds` alone. Safe to ask from many threads.

    Args:
        edition: what it searches first.
        passage_filter: see `FilteredRetriever`.
        open_edition: opens those it is swapped for; `Edition.open`, or another with its arguments and promises.
    """

    def __init__(
        self,
        edition: Edition,
        *,
        passage_filter: PassageFilter | None = None,
        open_edition: Callable[..., Edition] = Edition.open,
    ) -> None:
        super().__init__(passage_filter)
        self._edition, self._open = edition, open_edition
        self._changing = threading.Lock()

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        passage_encoder: PassageEncoder | None = None,
        passage_filter: PassageFilter | None = None,
        verify_hashes: bool | None = None,
        open_edition: Callable[..., Edition] = Edition.open,
    ) -> DenseRetriever:
        """Maps an index folder after checking it.

        Args:
            passage_encoder: the index must have been built with; None checks nothing.
            passage_filter, open_edition: see the class; `partial(Edition.open, device="cuda")` for kind `torch`.
            verify_hashes: see `Manifest.verify`.

        Raises:
            IndexMismatchError: anything differs from the manifest or from what is asked; both sides are shown.
        """
        edition = open_edition(directory, verify_hashes=verify_hashes)
        if passage_encoder is not None:
            edition.require_encoder(passage_encoder)
        return cls(edition, passage_filter=passage_filter, open_edition=open_edition)

    def swap(
        self,
        directory: str | Path,
        *,
        verify_hashes: bool | None = None,
        passage_encoder: PassageEncoder | None = None,
    ) -> None:
        """Hot swap: from the next search on, answers come from `directory`; searches under way end on the old one.

        Args:
            passage_encoder: the new index must have been built with; None for that of the index in use.

        Raises:
            IndexMismatchError: broken, or of another encoder or dimension; the old index keeps answering.
        """
        with self._changing:
            new = self._open(directory, verify_hashes=verify_hashes)
            old = self._edition.manifest
            if passage_encoder is None:
                new.manifest.require_encoder(old.encoder, old.encoder_fingerprint, new.directory)
            else:
                fingerprint = passage_encoder.fingerprint()
                new.manifest.require_encoder(passage_encoder.settings, fingerprint, new.directory)
            new.manifest.require("dimension", old.dimension, new.directory)
            self._edition = new
        _logger.info("edition %s answers in place of %s", new.manifest.edition, old.edition)

    def delete(self, keys: Iterable[PassageKey]) -> None:
        """From the next search on, the passages `keys` are gone, here at once and wherever the folder is opened next.

        Raises:
            DataError: a key that the index does not have; then nothing is deleted.
        """
        with self._changing:
            self._edition = self._edition.without(keys)

    @property
    def fingerprint(self) -> str:
        """Identifies index, passages and encoder together."""
        return self._edition.fingerprint

    @property
    def manifest(self) -> Manifest:
        """What the index in use was built from."""
        return self._edition.manifest

    @property
    def passages(self) -> PassageStore:
        """The passages of the index in use, by row, those that were deleted or may not be seen among them."""
        return self._edition.passages

    @property
    def remaining(self) -> Sequence[Passage]:
        """The passages of the index in use that are not deleted."""
        return self._edition.remaining()

    @property
    def edition(self) -> str:
        """Name of the corpus state in use."""
        return self._edition.manifest.edition

    def index_recall(self, query_embeds: np.ndarray) -> np.ndarray:
        """How much of the exact ten best vectors the index in use finds for each of `query_embeds` (B, D), (B,)."""
        return recall.recall_of_each(self._edition.index, query_embeds, min(recall.K, len(self._edition.index)))

    def __len__(self) -> int:
        return len(self._edition)

    def _find(self, asked: Asked) -> Retrieved:
        vectors = asked.vectors()
        edition = self._edition  # read once: everything below is of one edition
        rows, scores = edition.index.search(vectors, asked.n_docs, allowed=edition.visible.allowed(asked.filters))
        return Retrieved(
            passages=edition.passages.take_each(rows),
            rows=rows,
            doc_embeds=edition.index.embeddings.rows(rows),
            doc_scores=scores,
            index_fingerprint=edition.fingerprint,
        )
