"""The schema of the scripts that read what others wrote, passages in any form and vectors with them, and of the one
that changes an index by passage."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from ragx.data.corpus import DEFAULT_VERSION, Columns
from ragx.data.hub import PREFIX
from ragx.data.sources import Source
from ragx.data.tables import QUOTINGS
from ragx.limits import at_least, file, folder, one_of, output, weights
from ragx.retriever.storage import STORAGES


def _place() -> Any:
    condition = f"be a file, a folder or {PREFIX}NAME:SPLIT"
    return field(default=MISSING, metadata={"condition": condition, "holds": _is_place, "path": True, "name": True})


def _is_place(value: str) -> bool:
    return value.startswith(PREFIX) or Path(value).exists()


@dataclass
class ColumnsConfig:
    """Which columns are text, title and id; a name that is not the default must be there."""

    text: str = MISSING
    title: str = MISSING
    id: str = MISSING


@dataclass
class SourceConfig:
    """Where passages are and how they are read; `ragx.data.sources.Source` explains the fields."""

    place: str = _place()
    split: str | None = MISSING
    quoting: str = one_of(*QUOTINGS)
    edition: str | None = MISSING
    columns: ColumnsConfig = MISSING

    def source(self, *, ignored: tuple[str, ...] = ()) -> Source:
        """What reads them."""
        columns = Columns(text=self.columns.text, title=self.columns.title, id=self.columns.id)
        version = self.edition or DEFAULT_VERSION
        return Source(self.place, columns, self.split, self.quoting, version, ignored)


@dataclass
class ImportPassages:
    """Schema of configs/import_passages.yaml.

    Attributes:
        words: cut articles in passages of so many words; null leaves each row one passage.
        chunker: cut them with this function instead, `package.module:function`.
    """

    source: SourceConfig = MISSING
    words: int | None = at_least(1)
    chunker: str | None = MISSING
    output: str = output()


@dataclass
class ImportedIndexConfig:
    """Where the index lies and what it is; `ragx.retriever.kinds` checks kind and parameters."""

    directory: str = folder()
    kind: str = MISSING
    parameters: dict[str, int] = MISSING
    storage: str = one_of(*STORAGES)


@dataclass
class ImportIndex:
    """Schema of configs/import_index.yaml.

    Attributes:
        embeddings: a folder or pattern of DPR's .pkl shards; null reads `embeddings_column` of the source.
        id_prefix: that ids have in the shards and not in the passages.
        passage_encoder: that made the vectors; null does not check.
    """

    source: SourceConfig = MISSING
    embeddings: str | None = folder()
    embeddings_column: str = MISSING
    id_prefix: str = MISSING
    passage_encoder: str | None = weights()
    pooling: str | None = one_of("cls", "mean", "unit_mean")
    max_passage_length: int | None = at_least(3)
    index: ImportedIndexConfig = MISSING


@dataclass
class EditedIndexConfig:
    """Where the index lies."""

    directory: str = folder()


@dataclass
class EditIndex:
    """Schema of configs/edit_index.yaml.

    Attributes:
        delete, delete_from: passages that go at once, by name; `delete_from` is a file of names, one a line.
        replace, add: files of passages; null: none. `replace` puts them in the place of their sources' passages.
        edition: name of the new state of the corpus, and version of rows that name none; null keeps the old one.
        passage_encoder: that the index of vectors was built with, to add text to it.
    """

    index: EditedIndexConfig = MISSING
    delete: list[str] = MISSING
    delete_from: str | None = file()
    replace: str | None = file()
    add: str | None = file()
    edition: str | None = MISSING
    passage_encoder: str | None = weights()
    pooling: str | None = one_of("cls", "mean", "unit_mean")
    max_passage_length: int | None = at_least(3)


SCRIPTS = (ImportPassages, ImportIndex, EditIndex)
