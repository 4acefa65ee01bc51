"""Which rows a search may look at, in the forms that searches want, and how many it finds."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ragx.errors import ConfigError
from ragx.retriever.native import faiss


class Allowed:
    """A subset of the N rows of an index; made once, used by many threads.

    Attributes:
        mask: (N,) bool, never written to.
        count: how many are allowed.
    """

    def __init__(self, mask: np.ndarray) -> None:
        self.mask = np.ascontiguousarray(mask, dtype=bool)
        self.mask.flags.writeable = False
        self.count = int(np.count_nonzero(self.mask))
        self._bits = np.packbits(self.mask, bitorder="little")

    @cached_property
    def share(self) -> float:
        """Allowed rows over all rows."""
        return self.count / len(self.mask)

    def selector(self) -> Any:
        """For FAISS; lives no longer than this object."""
        return faiss.IDSelectorBitmap(len(self.mask), faiss.swig_ptr(self._bits))


def n_found(n_docs: int, count: int, allowed: Allowed | None) -> int:
    """How many of `count` rows a search for `n_docs` finds: that many, or all that are allowed where those are fewer.

    Raises:
        ConfigError: `n_docs` below 1 or beyond `count`, or no row allowed.
    """
    if not 1 <= n_docs <= count:
        raise ConfigError([f"n_docs must lie between 1 and the {count} passages of the index, got {n_docs}."])
    if allowed is None:
        return n_docs
    if not allowed.count:
        got = f"at least one of the {count} passages, got none. Widen the filter, or add passages."
        raise ConfigError([f"filter and deletions must leave {got}"])
    return min(n_docs, allowed.count)
