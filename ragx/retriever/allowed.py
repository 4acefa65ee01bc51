"""Which rows a search may look at, in the forms that searches want."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

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
