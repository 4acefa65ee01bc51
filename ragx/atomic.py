"""Writes that are whole or absent: to a temporary name beside the target, flushed, then renamed.

Whatever stops the process in between (a kill, a full disk) leaves the old content, never half of the new. A temporary
name carries its writer, so that the next write to the same target removes what a kill left, and only that.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_RUST_ERROR = re.compile(r"\(os error (\d+)\)")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_file(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file that becomes `path` when the block ends without an error.

    Raises:
        OSError: naming `path`, for instance on a full disk; what was there before is still there.
    """
    path = _followed(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} must be a file, got a folder. Name a file in it.")
    encoding = None if "b" in mode else "utf-8"
    newline = None if "b" in mode else "\n"
    with naming(path):
        descriptor, temporary = tempfile.mkstemp(prefix=_prefix(path), suffix=".tmp", dir=path.parent)
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
def directory(path: str | Path, *, carry: Callable[[Path, Path], None] | None = None) -> Iterator[Path]:
    """Yields a temporary folder that becomes `path`, replacing what was there, when the block ends without an error.

    A folder cannot be replaced in one system call: the old one is renamed aside, the new one renamed in, the old one
    deleted. A reader that finds neither sees no folder, never a mixed one; `recover` puts an old one back, and where a
    reader does so in between, the new one takes its place all the same.

    Args:
        carry: is called with the old folder and the new one when the new one is in its place, for what others wrote
            into the old one meanwhile.

    Raises:
        OSError: naming `path`, for instance on a full disk; what was there before is still there.
    """
    path = _followed(path)
    recover(path)
    aside = _aside(path)
    if path.exists():
        shutil.rmtree(aside, ignore_errors=True)
        if not path.is_dir():
            raise NotADirectoryError(f"{path} must be a folder, got a file. Name another folder.")
    with naming(path):
        temporary = Path(tempfile.mkdtemp(prefix=_prefix(path), suffix=".tmp", dir=path.parent))
        try:
            yield temporary
            for file in sorted(temporary.rglob("*")):
                if file.is_file():
                    _sync(file)
            os.chmod(temporary, 0o755)
            _put(temporary, path, aside)
            _sync(path.parent)
            if carry is not None and aside.exists():
                carry(aside, path)
            shutil.rmtree(aside, ignore_errors=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            recover(path)
            raise


def _put(temporary: Path, path: Path, aside: Path) -> None:
    while True:
        if path.exists():
            os.replace(path, aside)
        try:
            os.replace(temporary, path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and not aside.exists():
                continue  # a reader has put the old one back
            raise
        return


def recover(path: str | Path) -> None:
    """Puts back the old folder that a kill between the two renames of `directory` left aside.

    A writer that lives is waited for, a second at most: it is between its renames for far less.
    """
    path = Path(os.path.realpath(path))
    aside = _aside(path)
    last = time.monotonic() + 1
    while aside.exists() and not path.exists():
        if time.monotonic() < last and _is_written(path):
            time.sleep(0.001)
            continue
        try:
            os.replace(aside, path)
        except OSError:  # the writer has put the new one there, or another reader the old one
            if not path.exists():
                raise


def _aside(path: Path) -> Path:
    return path.parent / f".{path.name}.replaced"


def _followed(path: str | Path) -> Path:
    """The target behind symbolic links, which stay; its parent is made, leftovers of dead writers are removed."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    return path


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Gives an error of the file system the name of the file that was to be written.

    Such errors often name no file, or a temporary one; safetensors and tokenizers raise classes of their own for them.
    """
    try:
        yield
    except OSError as error:
        unnamed = error.filename is None or f"{os.sep}{_prefix(Path(path))}" in str(error.filename)
        if unnamed and error.filename2 is None and error.errno is not None:
            error.filename = str(path)
        raise
    except Exception as error:
        number = _RUST_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def _prefix(path: Path) -> str:
    return f".{path.name}.{_machine()}-{os.getpid()}."


def _machine() -> str:
    """Where process numbers mean the same: a host, and on Linux the namespace (containers count their own)."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return hashlib.blake2b(f"{socket.gethostname()} {namespace}".encode(), digest_size=4).hexdigest()


def _remove_leftovers(path: Path) -> None:
    """Removes temporary names of `path` whose writer was of this machine and is no more; any doubt keeps them."""
    for leftover, writer in _temporary(path):
        if not _lives(writer):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def _is_written(path: Path) -> bool:
    return any(_lives(writer) for _, writer in _temporary(path))


def _temporary(path: Path) -> Iterator[tuple[Path, int]]:
    """The temporary names of `path` that are of this machine, with the process that gave them."""
    start = f".{path.name}.{_machine()}-"
    for found in list(path.parent.iterdir()):
        if found.name.startswith(start) and found.name.endswith(".tmp"):
            writer = found.name.removeprefix(start).split(".")[0]
            if writer.isdecimal():
                yield found, int(writer)


def _lives(process: int) -> bool:
    if os.name != "posix":
        return True  # there, asking by a signal would end the process
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's, or no number of a process
    return True
