"""One edit of an index folder at a time: two would build in one place, and the later undo the earlier.

The lock is the operating system's (`flock`) on a file beside the folder, which an edit replaces. It goes with the
process, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragx.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows has no flock; there nothing is locked
    fcntl = None  # type: ignore[assignment]


@contextmanager
def edited_alone(directory: Path) -> Iterator[None]:
    """Holds the index in `directory` against every other edit.

    Raises:
        ConfigError: another one is under way.
    """
    file = directory.parent / f".{directory.name}.lock"
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _locked(descriptor):
                raise ConfigError(
                    [f"index.directory must be edited by one process at a time, got a second for {directory}. Wait."]
                )
            if not _is(file, descriptor):
                continue  # its holder removed it between the two calls
            try:
                yield
            finally:
                file.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _is(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
