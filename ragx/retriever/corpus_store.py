"""A corpus that is read once from its file and then lies on disk by row, while vectors are made of it.

Encoding needs rows in any order and their number in advance, on every process; 21 million passages do not fit in the
memory of one. So the main process writes the text to a folder of its own, which all map and which goes at the end.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ragx.records import Passage
from ragx.retriever.corpus_encoding import Processes
from ragx.retriever.passages import PassageStore


@contextmanager
def on_disk(passages: Iterable[Passage], directory: str | Path, *, processes: Processes) -> Iterator[PassageStore]:
    """The passages in a folder beside `directory`, the index that is built of them; read by the main process alone.

    Raises:
        DataError: as `PassageStore.build`.
    """
    directory = Path(os.path.realpath(directory))  # what lies beside it is then on its disk
    place = directory.parent / f".{directory.name}.passages"
    main = processes.process_index == 0
    try:
        store = PassageStore.build(passages, place) if main else None
        processes.wait_for_everyone()
        yield PassageStore.open(place) if store is None else store
        processes.wait_for_everyone()
    finally:
        if main:
            shutil.rmtree(place, ignore_errors=True)
