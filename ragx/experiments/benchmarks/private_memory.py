"""Memory that a process has for itself: what it allocated, without the files that it maps.

    VmRSS  =  RssAnon  +  RssFile  +  RssShmem        /proc/self/status, Linux alone

Pages of a mapped file are counted as resident and yet are the system's to take back, so the resident set of a search
over a mapped index says nothing of what the index needs. A thread looks a hundred times a second: a peak that lasts
less may be missed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATUS = Path("/proc/self/status")
_EVERY_S = 0.01
_MIB = 1024  # lines of the status are in KiB


class PrivatePeak:
    """MiB of private memory: `before` the work, and at most meanwhile (`peak`); None where nobody says."""

    def __init__(self) -> None:
        self.before = private_mib()
        self.peak = self.before

    @property
    def extra(self) -> float | None:
        """At most meanwhile, beyond what there was before."""
        return None if self.peak is None or self.before is None else round(self.peak - self.before, 1)

    def look(self) -> None:
        """Takes notice of what there is now."""
        now = private_mib()
        if now is not None and self.peak is not None:
            self.peak = max(self.peak, now)


def private_mib() -> float | None:
    """MiB that this process allocated and holds; None where the system does not tell."""
    return _mib("RssAnon")


def mapped_mib() -> float | None:
    """MiB of mapped files that lie in memory for this process; None where the system does not tell."""
    return _mib("RssFile")


@contextmanager
def private_peak() -> Iterator[PrivatePeak]:
    """Watches the private memory of this process meanwhile."""
    found, done = PrivatePeak(), threading.Event()

    def watch() -> None:
        while not done.wait(_EVERY_S):
            found.look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()
        found.look()


def _mib(name: str) -> float | None:
    if not _STATUS.exists():
        return None
    for line in _STATUS.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / _MIB
    return None
