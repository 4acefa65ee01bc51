"""A predictions file that grows batch by batch and survives a kill at any moment.

    predictions.jsonl.partial   grows, one write and one flush to disk per batch
    predictions.jsonl           appears, by a rename, when every question is answered

One decision: a resumed run starts again at a whole batch (a last line cut by a kill, and the batch it stood in, are
dropped), so that each batch meets the same questions as in a run never interrupted and the file ends up the same.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ragx import atomic
from ragx.data.predictions import read_predictions, to_line
from ragx.errors import RagxError
from ragx.records import Example, Prediction

logger = logging.getLogger(__name__)


class PredictionStream:
    """Predictions of `examples`, in their order, on their way to `path`.

    Args:
        path: where the whole file will be.
        examples: the questions; ids must be unique.
        provenance: of every line; lines of another provenance are not mixed in.
        batch_size: a resumed run starts at a multiple of it.

    Raises:
        RagxError: `path` holds answers to other questions or of another provenance.
        DataError: a line of it, other than a last one without its line feed, cannot be read.
    """

    def __init__(
        self, path: str | Path, examples: Sequence[Example], *, provenance: Mapping[str, Any], batch_size: int
    ) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(self.path.name + ".partial")
        self._ids = [example.id for example in examples]
        if len(set(self._ids)) != len(self._ids):
            again = len(self._ids) - len(set(self._ids))
            raise RagxError(f"examples must have unique ids, got {again} again. Rename them")
        if batch_size < 1:
            raise RagxError(f"batch_size must be >= 1, got {batch_size}. It counts questions")
        rows = self._readable(examples, provenance)
        self.done = len(rows)
        if self.done < len(self._ids):
            self.done -= self.done % batch_size
            _rewrite(self.partial, rows[: self.done])
        elif self.partial.exists():
            _rewrite(self.partial, rows)
            self.finish()
        if self.done:
            logger.info("%s: %d of %d questions are already answered", self.path, self.done, len(self._ids))

    @property
    def complete(self) -> bool:
        """Whether every question is answered and the file stands under its name."""
        return self.done == len(self._ids) and self.path.exists()

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The growing file, for `append`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.naming(self.partial), self.partial.open("ab", buffering=0) as handle:
            yield handle

    def append(self, handle: IO[bytes], predictions: Iterable[Prediction]) -> None:
        """Adds one batch, on disk when this returns.

        Raises:
            RagxError: other questions than are next, or a second run that writes to the same path.
            OSError: the disk is full; what was begun of the batch is dropped by the next run.
        """
        batch = list(predictions)
        expected = self._ids[self.done : self.done + len(batch)]
        if [prediction.id for prediction in batch] != expected:
            raise RagxError(
                f"predictions must come in the order of the questions, got {[p.id for p in batch]} for "
                f"{expected}. Yield one for each question"
            )
        if not self._is_partial(handle):
            raise RagxError(
                f"{self.partial} must have one writer, got another run's file in its place. Stop one of them"
            )
        left = memoryview("".join(map(to_line, batch)).encode("utf-8"))
        while left:  # a disk that fills up takes a part and only then refuses
            left = left[handle.write(left) :]
        os.fsync(handle.fileno())
        self.done += len(batch)

    def finish(self) -> None:
        """Gives the whole file its name."""
        if self.done != len(self._ids):
            raise RagxError(f"predictions must answer all {len(self._ids)} questions, got {self.done}. Run it again")
        os.replace(self.partial, self.path)

    def _is_partial(self, handle: IO[bytes]) -> bool:
        try:
            return os.path.samestat(os.fstat(handle.fileno()), self.partial.stat())
        except FileNotFoundError:
            return False

    def _readable(self, examples: Sequence[Example], provenance: Mapping[str, Any]) -> list[Prediction]:
        """What is there already, of the partial file before the whole one, less a torn last line."""
        found = self.partial if self.partial.exists() else self.path
        if not found.exists():
            return []
        rows = read_predictions(found, torn_end=True)
        remedy = f"Remove {found} or choose another path"
        if len(rows) > len(examples):
            raise RagxError(f"{found} must hold at most the {len(examples)} questions asked, got {len(rows)}. {remedy}")
        for row, example in zip(rows, examples, strict=False):
            if (row.id, row.query) != (example.id, example.query):
                raise RagxError(
                    f"{found} must answer the questions asked, in their order, got {row.id!r} where "
                    f"{example.id!r} is asked. {remedy}"
                )
            then, now = row.provenance, provenance
            odd = sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))
            if odd:
                raise RagxError(
                    f"{found} must come from the same run, got other values of {', '.join(odd)} "
                    f"({then.get(odd[0])!r}, now {now.get(odd[0])!r}). {remedy}"
                )
        return rows


def _rewrite(path: Path, rows: Sequence[Prediction]) -> None:
    with atomic.open_file(path) as handle:
        handle.writelines(map(to_line, rows))
