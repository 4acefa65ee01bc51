"""An index of vectors that somebody else made (section 2.2): passages and vectors in, our index folder out.

Vectors are put into their rows by passage id, never by position, and every passage must get one: a corpus and vectors
that differ by one row would otherwise shift all later passages and still look right. Where the encoder is at hand it
encodes a few passages again, which must give the vectors that are there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ragx.errors import DataError
from ragx.records import Passage
from ragx.retriever.building import Encoding, build_index
from ragx.retriever.corpus_encoding import DESCRIPTION, EMBEDDINGS, adopt, reserve
from ragx.retriever.embeddings import Embeddings
from ragx.retriever.manifest import Manifest, require_replaceable
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import PassageStore
from ragx.retriever.spot_check import require_vectors_of

_logger = logging.getLogger(__name__)


class Vectors(NamedTuple):
    """Some vectors, in any order.

    Attributes:
        name: of the file they are from, for messages and the manifest.
        ids: passages' `source`, one a vector; None for the rows that follow the last ones.
        vectors: (R, D) float32.
        note: what the manifest keeps of the file, such as a hash of its ids.
    """

    name: str
    ids: Sequence[str] | None
    vectors: np.ndarray
    note: str = ""


def import_index(
    passages: Iterable[Passage],
    parts: Iterable[Vectors],
    *,
    directory: str | Path,
    edition: str,
    passage_encoder: PassageEncoder | None,
    kind: str = "flat",
    storage: str = "fp32",
    id_prefix: str = "",
    **parameters: int,
) -> Manifest:
    """Writes `directory` from passages and their vectors, both streamed; whole or not at all.

    Args:
        passage_encoder: that made the vectors; None where it is not at hand, and then q(x) is not checked against it.
        kind, storage, parameters: see `build_index`.
        id_prefix: that ids of the vectors have before the passage's, such as `wiki:`.

    Raises:
        DataError: ids that are not in the passages, passages without a vector, an id twice, vectors of unlike length.
        IndexMismatchError: `passage_encoder` gives other vectors.
        ShapeError: a vector that is not finite.
        ConfigError: as `build_index`.
    """
    directory = Path(os.path.realpath(directory))  # what lies beside it is then on its disk
    require_replaceable(directory)
    work, texts = (directory.parent / f".{directory.name}.{name}" for name in ("encoding", "passages"))
    try:
        store = PassageStore.build(passages, texts)
        work.mkdir(parents=True, exist_ok=True)
        for left in (DESCRIPTION, EMBEDDINGS):  # of a run that was stopped; its vectors may be linked into an index
            (work / left).unlink(missing_ok=True)
        placed = _placed(store, parts, work / EMBEDDINGS, storage=storage, id_prefix=id_prefix)
        if passage_encoder is not None:
            advice = "Name the encoder that made them, or null."
            require_vectors_of(passage_encoder, store, placed.embeddings, advice=advice)
        source = _Imported(placed, passage_encoder)
        adopt(work, passage_encoder=source, fingerprint=store.fingerprint, count=len(store), storage=storage)
        return build_index(
            store,
            passage_encoder=source,
            directory=directory,
            edition=edition,
            kind=kind,
            encoding=Encoding(storage=storage),
            progress=False,
            reuse=False,
            **parameters,
        )
    finally:
        for folder in (texts, work):
            shutil.rmtree(folder, ignore_errors=True)


class _Placed(NamedTuple):
    """Vectors in their rows: the file, a hash over what was read, and the notes of the parts by name."""

    embeddings: Embeddings
    sha256: str
    notes: dict[str, str]


def _placed(store: PassageStore, parts: Iterable[Vectors], file: Path, *, storage: str, id_prefix: str) -> _Placed:
    rows: dict[str, int] | None = None
    embeddings: Embeddings | None = None
    filled, digest, notes, next_row = np.zeros(len(store), dtype=bool), hashlib.sha256(), {}, 0
    for part in parts:
        if embeddings is None:
            dimension = part.vectors.shape[1]
            embeddings = Embeddings.create(file, count=len(store), dimension=dimension, storage=storage)
            reserve(file)
        if part.vectors.shape[1:] != embeddings.shape[1:]:
            got = f"{part.vectors.shape[1]} after vectors of length {embeddings.shape[1]}"
            raise DataError(f"vectors must be of one length, got {got}. Give shards of one encoder", path=part.name)
        if part.ids is None:
            places = np.arange(next_row, next_row + len(part.vectors))
            if len(places) and places[-1] >= len(store):
                message = (
                    f"vectors must be as many as the passages, {len(store)}, got more. Give the passages they are of"
                )
                raise DataError(message, path=part.name)
        else:
            rows = _rows_by_id(store) if rows is None else rows
            places = _places(part, rows, id_prefix)
        _require_new(part, places, filled, store)
        vectors = np.ascontiguousarray(part.vectors, dtype=np.float32)
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if bad.size:
            message = f"vectors must be finite, got NaN or infinity for {store[int(places[bad[0]])].source!r}."
            raise DataError(message, path=part.name)
        embeddings.write(places, vectors)  # type: ignore[arg-type]
        filled[places] = True
        digest.update(vectors.tobytes())
        notes[part.name] = part.note
        next_row += len(places)
        _logger.info("%s: %d vectors, %d of %d passages have theirs", part.name, len(places), filled.sum(), len(store))
    missing = np.flatnonzero(~filled)
    if embeddings is None or missing.size:
        got = f"none for {missing.size} of {len(store)} passages, the first {store[int(missing[0])].source!r}"
        message = f"vectors must be there for every passage, got {got}. Give all shards, and the passages they are of"
        raise DataError(message, path=next(iter(notes), file.name))
    embeddings.array.flush()  # type: ignore[attr-defined]
    return _Placed(embeddings, digest.hexdigest(), notes)


def _rows_by_id(store: PassageStore) -> dict[str, int]:
    rows: dict[str, int] = {}
    for row, passage in enumerate(store):
        if passage.source in rows:
            message = f"source must be unique to find a passage by it, got {passage.source!r} again in row {row}."
            raise DataError(message, path=store.directory)
        rows[passage.source] = row
    return rows


def _places(part: Vectors, rows: dict[str, int], id_prefix: str) -> np.ndarray:
    assert part.ids is not None
    places = np.empty(len(part.ids), dtype=np.int64)
    for number, name in enumerate(part.ids):
        row = rows.get(name.removeprefix(id_prefix))
        if row is None:
            message = f"id must be in the passages, got {name!r}. Give the passages these vectors are of, or id_prefix"
            raise DataError(message, path=part.name)
        places[number] = row
    return places


def _require_new(part: Vectors, places: np.ndarray, filled: np.ndarray, store: PassageStore) -> None:
    values, counts = np.unique(places, return_counts=True)
    twice = np.concatenate([values[counts > 1], values[filled[values]]])
    if twice.size:
        name = store[int(twice[0])].source
        raise DataError(f"id must be there once, got {name!r} again. Give each shard once", path=part.name)


class _Imported(PassageEncoder):
    """Stands in for the encoder of vectors that are there: it has a name and a size and encodes nothing."""

    def __init__(self, placed: _Placed, encoder: PassageEncoder | None) -> None:
        self._placed, self._encoder = placed, encoder

    @property
    def embedding_size(self) -> int:
        """D."""
        return int(self._placed.embeddings.shape[1])

    @property
    def settings(self) -> dict[str, Any]:
        """What is known of the encoder, and which files the vectors are from."""
        known: dict[str, Any] = {"imported": True} if self._encoder is None else dict(self._encoder.settings)
        return {**known, "vectors": self._placed.notes}

    def fingerprint(self) -> str:
        """Of the encoder, else over the vectors."""
        return f"imported:{self._placed.sha256}" if self._encoder is None else self._encoder.fingerprint()

    def encode_windows(self, *arguments: Any, **options: Any) -> NoReturn:
        """Nothing is left to encode."""
        raise AssertionError("imported vectors are never encoded again")
