"""One side of a comparison at work, in a process of its own or in this one.

Two processes take turns: while one works the other waits. So each has its own heap, whose peak is that of its side
alone, and both meet the same state of the machine within seconds.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers.utils import logging as transformers_logging

from ragx.errors import RagxError
from ragx.experiments.benchmarks.meter import Meter, Seconds
from ragx.retriever.native import faiss

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SHOWN_OPERATIONS = 15


class Side(ABC):
    """What is timed on one side, with everything that it needs already built.

    Attributes:
        n_batches: different inputs; step number i reads input i modulo it.
    """

    n_batches = 1

    @abstractmethod
    def check(self) -> dict[str, Tensor]:
        """What must agree between the sides, in float32, computed before anything is timed."""

    @abstractmethod
    def step(self, number: int) -> None:
        """The work that is timed."""

    def cast(self) -> None:  # noqa: B027  (a hook: most sides have nothing to convert)
        """Turns to the dtype that is timed, after `check`."""

    def flops(self) -> int:
        """Floating-point operations of one step; 0 where nobody counts."""
        return 0


@dataclass(frozen=True)
class Machine:
    """Where both sides run, and in which of `DTYPES`; a timed run repeats its step until `least_seconds` are over."""

    device: str
    dtype: str
    threads: int
    least_seconds: float


class Worker:
    """Builds a side and does what it is told by name."""

    def __init__(self, make: Callable[[], Side], machine: Machine) -> None:
        torch.set_num_threads(machine.threads)
        faiss.omp_set_num_threads(machine.threads)
        self.machine, self.meter = machine, Meter(machine.device)
        self.side = make()
        self.repeats = 1
        gc.collect()
        gc.freeze()  # what lives until the end need not be looked through before each measurement

    def check(self, path: Path) -> None:
        """Writes what must agree."""
        save_file({name: value.detach().cpu().contiguous() for name, value in self.side.check().items()}, path)

    def warm_up(self, steps: int) -> None:
        """Casts, does the first steps, and settles how many steps a timed run takes."""
        self.side.cast()
        seconds = [self.meter.seconds(lambda n=number: self.side.step(n)).wall for number in range(max(1, steps))]  # type: ignore[misc]
        self.repeats = max(1, math.ceil(self.machine.least_seconds / max(seconds[-1], 1e-6)))

    def seconds(self, number: int) -> Seconds:
        """Time of one step."""
        return self.meter.seconds(lambda: self.side.step(number), repeats=self.repeats)

    def extra_mib(self) -> float | None:
        """The most that one step needs, over all inputs."""
        found = [self.meter.extra_mib(lambda n=number: self.side.step(n)) for number in range(self.side.n_batches)]  # type: ignore[misc]
        known = [mib for mib in found if mib is not None]
        return max(known) if known else None

    def process_id(self) -> int:
        """Of the process that works."""
        return os.getpid()

    def flops(self) -> int:
        """See `Side.flops`."""
        return self.side.flops()

    def matmul_rate(self) -> float:
        """See `Meter.matmul_rate`."""
        return self.meter.matmul_rate(DTYPES[self.machine.dtype])

    def profile(self) -> str:
        """torch.profiler's table of the operations that take most of a step."""
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self.meter.cuda
        with profile(activities=activities) as profiler:
            self.side.step(0)
        key = "self_device_time_total" if self.meter.cuda else "self_cpu_time_total"
        table: str = profiler.key_averages().table(sort_by=key, row_limit=SHOWN_OPERATIONS, max_name_column_width=50)
        return table


class Runner(ABC):
    """Calls a worker's methods by name until it is closed."""

    name: str

    @abstractmethod
    def call(self, method: str, *arguments: Any) -> Any:
        """What the worker's method returns, or raises what it raised."""

    @abstractmethod
    def close(self) -> None:
        """Ends the worker."""


class Here(Runner):
    """A worker in this process: starts at once, and both sides share one heap."""

    def __init__(self, make: Callable[[], Side], machine: Machine, *, name: str) -> None:
        self.name = name
        self._threads, self._faiss_threads = torch.get_num_threads(), faiss.omp_get_max_threads()
        self._worker = Worker(make, machine)

    def call(self, method: str, *arguments: Any) -> Any:
        """What the worker's method returns, or raises what it raised."""
        return getattr(self._worker, method)(*arguments)

    def close(self) -> None:
        """Puts the threads back as they were."""
        gc.unfreeze()
        torch.set_num_threads(self._threads)
        faiss.omp_set_num_threads(self._faiss_threads)


class Elsewhere(Runner):
    """A worker in a process of its own."""

    def __init__(self, make: Callable[[], Side], machine: Machine, *, name: str) -> None:
        self.name = name
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        try:
            self._run(_open, make, machine)
        except BaseException:
            self.close()
            raise

    def call(self, method: str, *arguments: Any) -> Any:
        """What the worker's method returns, or raises what it raised; a dead process is a RagxError."""
        return self._run(_call, method, *arguments)

    def close(self) -> None:
        """Ends the process."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self._pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            raise RagxError(
                f"the process of {self.name} must live to the end, got none after it was killed. Memory may have run "
                "out: take a smaller preset, batch_sizes or n_docs."
            ) from error


_worker: Worker | None = None  # of a process that `Elsewhere` started


def _open(make: Callable[[], Side], machine: Machine) -> None:
    global _worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_flush_denormal(True)  # as the scripts do
    transformers_logging.set_verbosity_error()
    _worker = Worker(make, machine)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers, and they would wait for it for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(method: str, *arguments: Any) -> Any:
    return getattr(_worker, method)(*arguments)
