"""One job in one run folder: two would overwrite each other's checkpoints and mix their logs.

The lock is the operating system's (`flock`) on a file that stays in the folder and names its holder. It goes with the
process, however that ends, so that a killed run can be resumed at once.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from ragx.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows has no flock; there nothing is locked
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)
LOCK_FILE = ".lock"


@contextmanager
def locked(run_dir: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Holds the folder, which is made if need be, against every other job.

    Args:
        wait: until the other job lets go of it.

    Raises:
        ConfigError: another job holds it; the message names process and host.
    """
    run_dir = Path(run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / LOCK_FILE).open("a+", encoding="utf-8") as handle:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                raise ConfigError([_taken(run_dir, handle.read())]) from None
            except OSError as error:  # a file system without locks
                logger.warning("%s cannot be locked (%s): start no second job there", run_dir, error)
        handle.truncate(0)
        handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)


@contextmanager
def locked_by_all(run_dir: str | Path, accelerator: Accelerator) -> Iterator[None]:
    """As `locked`, held by the main process of a run; all its processes raise where another job holds the folder."""
    with ExitStack() as stack:
        refused: list[str] = []
        if accelerator.is_main_process:
            try:
                stack.enter_context(locked(run_dir))
            except ConfigError as error:
                refused = list(error.problems)
        told: list[list[str]] = broadcast_object_list([refused])
        if told[0]:
            raise ConfigError(told[0])
        yield


def _taken(run_dir: Path, content: str) -> str:
    try:
        holder = json.loads(content)
        who = f"process {holder['pid']} on {holder['host']}"
    except (ValueError, TypeError, KeyError):  # it has the lock and not yet written its name
        who = "another process"
    return (
        f"run_dir must be one job's at a time, got {run_dir}, in which {who} trains. "
        "Wait for it or end it, or choose another folder (hydra.run.dir=... of a script)."
    )
