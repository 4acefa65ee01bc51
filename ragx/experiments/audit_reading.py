"""Every line of input audited, by any number of processes, and what came of it put on disk.

    lines -> chunks -> workers -> accepted or refused -> three spools on disk, and figures in memory

One decision: finished lines wait on disk and only their places are kept, so that memory grows by a few hundred bytes
for each question. They are written out in the order of the question ids.
"""

from __future__ import annotations

import gc
import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from ragx.errors import DataError
from ragx.experiments.audit_summary import Figures
from ragx.experiments.audit_worker import Auditor, Line, Outcome, Plain
from ragx.jsonl import read_lines

FILES = ("claims", "citations", "stages")
_CHUNK = 200  # lines that a worker takes at a time
_auditor: Auditor | None = None  # of a worker process


class Question(NamedTuple):
    """Where a question stands.

    Attributes:
        qid: its id.
        line: of the input.
        concern: how much the report should show it.
        places: (offset, length) in bytes of its lines in each spool.
    """

    qid: str
    line: int
    concern: int
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Read:
    """What became of all lines: questions sorted by id, and what was refused."""

    questions: Sequence[Question]
    errors: Sequence[DataError]


class Spool:
    """Finished lines on disk; a context manager, so that the disk is free again afterwards."""

    def __enter__(self) -> Spool:
        self._stack = ExitStack()
        self._files: list[IO[bytes]] = [self._stack.enter_context(tempfile.TemporaryFile()) for _ in FILES]
        self._ends = [0] * len(FILES)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, outcome: Outcome) -> Question:
        """Puts the lines of one question away."""
        places = []
        for i, name in enumerate(FILES):
            raw: bytes = getattr(outcome, name)
            self._files[i].write(raw)
            places.append((self._ends[i], len(raw)))
            self._ends[i] += len(raw)
        return Question(outcome.qid, outcome.line, outcome.concern, tuple(places))

    def write_sorted(self, folder: Path, questions: Sequence[Question]) -> None:
        """Writes each file in the order of the questions."""
        for i, name in enumerate(FILES):
            with (folder / f"{name}.jsonl").open("wb") as handle:
                for question in questions:
                    offset, length = question.places[i]
                    self._files[i].seek(offset)
                    handle.write(self._files[i].read(length))


def read_all(auditor: Auditor, spool: Spool, figures: Figures, *, workers: int, lenient: bool) -> Read:
    """Audits every line of the auditor's file.

    Raises:
        DataError: without `lenient`, the first line that is refused.
    """
    questions: list[Question] = []
    errors: list[DataError] = []
    lines: dict[str, int] = {}
    for outcome in _outcomes(auditor, read_lines(auditor.path), workers=workers):
        error = _refused(auditor.path, outcome, lines)
        if error is not None:
            if not lenient:
                raise error
            errors.append(error)
            continue
        assert outcome.scores is not None
        lines.update(dict.fromkeys((outcome.qid, *outcome.ids), outcome.line))
        figures.add(outcome.scores)
        questions.append(spool.add(outcome))
    return Read(sorted(questions), errors)


def _refused(path: Path, outcome: Outcome, lines: dict[str, int]) -> DataError | None:
    """Why a line is no question of this audit: it cannot be read, or one of its ids stands on an earlier line."""
    if outcome.error is not None:
        field, message = outcome.error
        return DataError(message, path=path, line=outcome.line, field=field)
    twice = next((name for name in (outcome.qid, *outcome.ids) if name in lines), None)
    if twice is None:
        return None
    message = f"must be unique, got {twice!r} again (first on line {lines[twice]}). Rename one"
    return DataError(message, path=path, line=outcome.line, field="qid" if twice == outcome.qid else "claims")


def _outcomes(auditor: Auditor, lines: Iterable[Line], *, workers: int) -> Iterator[Outcome]:
    """Outcomes in the order of the lines."""
    if workers == 1:
        with uncollected():
            for line, raw in lines:
                yield auditor.outcome(line, raw)
        return
    chunks = iter(partial(_next_chunk, iter(lines)), [])
    # A forked process has the corpus already; where there is no fork it is sent over once.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    gc.freeze()  # a search for cycles writes into every object, and a page that is written to is shared no longer
    try:
        with multiprocessing.get_context(method).Pool(workers, initializer=_start, initargs=(auditor,)) as pool:
            for outcomes in pool.imap(_audit_chunk, chunks):
                yield from map(Outcome.of, outcomes)
    finally:
        gc.unfreeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the search for reference cycles: an audit makes none, and the search costs a sixth of the time.

    Reading a corpus makes none either; there the search is a third of the time, since all that was read so far is
    searched again and again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _next_chunk(lines: Iterator[Line]) -> list[Line]:
    return list(islice(lines, _CHUNK))


def _start(auditor: Auditor) -> None:
    global _auditor
    _auditor = auditor
    gc.disable()  # the process ends with its work


def _audit_chunk(lines: Sequence[Line]) -> list[Plain]:
    assert _auditor is not None  # the pool's initializer has run
    return [_auditor.outcome(line, raw).plain() for line, raw in lines]
