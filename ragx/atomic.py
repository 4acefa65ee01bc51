"""Writes that are whole or absent: to a temporary name beside the target, flushed, then renamed.

Whatever stops the process in between (a kill, a full disk) leaves the old content, never half of the new.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_file(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file that becomes `path` when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    encoding = None if "b" in mode else "utf-8"
    newline = None if "b" in mode else "\n"
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, mode, encoding=encoding, newline=newline) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def directory(path: str | Path) -> Iterator[Path]:
    """Yields a temporary folder that becomes `path`, replacing what was there, when the block ends without an error.

    A folder cannot be replaced in one system call: the old one is renamed aside, the new one renamed in, the old one
    deleted. A reader that finds neither sees no folder, never a mixed one; `recover` puts an old one back.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    recover(path)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            if file.is_file():
                _sync(file)
        os.chmod(temporary, 0o755)
        aside = _aside(path)
        if path.exists():
            os.replace(path, aside)
        os.replace(temporary, path)
        _sync(path.parent)
        shutil.rmtree(aside, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        recover(path)
        raise


def recover(path: str | Path) -> None:
    """Puts back the old folder that a kill between the two renames of `directory` left aside."""
    path = Path(path)
    aside = _aside(path)
    if aside.exists():
        if path.exists():
            shutil.rmtree(aside)
        else:
            os.replace(aside, path)


def _aside(path: Path) -> Path:
    return path.parent / f".{path.name}.replaced"
