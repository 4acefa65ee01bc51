"""One edition of the knowledge base: vectors, index, text and manifest of one folder, opened together, immutable.

Everything that an answer is made of hangs on one such object, so that a search that holds it is of one edition, and a
swap that replaces the reference to it replaces everything at once. What it maps is let go when the last search ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ragx.errors import DataError, IndexMismatchError
from ragx.records import Passage, PassageKey
from ragx.retriever import deletions
from ragx.retriever import manifest as manifests
from ragx.retriever.embeddings import Embeddings
from ragx.retriever.index import VectorIndex
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import PassageStore
from ragx.retriever.some_passages import SomePassages
from ragx.retriever.spot_check import require_vectors_of
from ragx.retriever.visible import VisibleRows

EMBEDDINGS_FILE = "embeddings.npy"
INDEX_FILE = "index.faiss"
PASSAGES_FOLDER = "passages"


class Edition:
    """An opened index folder.

    Attributes:
        directory, manifest, passages, index: as opened.
        fingerprint: of the manifest, and of what was deleted since the build.
        deleted: keys that are hidden though their rows are there.
        visible: the rows that are not hidden.
    """

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        passages: PassageStore,
        index: VectorIndex,
        deleted: frozenset[PassageKey] = frozenset(),
    ) -> None:
        self.directory, self.manifest, self.passages, self.index = directory, manifest, passages, index
        self.deleted = deleted
        self.fingerprint = deletions.fingerprint(manifest.fingerprint, deleted)
        self.visible = VisibleRows(passages, deleted)

    @classmethod
    def open(cls, directory: str | Path, *, verify_hashes: bool | None = None, device: str = "cpu") -> Edition:
        """Maps a folder that `build_index` wrote, after checking it.

        Args:
            verify_hashes: see `Manifest.verify`.
            device: that searches an index of kind `torch`.

        Raises:
            IndexMismatchError: anything differs from the manifest; both sides are shown.
        """
        directory = Path(directory)
        manifest = Manifest.read(directory)
        manifest.require("metric", manifests.INNER_PRODUCT, directory)
        manifest.verify(directory, hashes=verify_hashes)
        passages = PassageStore.open(directory / PASSAGES_FOLDER)
        embeddings = _map_embeddings(directory, manifest.storage)
        manifest.require("passages_fingerprint", passages.fingerprint, directory)
        manifest.require("count", len(passages), directory)
        asked = (manifest.count, manifest.dimension)
        manifests.require(EMBEDDINGS_FILE, asked=asked, found=embeddings.shape, directory=directory)
        index = VectorIndex.read(
            directory / INDEX_FILE, embeddings, kind=manifest.kind, parameters=manifest.parameters, device=device
        )
        return cls(directory, manifest, passages, index, deletions.read(directory))

    def __len__(self) -> int:
        return len(self.visible)

    def without(self, keys: Iterable[PassageKey]) -> Edition:
        """This edition with the passages `keys` deleted, on disk and in what is returned.

        Raises:
            DataError: a key that the edition does not have.
        """
        gone = frozenset(keys)
        missing = gone - self.passages.rows_of(gone).keys()
        if missing:
            raise DataError(
                f"keys must be of passages of edition {self.manifest.edition}, got {tuple(min(missing))}. "
                "Give source, version and chunk.",
                path=self.directory,
            )
        deletions.add(self.directory, gone)
        # With what other processes deleted since it was opened: the state is that of the folder.
        deleted = self.deleted | gone | deletions.read(self.directory)
        return Edition(self.directory, self.manifest, self.passages, self.index, deleted)

    def remaining(self) -> Sequence[Passage]:
        """The passages that are not deleted, in the order of their rows; what the next index is built from."""
        if not self.visible.hidden:
            return self.passages
        return SomePassages(self.passages, np.delete(np.arange(len(self.passages)), self.visible.hidden))

    def require_encoder(self, passage_encoder: PassageEncoder) -> None:
        """Compares `passage_encoder` with that of the build, by fingerprint and by encoding a few passages again.

        Raises:
            IndexMismatchError: another encoder, or vectors that it did not make.
        """
        self.manifest.require_encoder(passage_encoder.settings, passage_encoder.fingerprint(), self.directory)
        advice = manifests.rebuild(self.directory)
        require_vectors_of(passage_encoder, self.passages, self.index.embeddings, advice=advice)


def _map_embeddings(directory: Path, storage: str) -> Embeddings:
    try:
        return Embeddings.open(directory / EMBEDDINGS_FILE, storage=storage)
    except (OSError, ValueError) as error:  # a ShapeError is a ValueError
        raise IndexMismatchError(
            f"{EMBEDDINGS_FILE} must be an array of numbers, got: {error} {manifests.rebuild(directory)}"
        ) from error
