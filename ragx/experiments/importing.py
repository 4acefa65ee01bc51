"""Section 3: what scripts/import_passages.py and scripts/import_index.py do with what others wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from ragx import build
from ragx.data.chunking import load_chunker
from ragx.data.corpus import write_passages
from ragx.data.dataset_folders import open_folder, vectors_of_dataset
from ragx.data.sources import cut
from ragx.errors import ConfigError
from ragx.records import Passage
from ragx.retriever.importing import Vectors, import_index
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.published import read_shards, shard_files
from ragx.schema_import import ImportIndex, ImportPassages

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
    encoder = None
    if config.passage_encoder is None:
        _logger.warning("passage_encoder is null: whether a query encoder fits these vectors cannot be checked")
    else:
        name = build.weights(config.passage_encoder, "passage_encoder")
        encoder = PassageEncoder.from_pretrained(name, pooling=config.pooling, max_length=config.max_passage_length)
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
