"""metrics.jsonl: one row for each optimizer step, whatever was killed and resumed in between.

A row is appended as soon as its step is done. A run that resumes at step s keeps the rows up to s and drops the others
and any torn last line; the steps it repeats write their rows anew. The file needs no tracker and no network.

    step, loss, reduction, lr/<group>, grad_norm/<group>, distinct_top1, queries, prior_entropy, posterior_entropy,
    kl_posterior_prior (nats; `ragx.training.collapse`), tokens, examples, tokens_per_second, examples_per_second,
    seconds, skipped_steps,
    eval/<metric> where the step was evaluated
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ragx import atomic

# Columns that measure the machine rather than the run: two equal runs differ in these alone.
TIMINGS = ("tokens_per_second", "examples_per_second", "seconds")


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The rows by ascending step; of two rows of one step the last wins, and a torn last line is left out."""
    rows: dict[int, dict[str, Any]] = {}
    path = Path(path)
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # a kill came in the middle of this line; its step is done again
            rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]


class MetricsLog:
    """Appends rows to metrics.jsonl; a context manager.

    Args:
        path: of the file; None writes nothing (a process other than the main one).
        after_step: the last step whose row is kept; 0 starts afresh.
    """

    def __init__(self, path: str | Path | None, *, after_step: int = 0) -> None:
        self._handle: IO[str] | None = None
        if path is not None:
            kept = [row for row in read_metrics(path) if row["step"] <= after_step]
            with atomic.open_file(path) as handle:
                handle.writelines(_line(row) for row in kept)
            self._handle = Path(path).open("a", encoding="utf-8", newline="\n")

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one row, which outlives the process from here on."""
        if self._handle is not None:
            self._handle.write(_line(row))
            self._handle.flush()

    def sync(self) -> None:
        """Makes the rows outlive the machine; called before a checkpoint that counts on them."""
        if self._handle is not None:
            os.fsync(self._handle.fileno())

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.close()


def _line(row: Mapping[str, Any]) -> str:
    """One JSON line; a value that is not a finite number becomes null, which every JSON reader takes."""
    plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
    return json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n"
