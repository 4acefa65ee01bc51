"""Encodes a corpus once (sections 2.2 and 3: 21 million passages), on 1..N processes, and goes on after a kill.

    work folder:   embeddings.npy (N, D) in its storage    done: one byte for each window of rows    encoding.json

A window's vectors depend on the window alone. It is written to its place in embeddings.npy, and only when it is on disk
is its byte of `done` set. So whatever stops a run in between, the next one computes the windows that are not marked and
ends with the same bytes, with any number of processes. The folder is taken up only if `encoding.json`, which says what
is encoded with what, is that of the run; otherwise it is begun anew.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm.auto import tqdm

from ragx import atomic
from ragx.errors import ShapeError
from ragx.records import Passage
from ragx.retriever.passage_encoder import PassageEncoder, windows
from ragx.retriever.storage import dtype_of, stored

EMBEDDINGS, DONE, DESCRIPTION = "embeddings.npy", "done", "encoding.json"
_logger = logging.getLogger(__name__)


class Processes(Protocol):
    """What accelerate's `PartialState` and `Accelerator` say of the processes of a run."""

    @property
    def num_processes(self) -> int:
        """How many there are."""
        ...

    @property
    def process_index(self) -> int:
        """This one, from 0, which is the main one."""
        ...

    def wait_for_everyone(self) -> None:
        """Returns when all processes have called it."""
        ...


class Alone:
    """A run of one process."""

    num_processes, process_index = 1, 0

    def wait_for_everyone(self) -> None:
        """Returns at once."""


def encode_corpus(
    passages: Sequence[Passage],
    work: str | Path,
    *,
    passage_encoder: PassageEncoder,
    fingerprint: str,
    storage: str = "fp32",
    batch_size: int = 64,
    processes: Processes | None = None,
    progress: bool = True,
) -> Path:
    """Encodes what is not encoded yet and returns the file embeddings.npy of the work folder, whole.

    Args:
        passages: by row; a `PassageStore` is read a window at a time. All processes must give the same.
        work: made where it is not there. Nothing but files of an encoding may lie in it.
        fingerprint: of the passages (`passages_fingerprint`).
        storage: see `ragx.retriever.storage`.
        batch_size: passages at a time in each process.
        processes: those of the run; None is this one alone.

    Raises:
        ShapeError: no passage, or a vector that is not finite or does not fit the storage.
        OSError: the disk is full, which shows before the first passage is encoded where the system can say so.
    """
    work, processes = Path(work), processes or Alone()
    if not len(passages):
        raise ShapeError("passages must hold at least one passage, got none.")
    shape = (len(passages), passage_encoder.embedding_size)
    parts = windows(len(passages), batch_size=batch_size)
    if processes.process_index == 0:
        description = _described(passage_encoder, fingerprint, len(passages), storage=storage, batch_size=batch_size)
        _prepare(work, description, dtype=dtype_of(storage), shape=shape)
    processes.wait_for_everyone()
    journal = _Journal(work, parts)
    open_parts = [part for part in parts if not journal.has(part)]
    already = journal.rows_done()
    processes.wait_for_everyone()  # from here on the journal changes
    if not open_parts:
        return work / EMBEDDINGS
    mine = open_parts[processes.process_index :: processes.num_processes]
    hide = not progress or processes.process_index != 0
    began = time.monotonic()
    with (
        journal,
        (work / EMBEDDINGS).open("r+b") as file,
        tqdm(total=shape[0], initial=already, desc="encoding passages", unit="passage", disable=hide) as bar,
    ):
        start = np.lib.format.open_memmap(work / EMBEDDINGS, mode="r").offset  # behind the header
        row_bytes = shape[1] * dtype_of(storage).itemsize
        encoded = passage_encoder.encode_windows(passages, mine, batch_size=batch_size, tell=bar.update)
        for rows, vectors in encoded:
            file.seek(start + rows.start * row_bytes)
            file.write(stored(vectors, storage).tobytes())
            file.flush()
            os.fsync(file.fileno())
            journal.mark(rows)
            bar.update(journal.rows_done() - bar.n)  # with the passages of other processes
        processes.wait_for_everyone()
        bar.update(journal.rows_done() - bar.n)
    seconds = time.monotonic() - began
    fresh = shape[0] - already
    _logger.info("encoded %d passages in %.0f s: %.1f a second", fresh, seconds, fresh / max(seconds, 1e-9))
    return work / EMBEDDINGS


def adopt(
    work: str | Path,
    *,
    passage_encoder: PassageEncoder,
    fingerprint: str,
    count: int,
    storage: str = "fp32",
    batch_size: int = 64,
) -> None:
    """Declares the embeddings.npy in `work`, whatever wrote it, to be what `encode_corpus` would be asked for."""
    work = Path(work)
    description = _described(passage_encoder, fingerprint, count, storage=storage, batch_size=batch_size)
    (work / DONE).write_bytes(b"\x01" * description["windows"])
    _describe(work, description)


class _Journal:
    """Which windows are in embeddings.npy, one byte each; each process sets bytes of its own."""

    def __init__(self, work: Path, parts: Sequence[range]) -> None:
        self._file, self._parts = work / DONE, parts
        self._number = {rows.start: number for number, rows in enumerate(parts)}

    def has(self, rows: range) -> bool:
        return self._marks()[self._number[rows.start]] == 1

    def rows_done(self) -> int:
        marks = self._marks()
        return sum(len(rows) for rows, mark in zip(self._parts, marks, strict=True) if mark == 1)

    def mark(self, rows: range) -> None:
        self._handle.seek(self._number[rows.start])
        self._handle.write(b"\x01")
        self._handle.flush()
        os.fsync(self._handle.fileno())

    def _marks(self) -> bytes:
        return self._file.read_bytes()

    def __enter__(self) -> _Journal:
        self._handle = self._file.open("r+b")
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.close()


def _prepare(work: Path, description: dict[str, Any], *, dtype: np.dtype, shape: tuple[int, int]) -> None:
    """Takes up an encoding of the same description, or begins one; the description is written last."""
    work.mkdir(parents=True, exist_ok=True)
    note, count = work / DESCRIPTION, description["windows"]
    if note.is_file() and _read(note) == description and (work / DONE).stat().st_size == count:
        _logger.info("the encoding in %s is taken up", work)
        return
    if note.exists():
        _logger.info("the encoding in %s is of something else and is begun anew", work)
        note.unlink()
    np.lib.format.open_memmap(work / EMBEDDINGS, mode="w+", dtype=dtype, shape=shape)
    try:
        reserve(work / EMBEDDINGS)
    except OSError:
        (work / EMBEDDINGS).unlink()
        raise
    (work / DONE).write_bytes(bytes(count))
    _describe(work, description)


def _described(
    encoder: PassageEncoder, fingerprint: str, count: int, *, storage: str, batch_size: int
) -> dict[str, Any]:
    return {
        "encoder": encoder.fingerprint(),
        "passages": fingerprint,
        "shape": [count, encoder.embedding_size],
        "storage": storage,
        "batch_size": batch_size,
        "windows": len(windows(count, batch_size=batch_size)),
    }


def _describe(work: Path, description: dict[str, Any]) -> None:
    with atomic.open_file(work / DESCRIPTION) as handle:
        json.dump(description, handle, indent=2, sort_keys=True)


def _read(note: Path) -> object:
    try:
        return json.loads(note.read_text(encoding="utf-8"))
    except ValueError:
        return None


def reserve(file: Path) -> None:
    """Takes the room of a mapped file at once: on a full disk the first touch of a page would end the process.

    Raises:
        OSError: there is no room.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    with file.open("r+b") as handle:
        try:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that cannot
                raise
