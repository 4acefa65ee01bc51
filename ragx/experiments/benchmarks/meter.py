"""Seconds and bytes of a piece of work in this process, on a CPU or a CUDA device.

Memory is what the work needs beyond what is held before it (weights, their gradients, optimizer state): the peak of the
resident set minus the resident set, or of CUDA's allocator. Linux alone lets a process set its peak back; elsewhere
memory is None rather than a number that means something else.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

MIB = 2**20
_SETTLE_S = 0.02  # idle threads of the work before may spin for a few milliseconds


class Seconds(NamedTuple):
    """Time of one piece of work: on the wall, and of all threads of the process together."""

    wall: float
    cpu: float


class Meter:
    """Measures on one device."""

    def __init__(self, device: str) -> None:
        self.device, self.cuda = device, torch.device(device).type == "cuda"

    def seconds(self, work: Callable[[], object], *, repeats: int = 1) -> Seconds:
        """The mean time of `repeats` calls in a row, until the device is done."""
        gc.collect()
        self._wait()
        time.sleep(_SETTLE_S)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            work()
        self._wait()
        return Seconds((time.perf_counter() - wall) / repeats, (time.process_time() - cpu) / repeats)

    def extra_mib(self, work: Callable[[], object]) -> float | None:
        """MiB that `work` held at its peak beyond what was held before; None where that cannot be measured."""
        gc.collect()
        self._wait()
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            work()
            self._wait()
            return (torch.cuda.max_memory_allocated() - held) / MIB
        _give_back_free_memory()
        if not _reset_peak():
            return None
        held = _status("VmRSS")
        work()
        return max(0.0, (_status("VmHWM") - held) / MIB)

    def matmul_rate(self, dtype: torch.dtype) -> float:
        """Floating-point operations a second of a large square product: what this device can do with `dtype`."""
        width, repeats = (8192, 20) if self.cuda else (1024, 3)
        left, right = (torch.randn(width, width, device=self.device, dtype=dtype) for _ in range(2))
        left @ right
        return 2 * width**3 / min(self.seconds(lambda: left @ right, repeats=repeats).wall for _ in range(3))

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def _give_back_free_memory() -> None:
    """Free memory that the allocator keeps would count as held, and hide what the work needs."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _status(key: str) -> int:
    """Bytes of a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no line {key}")
