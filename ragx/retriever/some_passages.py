"""Some passages of many, by row, read when they are asked for: what a deletion leaves, what is new in a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from ragx.records import Passage
from ragx.retriever.passages import PassageStore

_AT_ONCE = 1000  # passages that are read together


class SomePassages(Sequence[Passage]):
    """The `rows` of `passages`, in that order."""

    def __init__(self, passages: Sequence[Passage], rows: np.ndarray) -> None:
        self._passages, self._rows = passages, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Passage]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE]

    @overload
    def __getitem__(self, row: int) -> Passage: ...
    @overload
    def __getitem__(self, row: slice) -> list[Passage]: ...
    def __getitem__(self, row: int | slice) -> Passage | list[Passage]:
        if not isinstance(row, slice):
            return self._passages[int(self._rows[row])]
        if isinstance(self._passages, PassageStore):
            return self._passages.take(self._rows[row])
        return [self._passages[int(number)] for number in self._rows[row]]
