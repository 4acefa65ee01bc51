"""One shard of an index, as `ray_search` puts it into an actor; imports little, so that actors start fast."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ragx.retriever.allowed import Allowed
from ragx.retriever.embeddings import Embeddings
from ragx.retriever.exact import FlatSearcher
from ragx.retriever.manifest import Manifest


class Shard:
    """The rows `start` to `stop` of the embeddings `file` of an index."""

    def __init__(self, file: str, fingerprint: str, start: int, stop: int) -> None:
        self._file, self._fingerprint, self._start, self._stop = Path(file), fingerprint, start, stop

    def ready(self) -> None:
        """Maps the rows.

        Raises:
            IndexMismatchError: the folder now holds another index.
        """
        directory = self._file.parent
        manifest = Manifest.read(directory)
        manifest.require("fingerprint", self._fingerprint, directory)
        whole = Embeddings.open(self._file, storage=manifest.storage)
        self._searcher = FlatSearcher(Embeddings(whole.array[self._start : self._stop], manifest.storage))

    def candidates(self, queries: np.ndarray, fetch: int, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Scores and rows of the whole index, (B, K), best first; K is `fetch` or less where there are fewer."""
        allowed = None if mask is None else Allowed(mask)
        fetch = min(fetch, self._stop - self._start if allowed is None else allowed.count)
        if not fetch:
            return np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
        scores, rows = self._searcher.candidates(np.array(queries), fetch, allowed)
        return scores, np.where(rows < 0, -1, rows + self._start)
