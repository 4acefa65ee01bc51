"""Passages that `datasets` saved: a folder of `save_to_disk`, or one of Parquet, JSON, CSV or Arrow files.

The form that transformers' `RagRetriever` reads (`passages_path`) is such a folder with the columns title, text and
embeddings. Rows are read from the mapped Arrow file, a thousand at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ragx.errors import DataError
from ragx.jsonl import Row

_ROWS = 1000


def open_folder(path: str | Path, *, split: str | None = None) -> Any:
    """The data set of a folder.

    Args:
        split: of a folder with several; None takes the only one.

    Raises:
        DataError: no such folder, none that `datasets` reads, or several splits of which none is named.
    """
    import datasets  # half a second that other files do not need

    path = Path(path)
    if not path.is_dir():
        raise DataError("data set must be a folder, got none. Check the path", path=path)
    try:
        saved = (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()
        found = datasets.load_from_disk(str(path)) if saved else datasets.load_dataset(str(path))
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"folder must be one that datasets reads, got: {first}. Save it anew", path=path) from error
    if isinstance(found, dict):
        names = list(found)
        if split is None and len(names) == 1:
            split = names[0]
        if split not in names:
            raise DataError(f"split must be one of {', '.join(names)}, got {split}. Name one", path=path)
        return found[split]
    return found


def rows_of_dataset(rows: Any, *, place: str | Path, without: tuple[str, ...] = ()) -> Iterator[Row]:
    """The rows in order; their lines are row numbers, from 1. `without` names columns that are not read."""
    names = [name for name in rows.column_names if name not in without]
    chosen = rows.select_columns(names)
    for start in range(0, len(chosen), _ROWS):
        columns = chosen[start : start + _ROWS]
        for number, values in enumerate(zip(*columns.values(), strict=True), start=start + 1):
            yield Row(Path(place), number, dict(zip(columns, values, strict=True)))


def vectors_of_dataset(rows: Any, column: str, *, place: str | Path) -> Iterator[np.ndarray]:
    """The vectors of a column, (R, D) float32, some rows at a time, in order.

    Raises:
        DataError: no such column, or one that does not hold vectors of one length.
    """
    if column not in rows.column_names:
        message = (
            f"column must be there with a vector a row, got {rows.column_names}. Name another, or encode the passages"
        )
        raise DataError(message, path=place, field=column)
    numbers = rows.with_format("numpy", columns=[column])
    for start in range(0, len(rows), _ROWS):
        found = numbers[start : start + _ROWS][column]
        try:
            block: np.ndarray = np.asarray(found, dtype=np.float32)
        except (ValueError, TypeError):
            block = np.empty(0)
        if block.ndim != 2:
            message = "must hold vectors of one length, got rows of another kind. Mend the column"
            raise DataError(message, path=place, line=start + 1, field=column)
        yield block
