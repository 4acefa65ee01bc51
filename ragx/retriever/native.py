"""The one place that imports faiss, after torch.

Both bring an OpenMP runtime; where two meet, the order of loading decides which one serves, and some orders abort.
Everything else in the package says `from ragx.retriever.native import faiss`.
"""

from __future__ import annotations

import os
from typing import Any

import torch  # isort: skip  (before faiss, see above)
import faiss as _faiss  # isort: skip

faiss: Any = _faiss  # its stubs lack half of it

__all__ = ["faiss"]


def _one_thread() -> None:
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)


# A forked child has the parent's OpenMP state without its threads: a search on several of them would wait for ever.
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_one_thread)
