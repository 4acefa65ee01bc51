"""The text behind the rows of an index: Arrow on disk (`datasets`), read memory-mapped.

Row r of the store is vector r of the index, so order is part of the fingerprint, which is

    sha256( for each passage in order:  its JSON with sorted keys, a line feed )

The folder is one that `datasets.load_from_disk` opens, and holds the same bytes whenever the passages are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, overload

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets.arrow_writer import ArrowWriter

from ragx import atomic
from ragx.dates import is_date
from ragx.errors import DataError, IndexMismatchError
from ragx.filters import PassageFilter
from ragx.records import Passage, PassageKey

_DATA_FILE = "data-00000-of-00001.arrow"
_ROWS_PER_BATCH = 1000
_TEXT_FIELDS = ("source", "version", "chunk", "title", "text", "sha256", "valid_from", "valid_to")
_FEATURES = datasets.Features(
    {
        **{name: datasets.Value("string") for name in _TEXT_FIELDS},
        "span": datasets.List(datasets.Value("int64")),
        "acl": datasets.List(datasets.Value("string")),
    }
)


def passages_fingerprint(passages: Iterable[Passage]) -> str:
    """Hex sha256 over content and order of `passages`."""
    digest = hashlib.sha256()
    for passage in passages:
        _update(digest, passage)
    return digest.hexdigest()


def _update(digest: Any, passage: Passage) -> None:
    digest.update(json.dumps(passage.to_json(), sort_keys=True, ensure_ascii=False).encode("utf-8") + b"\n")


class PassageStore(Sequence[Passage]):
    """Passages on disk, by row.

    Attributes:
        directory: the folder.
        fingerprint: of content and order, as noted when the store was built.
    """

    def __init__(self, directory: Path, rows: datasets.Dataset, fingerprint: str) -> None:
        self.directory, self._rows, self.fingerprint = directory, rows, fingerprint

    @classmethod
    def build(cls, passages: Iterable[Passage], directory: str | Path) -> PassageStore:
        """Writes `passages`, whole or not at all, and opens them; one is in memory at a time.

        Raises:
            DataError: no passage, an empty part of an identity, or two with the same identity.
        """
        directory = Path(directory)
        digest, seen, count = hashlib.sha256(), set[bytes](), 0
        with atomic.directory(directory) as folder:
            with ArrowWriter(
                features=_FEATURES, path=str(folder / _DATA_FILE), writer_batch_size=_ROWS_PER_BATCH
            ) as writer:
                for count, passage in enumerate(passages, start=1):
                    _check_identity(passage, count, seen, directory)
                    _update(digest, passage)
                    writer.write(passage.to_json())
                if not count:
                    raise DataError("passages must hold at least one passage, got none.", path=directory)
                writer.finalize()
            _write_metadata(folder, digest.hexdigest())
        return cls.open(directory)

    @classmethod
    def open(cls, directory: str | Path) -> PassageStore:
        """Maps the folder that `build` wrote.

        Raises:
            IndexMismatchError: it is not there or is not whole.
        """
        directory = Path(directory)
        try:
            state = json.loads((directory / "state.json").read_text(encoding="utf-8"))
            rows = datasets.load_from_disk(str(directory), keep_in_memory=False)
        except Exception as error:  # pyarrow, datasets and json each raise their own
            raise IndexMismatchError(
                f"passages must be a folder that PassageStore.build wrote, got {directory}. Rebuild it. {error}"
            ) from error
        if set(rows.column_names) != set(_FEATURES):
            raise IndexMismatchError(
                f"passages must have the columns {sorted(_FEATURES)}, got {sorted(rows.column_names)} in {directory}."
            )
        return cls(directory, rows, str(state["_fingerprint"]))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> Passage: ...
    @overload
    def __getitem__(self, row: slice) -> list[Passage]: ...
    def __getitem__(self, row: int | slice) -> Passage | list[Passage]:
        if isinstance(row, slice):
            return self.take(range(*row.indices(len(self))))
        return Passage.from_json(self._rows[row])

    def __iter__(self) -> Iterator[Passage]:
        for start in range(0, len(self), _ROWS_PER_BATCH):
            yield from self[start : start + _ROWS_PER_BATCH]

    def take(self, rows: Iterable[int]) -> list[Passage]:
        """The passages of `rows`, in that order; a row may repeat."""
        wanted = [int(row) for row in rows]
        if not wanted:
            return []
        columns = self._rows[wanted]
        names = list(columns)
        return [Passage.from_json(dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=True)]

    def take_each(self, rows: np.ndarray) -> list[list[Passage]]:
        """The passages of `rows` (B, K), K for each of B queries."""
        found = iter(self.take(rows.ravel()))
        return [list(islice(found, rows.shape[1])) for _ in rows]

    def mask(self, passage_filter: PassageFilter) -> np.ndarray:
        """Which rows `passage_filter` allows, (N,) bool; the text is not read.

        Raises:
            DataError: a passage with a bound that is no date, where the filter asks for dates.
        """
        allowed = np.ones(len(self), dtype=bool)
        if passage_filter.acl is not None:
            allowed &= self._by_chunk("acl", lambda chunk: _seen(chunk, passage_filter))
        if passage_filter.as_of is not None:
            tests = {"valid_from": passage_filter.starts_in_time, "valid_to": passage_filter.ends_in_time}
            for name, in_time in tests.items():
                allowed &= self._by_chunk(name, lambda chunk, n=name, t=in_time: self._in_time(chunk, n, t))  # type: ignore[misc]
        return allowed

    def rows_of(self, keys: Iterable[PassageKey]) -> dict[PassageKey, int]:
        """The row of each of `keys` that is in the store."""
        wanted = set(keys)
        return {key: row for key, row in self._keys_of({key.source for key in wanted}) if key in wanted}

    def keys_of(self, sources: Iterable[str]) -> list[PassageKey]:
        """The keys of all passages of `sources`, in the order of their rows."""
        return [key for key, _ in self._keys_of(sources)]

    def _keys_of(self, sources: Iterable[str]) -> Iterator[tuple[PassageKey, int]]:
        known = pa.array(sorted(set(sources)), type=pa.string())
        near = np.flatnonzero(self._by_chunk("source", lambda chunk: pc.is_in(chunk, known).to_numpy(False)))
        names = self._rows.select_columns(list(PassageKey._fields))
        for start in range(0, len(near), _ROWS_PER_BATCH):
            rows = near[start : start + _ROWS_PER_BATCH]
            columns = names[rows.tolist()]
            keys = map(PassageKey, *(columns[name] for name in PassageKey._fields))
            yield from zip(keys, map(int, rows), strict=True)

    def _by_chunk(self, name: str, test: Callable[[Any], np.ndarray]) -> np.ndarray:
        return np.concatenate([test(chunk) for chunk in self._rows.data.column(name).chunks])

    def _in_time(self, chunk: Any, name: str, in_time: Callable[[str | None], bool]) -> np.ndarray:
        values = chunk.dictionary_encode("encode")
        known = values.dictionary.to_pylist()
        wrong = [date for date in known if date is not None and not is_date(date)]
        if wrong:
            raise DataError(
                f"{name} must be a date as 2016, 2016-12 or 2016-12-31 to be filtered by, got {wrong[0]!r}.",
                path=self.directory,
            )
        return np.array([in_time(date) for date in known], dtype=bool)[values.indices.to_numpy()]


def _seen(chunk: Any, passage_filter: PassageFilter) -> np.ndarray:
    seen: np.ndarray = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy() == 0
    seen = seen.copy()
    held = pc.is_in(pc.list_flatten(chunk), pa.array(passage_filter.acl or (), type=pa.string()))
    seen[pc.list_parent_indices(chunk).to_numpy()[held.to_numpy(False)]] = True
    return seen


def _check_identity(passage: Passage, number: int, seen: set[bytes], directory: Path) -> None:
    if not all(isinstance(part, str) and part for part in passage.key):
        raise DataError(
            f"identity must be three non-empty strings, got {tuple(passage.key)}.", path=directory, line=number
        )
    # 16 bytes a passage in place of three strings: 21 million passages must fit.
    identity = hashlib.blake2b(json.dumps(passage.key).encode(), digest_size=16).digest()
    if identity in seen:
        raise DataError(
            f"identity must be unique, got {tuple(passage.key)} a second time. Give one of them another chunk.",
            path=directory,
            line=number,
        )
    seen.add(identity)


def _write_metadata(folder: Path, fingerprint: str) -> None:
    datasets.DatasetInfo(features=_FEATURES).write_to_directory(str(folder))
    state: dict[str, Any] = {
        "_data_files": [{"filename": _DATA_FILE}],
        "_fingerprint": fingerprint,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    with atomic.open_file(folder / "state.json") as handle:
        json.dump(state, handle, indent=2, sort_keys=True)
    os.chmod(folder / _DATA_FILE, 0o644)
