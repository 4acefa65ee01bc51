"""Corpus encoding by Ray Data (extra `ray`), on one machine or many; the vectors are those of one process.

    windows of rows  ->  actors that hold the encoder  ->  their vectors, in the order of the rows

A window is the unit of work, as in `corpus_encoding`, and its vectors depend on the window alone, so that Ray may give
one to another actor where one died. Actors read the text where the store of passages lies, which all machines must
see; this process writes the vectors, keeps the journal and takes up what a kill left. Each actor loads the checkpoint
itself and refuses to work if it is not, by fingerprint, the one asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ragx.errors import CheckpointError, RagxError
from ragx.records import Passage
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.ray_actors import free_resources, start_ray, within

TIMEOUT_S = 600.0


class EncodingWorker:
    """A passage encoder in an actor of Ray Data."""

    def __init__(
        self, passages: Sequence[Passage], checkpoint: str, settings: Mapping[str, Any], fingerprint: str, device: str
    ) -> None:
        self._passages, self._checkpoint, self._settings = passages, checkpoint, settings
        self._fingerprint, self._device = fingerprint, device
        self._encoder: PassageEncoder | None = None  # till the first call: what a call raises reaches the caller

    def _load(self) -> PassageEncoder:
        pooling, max_length = self._settings["pooling"], self._settings["max_length"]
        encoder = PassageEncoder.from_pretrained(self._checkpoint, pooling=pooling, max_length=max_length)
        found = encoder.fingerprint()
        if found != self._fingerprint:
            raise CheckpointError(
                f"passage_encoder {self._checkpoint} must be the same on every machine, got fingerprint {found[:12]} "
                f"where {self._fingerprint[:12]} was asked for. Copy the checkpoint there."
            )
        return encoder.to(self._device)

    def __call__(self, window: dict[str, np.ndarray], batch_size: int) -> dict[str, Any]:
        """d(z) of the rows `start` to `stop`, (rows, D) float32, as bytes: windows differ in length.

        Raises:
            CheckpointError: another checkpoint than this actor was made for.
            ShapeError: as `PassageEncoder.encode_windows`.
        """
        self._encoder = self._encoder or self._load()
        rows = range(int(window["start"][0]), int(window["stop"][0]))
        ((_, vectors),) = self._encoder.encode_windows(self._passages, [rows], batch_size=batch_size)
        return {"start": window["start"], "vectors": [vectors.tobytes()]}


class RayPassageEncoder(PassageEncoder):
    """A passage encoder whose windows are encoded by actors; what is not a window it encodes here.

    Args:
        local: the same encoder in this process.
        checkpoint: folder or hub name that every actor can open.
        workers: actors.
        device: of each; `cuda` takes a GPU of the cluster for each.
        timeout_s: seconds in which the actors must start, and then the next window be there.
        options: of Ray for each actor.

    Raises:
        ConfigError: no Ray.
        RagxError: Ray did not start.
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
        self._ray = start_ray()
        self._given = (checkpoint, local.settings, local.fingerprint(), device)
        self._workers, self._timeout_s = workers, timeout_s
        self._options = {"num_cpus": 0, "num_gpus": 1 if device == "cuda" else 0, **(options or {})}

    def encode_windows(
        self,
        passages: Sequence[Passage],
        parts: Iterable[range],
        *,
        batch_size: int,
        tell: Callable[[int], object] | None = None,
    ) -> Iterator[tuple[range, np.ndarray]]:
        """As `PassageEncoder.encode_windows`; `tell` is called after each window.

        Raises:
            RagxError: no vectors in time, workers that cannot open the passages, or what a worker raised.
        """
        ranges = list(parts)
        found = self._encoded(passages, ranges, batch_size)
        for number, rows in enumerate(ranges):
            window = self._next(found, seconds=self._timeout_s * (1 if number else 2))
            assert window["start"] == rows.start  # the order is preserved
            vectors = np.frombuffer(window["vectors"], dtype=np.float32).reshape(len(rows), self.embedding_size)
            if tell is not None:
                tell(len(rows))
            yield rows, vectors

    def _encoded(
        self, passages: Sequence[Passage], ranges: Sequence[range], batch_size: int
    ) -> Iterator[dict[str, Any]]:
        from ray import data

        windows = data.from_items(
            [{"start": rows.start, "stop": rows.stop} for rows in ranges], override_num_blocks=len(ranges)
        )
        encoded = windows.map_batches(
            EncodingWorker,
            fn_constructor_args=(passages, *self._given),
            fn_kwargs={"batch_size": batch_size},
            batch_size=1,
            compute=data.ActorPoolStrategy(size=self._workers),
            **self._options,
        )
        context = encoded.context
        context.execution_options.preserve_order = True
        context.raise_original_map_exception = True
        context.wait_for_min_actors_s = int(max(1.0, self._timeout_s))
        context.enable_progress_bars = False  # there is one already
        return iter(encoded.iter_rows())

    def _next(self, found: Iterator[dict[str, Any]], *, seconds: float) -> dict[str, Any]:
        try:
            return within(seconds, lambda: next(found))
        except (TimeoutError, self._ray.exceptions.GetTimeoutError) as error:
            raise RagxError(
                f"ray_workers must start within {self._timeout_s:g} s and encode a window within as many, got nothing. "
                f"{free_resources()}"
            ) from error
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            got = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise RagxError(
                "ray_workers must start and see the folder beside the index where the passages lie, on every machine, "
                f"got: {got}"
            ) from error
