"""Work that is done while the step before it runs: the host prepares batch s+1 while the device computes batch s.

One thread, one item ahead. What it does must depend on the item alone; then the run is the same, bit for bit, with the
thread or without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Generic, TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


class Ahead(Generic[S, T]):
    """Iterates over `(item, work(item))`; a context manager, at whose end the thread is gone.

    An error of `work` or of `items` is raised where its item would have been returned.

    Args:
        items: read in the caller's thread.
        work: called in the other thread.
        device: the GPU of this process, where it has one: each thread has to be told.
    """

    def __init__(self, items: Iterator[S], work: Callable[[S], T], *, device: torch.device | None = None) -> None:
        self._items, self._work = items, work
        self._on_gpu = device is not None and device.type == "cuda"
        self._device = device
        self._pending: tuple[S, Future[T]] | None = None

    def __enter__(self) -> Ahead[S, T]:
        initializer = (lambda: torch.cuda.set_device(self._device)) if self._on_gpu else None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ahead", initializer=initializer)
        self._begin_next()
        return self

    def __iter__(self) -> Ahead[S, T]:
        return self

    def __next__(self) -> tuple[S, T]:
        if self._pending is None:
            raise StopIteration
        item, future = self._pending
        result = future.result()
        self._begin_next()
        return item, result

    def settle(self) -> None:
        """Waits until nothing is under way, so that the caller may use what `work` uses (tokenizers, the retriever)."""
        if self._pending is not None:
            wait([self._pending[1]])

    def _begin_next(self) -> None:
        for item in self._items:
            self._pending = item, self._pool.submit(self._work, item)
            return
        self._pending = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
