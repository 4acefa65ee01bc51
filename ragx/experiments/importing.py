"""Section 3: what scripts import_passages and import_index do with what others wrote, and edit_index with an index."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from ragx import build
from ragx.data.chunking import load_chunker
from ragx.data.corpus import read_passages, write_passages
from ragx.data.dataset_folders import open_folder, vectors_of_dataset
from ragx.data.sources import cut
from ragx.errors import ConfigError
from ragx.records import Passage
from ragx.retriever.editing import delete_passages, extend_index
from ragx.retriever.importing import Vectors, import_index
from ragx.retriever.manifest import BM25, Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.published import read_shards, shard_files
from ragx.schema_import import EditIndex, ImportIndex, ImportPassages

_logger = logging.getLogger(__name__)


def passages(config: ImportPassages) -> int:
    """Writes `output` as JSON lines that every script reads; returns how many passages it has.

    Raises:
        ConfigError: both `words` and `chunker`, or a chunker that is not there.
        DataError: what cannot be read, with its place.
    """
    if config.words is not None and config.chunker is not None:
        raise ConfigError([f"words must be null with a chunker, got {config.words}. Give one of the two."])
    chunker = None if config.chunker is None else load_chunker(config.chunker)
    found = config.source.source().passages()
    if config.words is not None or chunker is not None:
        found = cut(found, words=config.words or 100, chunker=chunker)
    count = 0

    def counted() -> Iterator[Passage]:
        nonlocal count
        for passage in found:
            count += 1
            yield passage

    write_passages(config.output, counted())
    return count


def index(config: ImportIndex) -> Manifest:
    """Writes `index.directory` from passages and the vectors that somebody made of them.

    Raises:
        ConfigError, DataError, IndexMismatchError: see `ragx.retriever.importing.import_index`.
    """
    encoder = _encoder(config)
    if encoder is None:
        _logger.warning("passage_encoder is null: whether a query encoder fits these vectors cannot be checked")
    source = config.source
    return import_index(
        source.source(ignored=(config.embeddings_column,)).passages(),
        _vectors(config),
        directory=config.index.directory,
        edition=source.edition or Path(source.place).name.split(".")[0],
        passage_encoder=encoder,
        kind=config.index.kind,
        storage=config.index.storage,
        id_prefix=config.id_prefix,
        **config.index.parameters,
    )


def edit(config: EditIndex) -> tuple[int, Manifest]:
    """Deletes, replaces and adds passages of `index.directory`; how many were deleted, and what is there then.

    Raises:
        ConfigError, DataError, IndexMismatchError: see `ragx.retriever.editing`.
    """
    directory = config.index.directory
    version = config.edition or Manifest.read(directory).edition
    replaced, added = (
        [] if place is None else list(read_passages(place, version=version)) for place in (config.replace, config.add)
    )
    names = list(config.delete)
    if config.delete_from is not None:
        names += [line for line in Path(config.delete_from).read_text(encoding="utf-8").split("\n") if line.strip()]
    if not (names or replaced or added):
        raise ConfigError(["delete, replace or add must be given, got none of them. Name what is to change."])
    deleted = delete_passages(directory, names) if names else 0
    if not (replaced or added):
        return deleted, Manifest.read(directory)
    encoder = None if Manifest.read(directory).metric == BM25 else _encoder(config)
    manifest = extend_index(directory, added=added, replaced=replaced, edition=config.edition, passage_encoder=encoder)
    return deleted, manifest


def _encoder(config: ImportIndex | EditIndex) -> PassageEncoder | None:
    if config.passage_encoder is None:
        return None
    name = build.weights(config.passage_encoder, "passage_encoder")
    return PassageEncoder.from_pretrained(name, pooling=config.pooling, max_length=config.max_passage_length)


def _vectors(config: ImportIndex) -> Iterator[Vectors]:
    if config.embeddings is not None:
        for shard in read_shards(shard_files(config.embeddings)):
            yield Vectors(shard.path.name, shard.ids, shard.vectors, f"{len(shard.ids)} ids, sha256 {shard.ids_sha256}")
        return
    place = config.source.place
    if not Path(place).is_dir():
        problem = f"embeddings must be given where the source is no folder of datasets, got null with {place}"
        raise ConfigError([f"{problem}. Name the shards, or build the index."])
    rows = open_folder(place, split=config.source.split)
    for vectors in vectors_of_dataset(rows, config.embeddings_column, place=place):
        yield Vectors(config.embeddings_column, None, vectors)
