"""Which passages of a store a search may find: what is not deleted, and what filters allow of that.

One decision: the rows of a filter are worked out once and remembered, for they are asked for at every search.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np

from ragx.filters import PassageFilter
from ragx.records import PassageKey
from ragx.retriever.allowed import Allowed
from ragx.retriever.passages import PassageStore

_FILTERS = 8  # whose rows are remembered


class VisibleRows:
    """The rows of `passages` that are not deleted, by what filters allow of them; many threads may ask.

    Attributes:
        hidden: the rows of `deleted`, ascending.
    """

    def __init__(self, passages: PassageStore, deleted: frozenset[PassageKey]) -> None:
        self._passages = passages
        self.hidden = sorted(passages.rows_of(deleted).values()) if deleted else []
        self._known: OrderedDict[frozenset[PassageFilter], Allowed | None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._passages) - len(self.hidden)

    def allowed(self, filters: frozenset[PassageFilter]) -> Allowed | None:
        """The rows that all of `filters` allow; None where those are all rows of the store."""
        with self._lock:
            if filters in self._known:
                self._known.move_to_end(filters)
                return self._known[filters]
        rows = self._rows(filters)  # outside the lock: no search waits for another's filter
        with self._lock:
            self._known[filters] = rows
            if len(self._known) > _FILTERS:
                self._known.popitem(last=False)
        return rows

    def _rows(self, filters: frozenset[PassageFilter]) -> Allowed | None:
        mask = np.ones(len(self._passages), dtype=bool)
        mask[self.hidden] = False
        for one in filters:
            mask &= self._passages.mask(one)
        return None if mask.all() else Allowed(mask)
