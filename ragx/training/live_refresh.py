"""Live refresh, an option beyond the paper: d(z) learns too, and the index follows it some steps behind.

    doc_scores        =  q(x) . d(z)                    d(z) of the passages found, with the weights of this very step
    after step k N    the weights of d are noted, and a thread encodes the corpus with them, in eval mode
    after step k N+N  that index takes the place of the one in use; whoever is early waits
    at the end        the index of the last weights, which goes with `checkpoints/last`

So a search finds candidates by vectors that are N to 2N - 1 steps old (at first by those of the index that was given).
One decision: the index of a step follows from the step alone, never from how fast the encoder was; so a run that was
killed anywhere goes on to the same weights. Each noted step has its folder, kept as long as `last` may ask for it:

    run_dir/   refresh/step-<t>/{passage_encoder,index}   index
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from ragx.errors import CheckpointError, ConfigError, TrainingError
from ragx.model import RagModel
from ragx.retriever.building import Encoding, build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.trained_passage_encoder import TrainedPassageEncoder

logger = logging.getLogger(__name__)
FOLDER, ENCODER, INDEX = "refresh", "passage_encoder", "index"


@contextmanager
def live(model: RagModel, *, every: int, run_dir: Path, accelerator: Accelerator) -> Iterator[LiveRefresh | None]:
    """A `LiveRefresh` whose thread ends with the block; None where `every` is 0 and d(z) stands still.

    Raises:
        ConfigError: a passage encoder without `every` or the reverse, no index that can be swapped, or one of another
            passage encoder.
    """
    _require_live(model, every=every)
    if not every:
        yield None
        return
    refresh = LiveRefresh(model, every=every, run_dir=run_dir, accelerator=accelerator)
    try:
        yield refresh
    finally:
        refresh.close()


def _require_live(model: RagModel, *, every: int) -> None:
    encoder, retriever = model.passage_encoder, model.retriever
    if (encoder is not None) != (every > 0):
        got = f"{every} {'with' if encoder is not None else 'without'} a passage encoder that learns"
        raise ConfigError([f"training.live_refresh must be above 0 with model.passage_encoder alone, got {got}."])
    if encoder is None:
        return
    if not isinstance(retriever, DenseRetriever):
        got = type(retriever).__name__
        raise ConfigError([f"training.live_refresh must be 0 without an index of vectors alone, got a {got}."])
    manifest, found = retriever.manifest, encoder.fingerprint()
    if manifest.encoder_fingerprint != found:
        raise ConfigError(
            [
                "retriever.passage_encoder must be the one that the index was built with to be trained on, got "
                f"{found}, the index has {manifest.encoder_fingerprint}. Build the index with it."
            ]
        )


class LiveRefresh:
    """Notes, encodes and swaps; its calls are made by all processes of a run, the main one encodes.

    Args:
        model: whose passage encoder learns and whose retriever, over an index of that encoder, is refreshed.
        every: N.
        run_dir: of the run.
        accelerator: of the run.
    """

    def __init__(self, model: RagModel, *, every: int, run_dir: Path, accelerator: Accelerator) -> None:
        assert isinstance(model.retriever, DenseRetriever) and model.passage_encoder is not None
        self._encoder: TrainedPassageEncoder = model.passage_encoder
        self._retriever: DenseRetriever = model.retriever
        self._every, self._run_dir, self._accelerator = every, run_dir, accelerator
        self._given, self._passages = model.retriever.manifest, model.retriever.remaining
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="refresh", initializer=self._enter_thread)
        self._pending: tuple[int, Future[None]] | None = None
        self.index_step = 0  # whose weights made the vectors in use; 0 for the index that was given

    def start(self, step: int) -> None:
        """Puts everything as it was after `step`."""
        if step == 0 and self._accelerator.is_main_process:
            shutil.rmtree(self._run_dir / FOLDER, ignore_errors=True)  # of a run that is begun anew
        pending = step - step % self._every
        if pending > self._every:
            self._begin(pending - self._every)
            self._swap(pending - self._every)
        if pending:
            if pending == step:
                self._note(step)
            self._begin(pending)

    def after(self, step: int, *, saved: bool) -> None:
        """What belongs after `step`: perhaps a swap, and the weights that are encoded next.

        Args:
            saved: whether a run that was killed goes on after `step`, and no earlier one.
        """
        if saved:
            self._forget(step)
        if step % self._every:
            return
        if step > self._every:
            self._swap(step - self._every)
        self._note(step)
        self._begin(step)

    def _forget(self, step: int) -> None:
        """Removes what a run that goes on after `step` does not ask for."""
        oldest = step - step % self._every - self._every
        if self._accelerator.is_main_process and (self._run_dir / FOLDER).is_dir():
            for folder in (self._run_dir / FOLDER).iterdir():
                number = folder.name.removeprefix("step-")
                if number.isdecimal() and int(number) < oldest:
                    shutil.rmtree(folder)

    def finish(self, checkpoint: Path) -> None:
        """Builds `run_dir/index` with the passage encoder of `checkpoint` and searches it from now on."""
        self.close()
        directory, encoder = self._run_dir / INDEX, self._opened(checkpoint / ENCODER)
        self._together(lambda: self._build(encoder, directory))
        self._retriever.swap(directory, passage_encoder=encoder)
        logger.info(
            "%s goes with %s: index.directory=%s retriever.passage_encoder=%s",
            *(directory, checkpoint, directory, checkpoint / ENCODER),
        )

    def close(self) -> None:
        """Ends the thread; what it has encoded so far is taken up by a run that goes on."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _note(self, step: int) -> None:
        if self._accelerator.is_main_process:
            self._encoder.save_pretrained(self._folder(step) / ENCODER)

    def _begin(self, step: int) -> None:
        if not self._accelerator.is_main_process:
            return
        # Read from the disk, as a run that goes on has to; and here, for a thread should not load weights.
        encoder = self._opened(self._folder(step) / ENCODER)
        stoppable = _Stoppable(encoder, self._stop)
        self._pending = step, self._pool.submit(self._build, stoppable, self._folder(step) / INDEX)

    def _swap(self, step: int) -> None:
        began = time.monotonic()

        def wait() -> None:
            assert self._pending is not None and self._pending[0] == step, "a run swaps what it noted, in order"
            self._pending[1].result()

        self._together(wait)
        folder = self._folder(step)
        self._retriever.swap(folder / INDEX, passage_encoder=self._opened(folder / ENCODER))
        self.index_step = step
        logger.info("the index of step %d is in use; the run waited %.1f s for it", step, time.monotonic() - began)

    def _together(self, work: Callable[[], None]) -> None:
        """Lets the main process do `work`; where that fails, all processes raise."""
        failed: BaseException | None = None
        if self._accelerator.is_main_process:
            try:
                work()
            except Exception as error:
                failed = error
        told = broadcast_object_list([None if failed is None else f"{type(failed).__name__}: {failed}"])[0]
        if failed is not None:
            raise failed
        if told is not None:
            raise TrainingError(f"live refresh must build its index, got in the main process {told}")

    def _build(self, encoder: PassageEncoder, directory: Path) -> None:
        given = self._given
        build_index(
            self._passages,
            passage_encoder=encoder,
            directory=directory,
            edition=given.edition,
            kind=given.kind,
            encoding=Encoding(storage=given.storage),
            progress=False,
            reuse=True,
            **given.parameters,
        )

    def _opened(self, folder: Path) -> PassageEncoder:
        if not folder.is_dir():
            raise CheckpointError(
                f"{folder} must hold the passage encoder that the run goes on with, got nothing. Copy the run whole."
            )
        return PassageEncoder.from_pretrained(folder).to(self._accelerator.device)

    def _folder(self, step: int) -> Path:
        return self._run_dir / FOLDER / f"step-{step:06d}"

    def _enter_thread(self) -> None:
        torch.set_flush_denormal(True)  # as the thread that trains
        if self._accelerator.device.type == "cuda":
            torch.cuda.set_device(self._accelerator.device)


class _Stoppable(PassageEncoder):
    """Encodes until an event is set, so that a run which ends need not wait for the whole corpus."""

    def __init__(self, encoder: PassageEncoder, stop: threading.Event) -> None:
        super().__init__(encoder.tower)
        self._stop = stop

    def encode_windows(self, *arguments: Any, **options: Any) -> Iterator[tuple[range, np.ndarray]]:
        """As the frozen encoder's."""
        for window in super().encode_windows(*arguments, **options):
            if self._stop.is_set():
                raise TrainingError("the run has ended, so its index is encoded no further")
            yield window
