"""Corpus encoding by Ray actors (extra `ray`), on one machine or many; the vectors are those of one process.

A window of rows is the unit of work, as in `corpus_encoding`, and its vectors depend on the window alone. Actors get
the text of a window and hand its vectors back; this process writes them, keeps the journal and takes up what a kill
left. Each actor loads the checkpoint itself and refuses to work if it is not, by fingerprint, the one asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ragx.errors import CheckpointError
from ragx.records import Passage
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.ray_actors import Actors

TIMEOUT_S = 600.0


class EncodingWorker:
    """A passage encoder in an actor."""

    def __init__(self, checkpoint: str, settings: Mapping[str, Any], fingerprint: str, device: str) -> None:
        self._checkpoint, self._settings, self._fingerprint, self._device = checkpoint, settings, fingerprint, device

    def ready(self) -> None:
        """Loads the checkpoint.

        Raises:
            CheckpointError: another one than this actor was made for.
        """
        pooling, max_length = self._settings["pooling"], self._settings["max_length"]
        self._encoder = PassageEncoder.from_pretrained(self._checkpoint, pooling=pooling, max_length=max_length)
        found = self._encoder.fingerprint()
        if found != self._fingerprint:
            raise CheckpointError(
                f"passage_encoder {self._checkpoint} must be the same on every machine, got fingerprint {found[:12]} "
                f"where {self._fingerprint[:12]} was asked for. Copy the checkpoint there."
            )
        self._encoder.to(self._device)

    def encode(self, passages: list[Passage], batch_size: int) -> np.ndarray:
        """d(z) of one window, (rows, D) float32."""
        ((_, vectors),) = self._encoder.encode_windows(passages, [range(len(passages))], batch_size=batch_size)
        return vectors


class RayPassageEncoder(PassageEncoder):
    """A passage encoder whose windows are encoded by actors; what is not a window it encodes here.

    Args:
        local: the same encoder in this process.
        checkpoint: folder or hub name that every actor can open.
        workers: actors.
        device: of each; `cuda` takes a GPU of the cluster for each.
        timeout_s: seconds in which each must start, and encode a window.
        options: of Ray for each actor.

    Raises:
        ConfigError: no Ray.
        RagxError, CheckpointError: an actor did not start, or has another checkpoint.
    """

    def __init__(
        self,
        local: PassageEncoder,
        *,
        checkpoint: str,
        workers: int,
        device: str = "cpu",
        timeout_s: float = TIMEOUT_S,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(local._tower)
        given = (checkpoint, local.settings, local.fingerprint(), device)
        options = {"num_gpus": 1 if device == "cuda" else 0, **(options or {})}
        self._actors = Actors(EncodingWorker, [given] * workers, name="worker", timeout_s=timeout_s, options=options)

    def encode_windows(
        self,
        passages: Sequence[Passage],
        parts: Iterable[range],
        *,
        batch_size: int,
        tell: Callable[[int], object] | None = None,
    ) -> Iterator[tuple[range, np.ndarray]]:
        """As `PassageEncoder.encode_windows`; `tell` is called after each window."""
        ranges = list(parts)
        tasks = ((list(passages[rows.start : rows.stop]), batch_size) for rows in ranges)
        for rows, vectors in zip(ranges, self._actors.stream("encode", tasks), strict=True):
            if tell is not None:
                tell(len(rows))
            yield rows, vectors
