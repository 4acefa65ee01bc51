"""Dense retrieval over a frozen index, sections 2.2 and 2.4: built once, opened by mapping, swapped while in use.

    p(z|x) over the n_docs passages with the largest  d(z) . q(x)

Everything that makes up one edition (vectors, FAISS, text, manifest) hangs on one reference. A search reads it once
and a swap replaces it once, so every answer comes from exactly one edition.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from ragx import atomic
from ragx.errors import IndexMismatchError, ShapeError
from ragx.records import Passage, Retrieved
from ragx.retriever import manifest as manifests
from ragx.retriever.index import VectorIndex, resolve_parameters
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import PassageStore, passages_fingerprint

EMBEDDINGS_FILE = "embeddings.npy"
INDEX_FILE = "index.faiss"
PASSAGES_FOLDER = "passages"
_logger = logging.getLogger(__name__)


def build_index(
    passages: Sequence[Passage],
    *,
    passage_encoder: PassageEncoder,
    directory: str | Path,
    edition: str,
    kind: str = "flat",
    batch_size: int = 64,
    progress: bool = True,
    reuse: bool = False,
    **parameters: int,
) -> Manifest:
    """Encodes and indexes `passages` into `directory`, whole or not at all; the same input gives the same bytes.

    Args:
        passages: in the order that the rows will have; a `PassageStore` is not read into memory.
        edition: name of this state of the corpus.
        kind: see `ragx.retriever.index.KINDS`.
        batch_size: passages encoded at a time.
        reuse: keep an index that is already there and was built from the same things; logged.
        parameters: of the kind, for example `ef_search=64`.

    Raises:
        DataError: no passage, or two with one identity.
        ShapeError: a vector that is not finite.
        ConfigError: `kind` or `parameters`, or a `directory` that holds something else than an index.
        OSError: the disk is full; an older index is still there.
    """
    directory, settled = Path(directory), resolve_parameters(kind, parameters)
    manifests.require_replaceable(directory)
    encoder_fingerprint = passage_encoder.fingerprint()
    if reuse:
        wanted = (edition, encoder_fingerprint, passages_fingerprint(passages), kind, settled)
        found = _reusable(directory, wanted)
        if found is not None:
            _logger.info("reusing the index in %s: edition %s, %d passages", directory, found.edition, found.count)
            return found
    with atomic.directory(directory) as folder:
        store = PassageStore.build(passages, folder / PASSAGES_FOLDER)
        embeddings = np.lib.format.open_memmap(
            folder / EMBEDDINGS_FILE, mode="w+", dtype=np.float32, shape=(len(store), passage_encoder.embedding_size)
        )
        _reserve(folder / EMBEDDINGS_FILE)
        passage_encoder.encode(store, batch_size=batch_size, progress=progress, out=embeddings)
        embeddings.flush()
        VectorIndex.build(embeddings, kind=kind, **settled).write(folder / INDEX_FILE)
        manifest = Manifest(
            edition=edition,
            encoder_fingerprint=encoder_fingerprint,
            passages_fingerprint=store.fingerprint,
            dimension=passage_encoder.embedding_size,
            count=len(store),
            kind=kind,
            parameters=settled,
            encoder=passage_encoder.settings,
            files=manifests.describe_files(folder),
            versions=manifests.library_versions(),
        )
        manifest.write(folder)
    return manifest


def _reserve(file: Path) -> None:
    """Takes the room of a mapped file at once: on a full disk the first touch of a page would end the process."""
    if not hasattr(os, "posix_fallocate"):
        return
    with file.open("r+b") as handle:
        try:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that cannot
                raise


def _reusable(directory: Path, wanted: tuple[object, ...]) -> Manifest | None:
    if not directory.exists():
        return None
    try:
        found = Manifest.read(directory)
        found.verify(directory)
    except IndexMismatchError as error:
        _logger.warning("the index in %s cannot be reused and is built anew: %s", directory, error)
        return None
    described = (found.edition, found.encoder_fingerprint, found.passages_fingerprint, found.kind, found.parameters)
    if described != wanted:
        _logger.info("the index in %s was built from something else and is built anew", directory)
        return None
    return found


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One edition, complete and immutable."""

    directory: Path
    manifest: Manifest
    fingerprint: str
    passages: PassageStore
    index: VectorIndex


def _load(directory: Path, *, verify_hashes: bool | None) -> _Loaded:
    manifest = Manifest.read(directory)
    manifest.require("metric", manifests.INNER_PRODUCT, directory)
    manifest.verify(directory, hashes=verify_hashes)
    passages = PassageStore.open(directory / PASSAGES_FOLDER)
    embeddings = _map_embeddings(directory)
    manifest.require("passages_fingerprint", passages.fingerprint, directory)
    manifest.require("count", len(passages), directory)
    asked = ((manifest.count, manifest.dimension), "float32")
    found = (embeddings.shape, str(embeddings.dtype))
    manifests.require(EMBEDDINGS_FILE, asked=asked, found=found, directory=directory)
    index = VectorIndex.read(directory / INDEX_FILE, embeddings, kind=manifest.kind, parameters=manifest.parameters)
    return _Loaded(directory, manifest, manifest.fingerprint, passages, index)


def _map_embeddings(directory: Path) -> np.ndarray:
    try:
        return np.load(directory / EMBEDDINGS_FILE, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise IndexMismatchError(
            f"{EMBEDDINGS_FILE} must be an array of numbers, got: {error} {manifests.rebuild(directory)}"
        ) from error


class DenseRetriever:
    """Finds passages by inner product; implements `ragx.protocols.Retriever`. Safe to ask from many threads."""

    def __init__(self, loaded: _Loaded) -> None:
        self._loaded = loaded
        self._swapping = threading.Lock()

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        passage_encoder_fingerprint: str | None = None,
        verify_hashes: bool | None = None,
    ) -> DenseRetriever:
        """Maps an index folder after checking it.

        Args:
            passage_encoder_fingerprint: of the encoder the index must have been built with; None checks nothing.
            verify_hashes: see `Manifest.verify`.

        Raises:
            IndexMismatchError: anything differs from the manifest or from what is asked; both sides are shown.
        """
        loaded = _load(Path(directory), verify_hashes=verify_hashes)
        if passage_encoder_fingerprint is not None:
            loaded.manifest.require("encoder_fingerprint", passage_encoder_fingerprint, loaded.directory)
        return cls(loaded)

    def swap(self, directory: str | Path, *, verify_hashes: bool | None = None) -> None:
        """Hot swap: from the next search on, answers come from `directory`; searches under way end on the old one.

        Raises:
            IndexMismatchError: broken, or of another encoder or dimension; the old index keeps answering.
        """
        with self._swapping:
            new = _load(Path(directory), verify_hashes=verify_hashes)
            old = self._loaded.manifest
            for name in ("encoder_fingerprint", "dimension"):
                new.manifest.require(name, getattr(old, name), new.directory)
            self._loaded = new
        _logger.info("edition %s answers in place of %s", new.manifest.edition, old.edition)

    @property
    def fingerprint(self) -> str:
        """Identifies index, passages and encoder together."""
        return self._loaded.fingerprint

    @property
    def manifest(self) -> Manifest:
        """What the index in use was built from."""
        return self._loaded.manifest

    @property
    def passages(self) -> PassageStore:
        """The passages of the index in use, by row."""
        return self._loaded.passages

    @property
    def edition(self) -> str:
        """Name of the corpus state in use."""
        return self._loaded.manifest.edition

    def __len__(self) -> int:
        return self._loaded.manifest.count

    def retrieve(self, queries: Sequence[str], n_docs: int, *, query_embeds: Tensor | None = None) -> Retrieved:
        """The `n_docs` passages with the largest q.d for each of B queries, ties by row.

        Args:
            queries: B texts; a dense retriever searches by `query_embeds` alone.
            query_embeds: q(x), (B, D), any device and dtype; no gradient is kept.

        Raises:
            ShapeError: `query_embeds` missing, of another shape, or not finite.
            ConfigError: `n_docs` below 1 or beyond the corpus.
        """
        if query_embeds is None or len(query_embeds) != len(queries):
            shape = None if query_embeds is None else tuple(query_embeds.shape)
            raise ShapeError(f"query_embeds must hold one vector for each of {len(queries)} queries, got {shape}.")
        loaded = self._loaded  # read once: everything below is of one edition
        rows, scores = loaded.index.search(query_embeds.detach().float().cpu().numpy(), n_docs)
        found = loaded.passages.take(rows.ravel())
        return Retrieved(
            passages=[found[start : start + n_docs] for start in range(0, len(found), n_docs)],
            rows=rows,
            doc_embeds=np.array(loaded.index.embeddings[rows]),
            doc_scores=scores,
            index_fingerprint=loaded.fingerprint,
        )
