"""Builds a frozen index, sections 2.2 and 2.4: encoded once, written whole or not at all.

    folder:   manifest.json    passages/    embeddings.npy    index.faiss (kinds that have one)

The encoding, which takes hours for millions of passages, lies beside the folder until the index is in its place, so
that a run that was stopped goes on where it stood. Text that an older index of the same encoder has is not encoded
again: to add, delete or re-version passages is to build from the new corpus with `vectors_from` the old index.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ragx import atomic
from ragx.errors import IndexMismatchError
from ragx.records import Passage
from ragx.retriever import deletions, recall
from ragx.retriever import manifest as manifests
from ragx.retriever.corpus_encoding import DESCRIPTION, Alone, Processes, encode_corpus, reserve
from ragx.retriever.edition import EMBEDDINGS_FILE, INDEX_FILE, PASSAGES_FOLDER, Edition
from ragx.retriever.embeddings import BLOCK, Embeddings
from ragx.retriever.index import VectorIndex
from ragx.retriever.kinds import settle
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import PassageStore, passages_fingerprint
from ragx.retriever.some_passages import SomePassages
from ragx.retriever.storage import dtype_of

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Encoding:
    """How passages become vectors on disk.

    Attributes:
        storage: of the vectors, see `ragx.retriever.storage`.
        batch_size: passages encoded at a time.
        vectors_from: an index of the same encoder and storage; text that it has is not encoded.
        processes: that share the work; all call `build_index` with the same arguments, the main one does the rest.
    """

    storage: str = "fp32"
    batch_size: int = 64
    vectors_from: str | Path | None = None
    processes: Processes = field(default_factory=Alone)


_AS_USUAL = Encoding()


def build_index(
    passages: Sequence[Passage],
    *,
    passage_encoder: PassageEncoder,
    directory: str | Path,
    edition: str,
    kind: str = "flat",
    encoding: Encoding = _AS_USUAL,
    progress: bool = True,
    reuse: bool = False,
    **parameters: int,
) -> Manifest:
    """Encodes and indexes `passages` into `directory`; the same input gives the same bytes.

    Args:
        passages: in the order that the rows will have; a `PassageStore` is not read into memory.
        edition: name of this state of the corpus.
        kind: see `ragx.retriever.kinds`.
        encoding: how.
        reuse: keep an index that is already there and was built from the same things; logged.
        parameters: of the kind, for example `ef_search=64`.

    Raises:
        DataError: no passage, or two with one identity.
        ShapeError: a vector that is not finite, or does not fit the storage.
        ConfigError: `kind`, `encoding` or `parameters`, or a `directory` that holds something else than an index.
        IndexMismatchError: `encoding.vectors_from` is of another encoder or storage.
        OSError: the disk is full; an older index is still there.
    """
    directory = Path(os.path.realpath(directory))  # what lies beside it is then on its disk
    processes = encoding.processes
    dtype_of(encoding.storage)
    kind, settled = settle(kind, parameters, count=len(passages), dimension=passage_encoder.embedding_size)
    manifests.require_replaceable(directory)
    work = directory.parent / f".{directory.name}.encoding"
    vectors = _Vectors(passage_encoder, encoding, work, progress=progress)
    if reuse:
        wanted = (edition, vectors.fingerprint, passages_fingerprint(passages), kind, settled, encoding.storage)
        found = _reusable(directory, wanted)
        processes.wait_for_everyone()  # nobody builds before all have looked
        if found is not None:
            if processes.process_index == 0 and _is_of(work, directory):
                _discard(work)
            deletions.warn_of(directory, kept=True)
            _logger.info("reusing the index in %s: edition %s, %d passages", directory, found.edition, found.count)
            return found
    if processes.process_index:
        vectors.of(passages)
        processes.wait_for_everyone()
        return Manifest.read(directory)
    deletions.warn_of(directory, kept=False)
    with atomic.directory(directory) as folder:
        _detach(work / EMBEDDINGS_FILE)
        store = PassageStore.build(passages, folder / PASSAGES_FOLDER)
        index = VectorIndex.build(vectors.of(store), kind=kind, **settled)
        index.write(folder / INDEX_FILE)
        noted = recall.measured(index)
        _link(work / EMBEDDINGS_FILE, folder / EMBEDDINGS_FILE)
        manifest = Manifest(
            edition=edition,
            encoder_fingerprint=vectors.fingerprint,
            passages_fingerprint=store.fingerprint,
            dimension=passage_encoder.embedding_size,
            count=len(store),
            kind=index.kind,
            parameters=index.parameters,
            storage=encoding.storage,
            recall=noted,
            encoder=passage_encoder.settings,
            files=manifests.describe_files(folder),
            versions=manifests.library_versions(),
        )
        manifest.write(folder)
    _discard(work)
    processes.wait_for_everyone()
    return manifest


class _Vectors:
    """Makes embeddings.npy in the folder `work`."""

    def __init__(self, encoder: PassageEncoder, encoding: Encoding, work: Path, *, progress: bool) -> None:
        self._encoder, self._encoding, self._work, self._progress = encoder, encoding, work, progress
        self.fingerprint = encoder.fingerprint()
        self._older = None if encoding.vectors_from is None else self._open(Path(encoding.vectors_from))

    def _open(self, directory: Path) -> Edition:
        older = Edition.open(directory)
        older.manifest.require_encoder(self._encoder.settings, self.fingerprint, directory)
        older.manifest.require("storage", self._encoding.storage, directory)
        return older

    def of(self, passages: Sequence[Passage]) -> Embeddings:
        """The vectors of `passages`, whole."""
        storage, processes = self._encoding.storage, self._encoding.processes
        if self._older is None:
            return Embeddings.open(self._encode(passages, self._work), storage=storage)
        from_row = _rows_with_the_same_text(passages, self._older)
        fresh = np.flatnonzero(from_row < 0)
        _logger.info("%d of %d passages are encoded, the others' vectors are there", len(fresh), len(passages))
        encoded = self._encode(SomePassages(passages, fresh), self._work / "fresh") if len(fresh) else None
        if processes.process_index == 0:
            self._work.mkdir(parents=True, exist_ok=True)
            (self._work / DESCRIPTION).unlink(missing_ok=True)  # of an encoding that was stopped, now overwritten
            self._assemble(self._work / EMBEDDINGS_FILE, from_row, self._older.index.embeddings, encoded)
        processes.wait_for_everyone()
        return Embeddings.open(self._work / EMBEDDINGS_FILE, storage=storage)

    def _encode(self, passages: Sequence[Passage], work: Path) -> Path:
        return encode_corpus(
            passages,
            work,
            passage_encoder=self._encoder,
            fingerprint=passages.fingerprint if isinstance(passages, PassageStore) else passages_fingerprint(passages),
            storage=self._encoding.storage,
            batch_size=self._encoding.batch_size,
            processes=self._encoding.processes,
            progress=self._progress,
        )

    def _assemble(self, file: Path, from_row: np.ndarray, older: Embeddings, encoded: Path | None) -> None:
        """The bytes of vectors that were there, and those of the fresh ones, each in its row."""
        dimension, storage = self._encoder.embedding_size, self._encoding.storage
        whole = Embeddings.create(file, count=len(from_row), dimension=dimension, storage=storage)
        reserve(file)
        fresh = None if encoded is None else Embeddings.open(encoded, storage=storage)
        taken = 0
        for start in range(0, len(from_row), BLOCK):
            rows = from_row[start : start + BLOCK]
            block = np.empty((len(rows), dimension), dtype=whole.array.dtype)
            block[rows >= 0] = older.array[rows[rows >= 0]]
            count = int((rows < 0).sum())
            if fresh is not None and count:
                block[rows < 0] = fresh.array[taken : taken + count]
                taken += count
            whole.array[start : start + BLOCK] = block
        whole.array.flush()  # type: ignore[attr-defined]


def _link(file: Path, target: Path) -> None:
    """Gives `file` a second name; where the file system knows no second names, a copy."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def _detach(file: Path) -> None:
    """Makes a file that a stopped build left linked into an index one of its own: it may be written to from here on."""
    if file.exists() and file.stat().st_nlink > 1:
        copy = file.with_suffix(".copy")
        shutil.copyfile(file, copy)
        os.replace(copy, file)


def _is_of(work: Path, directory: Path) -> bool:
    """Whether the encoding is that of the index, left by a stop between the last two steps of a build."""
    files = [folder / EMBEDDINGS_FILE for folder in (work, directory)]
    return all(file.exists() for file in files) and files[0].samefile(files[1])


def _discard(work: Path) -> None:
    """Removes an encoding; its descriptions first, for without them it is begun anew, whatever a stop leaves of it."""
    for description in list(work.rglob(DESCRIPTION)):
        description.unlink()
    shutil.rmtree(work, ignore_errors=True)


def _rows_with_the_same_text(passages: Sequence[Passage], older: Edition) -> np.ndarray:
    """For each passage the row of `older` that has its title and text, -1 where there is none."""
    known = {_digest(passage): row for row, passage in enumerate(older.passages)}
    return np.array([known.get(_digest(passage), -1) for passage in passages], dtype=np.int64)


def _digest(passage: Passage) -> bytes:
    return hashlib.blake2b(json.dumps([passage.title, passage.text]).encode(), digest_size=16).digest()


def _reusable(directory: Path, wanted: tuple[object, ...]) -> Manifest | None:
    if not directory.exists():
        return None
    try:
        found = Manifest.read(directory)
        found.verify(directory)
    except IndexMismatchError as error:
        _logger.warning("the index in %s cannot be reused and is built anew: %s", directory, error)
        return None
    built = (found.edition, found.encoder_fingerprint, found.passages_fingerprint)
    if (*built, found.kind, found.parameters, found.storage) != wanted:
        _logger.info("the index in %s was built from something else and is built anew", directory)
        return None
    return found
