"""Section 3: passages from wherever people keep them, and articles cut in passages.

psgs_w100.tsv    my.jsonl.gz      a file, see `corpus`
wiki_dpr/                         a folder that `datasets` reads
hub:NAME[@REVISION][:CONFIG]:SPLIT    a data set of the Hugging Face hub
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ragx.data.chunking import Chunker, Document, passages_of
from ragx.data.corpus import DEFAULT_CHUNK, DEFAULT_VERSION, FIELDS, Columns, passage_of, read_passages, renamed, unique
from ragx.data.dataset_folders import open_folder, rows_of_dataset
from ragx.data.hub import PREFIX, hub_rows
from ragx.jsonl import Row
from ragx.records import Passage


@dataclass(frozen=True)
class Source:
    """Where passages are and how they are read.

    Attributes:
        place: a file, a folder or a name on the hub.
        columns: which are text, title and id.
        split: of a folder with several.
        quoting: of a table, see `ragx.data.tables`.
        version: of rows that name none.
        ignored: columns that are not read.
    """

    place: str
    columns: Columns = field(default_factory=Columns)
    split: str | None = None
    quoting: str = "auto"
    version: str = DEFAULT_VERSION
    ignored: tuple[str, ...] = ()

    def passages(self) -> Iterator[Passage]:
        """The passages in order, one in memory at a time.

        Raises:
            DataError: naming place, line (or row) and field of what cannot be read.
        """
        if self.place.startswith(PREFIX):
            return self._numbered(hub_rows(self.place))
        if Path(self.place).is_dir():
            rows = open_folder(self.place, split=self.split)
            return self._numbered(rows_of_dataset(rows, place=self.place, without=self.ignored))
        return read_passages(self.place, version=self.version, columns=self.columns, quoting=self.quoting)

    def _numbered(self, rows: Iterable[Row]) -> Iterator[Passage]:
        """Rows of a data set, whose other columns are its own business; without an id they are counted."""

        def passage(row: Row) -> Passage:
            values = renamed(row, self.columns).values
            kept = {name: value for name, value in values.items() if name in FIELDS}
            if not kept.get("source") and kept.get("id") in (None, ""):
                kept["id"] = row.line - 1
            return passage_of(Row(row.path, row.line, kept), version=self.version)

        return unique(Path(self.place), rows, passage)


def cut(passages: Iterable[Passage], *, words: int = 100, chunker: Chunker | None = None) -> Iterator[Passage]:
    """Passages of articles: disjoint pieces of `words` words, or as `chunker` cuts, each with the title and its span.

    Raises:
        ConfigError: see `passages_of`.
    """
    for article in passages:
        for passage in passages_of(Document.of(article), size=words, chunker=chunker):
            yield passage if article.chunk == DEFAULT_CHUNK else _within(passage, article)


def _within(passage: Passage, article: Passage) -> Passage:
    """A piece of what was a piece already: `3.0`, `3.1` of chunk `3`."""
    start = article.span[0] if article.span else 0
    assert passage.span is not None
    span = (start + passage.span[0], start + passage.span[1])
    return replace(passage, chunk=f"{article.chunk}.{passage.chunk}", span=span)
