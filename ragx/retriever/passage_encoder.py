"""d(z), section 2.2: the half of the bi-encoder that stays as it was, so that the index stays valid.

Section 2.4 of the paper: updating it would mean to rebuild the index during training, and is not needed. It is no
`nn.Module` on purpose: no optimizer and no checkpoint of the model can pick its weights up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from ragx.errors import ShapeError
from ragx.records import Passage
from ragx.retriever.tower import Tower

BATCHES_PER_WINDOW = 64  # how much text is tokenized and sorted by length at a time


class PassageEncoder:
    """A frozen text encoder for passages: eval mode, no gradient, its bytes never change."""

    def __init__(self, tower: Tower) -> None:
        self._tower = tower.eval().requires_grad_(False)

    @property
    def tower(self) -> Tower:
        """Transformer and tokenizer."""
        return self._tower

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | Path, *, pooling: str | None = None, max_length: int | None = None
    ) -> PassageEncoder:
        """Loads `DPRContextEncoder`, `BertModel` or any `AutoModel` folder or hub name.

        Args and errors as `QueryEncoder.from_pretrained`.
        """
        return cls(Tower.from_pretrained(path_or_name, role="passage", pooling=pooling, max_length=max_length))

    @property
    def embedding_size(self) -> int:
        """D."""
        return self._tower.embedding_size

    @property
    def settings(self) -> dict[str, str | int]:
        """What the fingerprint covers, for people to read."""
        return {
            "architecture": type(self._tower.model).__name__,
            "pooling": self._tower.pooling,
            "max_length": self._tower.max_length,
        }

    def to(self, device: torch.device | str) -> PassageEncoder:
        """Moves the weights and returns itself."""
        self._tower.to(device)
        return self

    def encode(
        self,
        passages: Sequence[Passage],
        *,
        batch_size: int = 64,
        progress: bool = False,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """d(z), (N, D) float32, in the order of `passages`; title and text are read as a pair.

        Args:
            batch_size: passages at a time; those of like length go together, which changes no vector.
            progress: show a bar.
            out: (N, D) float32 to write into, for example a memory map of embeddings.npy.

        Raises:
            ShapeError: `out` of another shape, or a vector that is not finite (the passage is named).
        """
        shape = (len(passages), self.embedding_size)
        embeds = np.empty(shape, dtype=np.float32) if out is None else out
        if embeds.shape != shape or embeds.dtype != np.float32:
            raise ShapeError(f"out must be float32 of shape {shape}, got {embeds.dtype} of shape {embeds.shape}.")
        with tqdm(total=len(passages), desc="encoding passages", unit="passage", disable=not progress) as bar:
            for rows, vectors in self.encode_windows(
                passages, windows(len(passages), batch_size=batch_size), batch_size=batch_size, tell=bar.update
            ):
                embeds[rows.start : rows.stop] = vectors
        return embeds

    def encode_windows(
        self,
        passages: Sequence[Passage],
        parts: Iterable[range],
        *,
        batch_size: int,
        tell: Callable[[int], object] | None = None,
    ) -> Iterator[tuple[range, np.ndarray]]:
        """For each range of rows of `parts`, in order, the range and its vectors (rows, D) float32.

        The vectors of a range depend on that range alone, bit for bit. A thread reads and tokenizes the next range
        while one is computed.

        Args:
            batch_size: passages at a time; those of like length of one range go together.
            tell: is called after each batch with the number of passages in it.

        Raises:
            ShapeError: `batch_size` below 1, or a vector that is not finite (the passage is named).
        """
        if batch_size < 1:
            raise ShapeError(f"batch_size must be >= 1, got {batch_size}.")

        def read(rows: range) -> tuple[range, Sequence[Passage], list[list[int]]]:
            found = passages[rows.start : rows.stop]
            return rows, found, self._tower.tokenize([p.title for p in found], [p.text for p in found])

        with ThreadPoolExecutor(1, thread_name_prefix="tokenize") as pool:
            ahead = None
            for rows in parts:
                ahead, ready = pool.submit(read, rows), ahead
                if ready is not None:
                    yield self._encode_window(*ready.result(), batch_size=batch_size, tell=tell)
            if ahead is not None:
                yield self._encode_window(*ahead.result(), batch_size=batch_size, tell=tell)

    def _encode_window(
        self,
        rows: range,
        passages: Sequence[Passage],
        token_ids: list[list[int]],
        *,
        batch_size: int,
        tell: Callable[[int], object] | None,
    ) -> tuple[range, np.ndarray]:
        embeds = np.empty((len(rows), self.embedding_size), dtype=np.float32)
        order = sorted(range(len(rows)), key=lambda row: -len(token_ids[row]))
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            vectors = self._embed([token_ids[row] for row in batch])
            self._check_finite(vectors, [passages[row] for row in batch])
            embeds[batch] = vectors
            if tell is not None:
                tell(len(batch))
        return rows, embeds

    def _embed(self, token_ids: Sequence[Sequence[int]]) -> np.ndarray:
        with torch.inference_mode(), self._tower.first_token_only():
            return self._tower(*self._tower.pad(token_ids)).cpu().numpy()

    @staticmethod
    def _check_finite(vectors: np.ndarray, passages: Sequence[Passage]) -> None:
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if bad.size:
            raise ShapeError(
                f"doc_embeds must be finite, got NaN or infinity for {tuple(passages[bad[0]].key)}. "
                "Check the encoder's weights."
            )

    def fingerprint(self) -> str:
        """sha256 over config essentials, pooling, `max_length`, weights and tokenizer."""
        return self._tower.fingerprint()


def windows(count: int, *, batch_size: int) -> list[range]:
    """The rows 0..count-1 in runs of `BATCHES_PER_WINDOW` batches, the last one shorter."""
    size = max(1, batch_size) * BATCHES_PER_WINDOW
    return [range(start, min(start + size, count)) for start in range(0, count, size)]
