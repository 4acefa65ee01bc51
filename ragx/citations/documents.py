"""Documents that an extractive answer quotes: exact lines, what they apply to, and the card they are found by.

    {"source", "version", "chunk", "title", "text", "start_line", "end_line", "support_lines", "matter", "card",
     "valid_from", "valid_to", "supersedes", "publisher", "parent", ...}     one JSON object a line, also a corpus file

One decision: the card is for finding and is never quoted. It may sum up, translate or repeat words; what an answer says
is the document's own lines, and they count only if all lines that belong together (`support_lines`) are there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import bm25s

from ragx.citations.evidence import Evidence, EvidenceStore
from ragx.citations.judges.quantities import read_quantities
from ragx.citations.judges.words import words
from ragx.citations.judges.written_dates import read_dates
from ragx.errors import DataError
from ragx.jsonl import Row, read_rows
from ragx.records import Passage, PassageKey

logging.getLogger("bm25s").setLevel(logging.INFO)  # it announces every index at DEBUG, whatever the root says
CURRENCIES = frozenset(("CNY", "USD", "EUR", "GBP", "JPY"))
Amount = tuple[Decimal, str]


@dataclass(frozen=True, slots=True)
class Document:
    """One document, or a part of one.

    Attributes:
        evidence: the exact lines with identity, validity, publisher and place.
        matter: what it rules on; only documents of the matter asked about apply.
        support_lines: first and last line of its source that must stand together for any claim from it.
        card: words to find it by.
    """

    evidence: Evidence
    matter: str
    support_lines: tuple[int, int]
    card: str

    @property
    def key(self) -> PassageKey:
        """The identity."""
        return self.evidence.key

    @property
    def text(self) -> str:
        """The exact lines."""
        return self.evidence.passage.text

    @property
    def lines(self) -> tuple[int, int]:
        """First and last line of the source that the text holds."""
        place = self.evidence.place
        return place["start_line"], place["end_line"]

    @property
    def complete(self) -> bool:
        """Whether all lines that must stand together are here."""
        return self.lines[0] <= self.support_lines[0] and self.support_lines[1] <= self.lines[1]

    def amounts(self) -> frozenset[Amount]:
        """The sums of money that it states."""
        _, undated = read_dates(self.text)
        return frozenset((q.value, q.unit) for q in read_quantities(undated) if q.unit in CURRENCIES and q.unit)

    @classmethod
    def from_row(cls, row: Row) -> Document:
        """The document of a line.

        Raises:
            DataError: a field that is absent or of the wrong kind, or line numbers that do not fit the text.
        """
        values = row.values
        starts, ends = values.get("valid_from"), values.get("valid_to")
        passage = Passage(
            source=row.text("source", row.require("source")),
            version=row.text("version", row.require("version")),
            chunk=row.text("chunk", row.require("chunk")),
            title=row.string("title", values.get("title") or ""),
            text=row.text("text", row.require("text")),
            valid_from=row.text("valid_from", starts) if starts else None,
            valid_to=row.text("valid_to", ends) if ends else None,
            acl=tuple(row.text("acl", name) for name in row.items("acl", values.get("acl") or [])),
        )
        first, last = (row.require(name) for name in ("start_line", "end_line"))
        if type(first) is not int or type(last) is not int or last - first != passage.text.count("\n") or first < 1:
            row.fail(
                "end_line", f"must number the lines of text from start_line, got {first!r} to {last!r}. Count them"
            )
        support = row.items("support_lines", values.get("support_lines") or [first, last])
        if len(support) != 2 or not all(type(line) is int for line in support):
            row.fail("support_lines", f"must be [first, last] line, got {support!r}. Count lines of the source from 1")
        card = row.string("card", values.get("card") or "") or f"{passage.title} {passage.text}"
        matter = row.text("matter", row.require("matter"))
        return cls(Evidence.from_row(row, passage), matter, (support[0], support[1]), card)


class Library:
    """The documents that may be quoted, found by their cards.

    BM25 counts its words over all cards, whatever applies to a request, so that a document's score does not depend on
    which others are in force.

    Args:
        documents: at least one.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = {document.key: document for document in documents}
        self.store = EvidenceStore(document.evidence for document in self._documents.values())
        self.matters = frozenset(document.matter for document in self._documents.values())
        self._vocabulary: dict[str, int] = {}
        ids = [
            [self._vocabulary.setdefault(word, len(self._vocabulary)) for word in words(document.card)]
            for document in self._documents.values()
        ]
        self._scorer = bm25s.BM25()
        self._scorer.index(bm25s.tokenization.Tokenized(ids=ids, vocab=self._vocabulary), show_progress=False)

    @classmethod
    def read(cls, path: str | Path) -> Library:
        """The documents of a JSON lines file.

        Raises:
            DataError: naming file, line and field; also a file without documents.
        """
        documents = [Document.from_row(row) for row in read_rows(path)]
        if not documents:
            raise DataError("file must hold at least one document, got none. Add a line", path=path)
        return cls(documents)

    def __getitem__(self, key: PassageKey) -> Document:
        return self._documents[key]

    def get(self, key: PassageKey | None) -> Document | None:
        """The document of an identity, None where there is none."""
        return self._documents.get(key) if key is not None else None

    def rank(self, question: str, *, n: int) -> list[tuple[PassageKey, float]]:
        """The at most `n` documents whose cards share a word with the question, best first, ties by identity."""
        ids = [self._vocabulary[word] for word in words(question) if word in self._vocabulary]
        if not ids:
            return []
        scores = self._scorer.get_scores_from_ids(ids).tolist()
        scored = [(key, score) for key, score in zip(self._documents, scores, strict=True) if score > 0]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:n]

    def applies(self, document: Document, *, as_of: str, principal: Iterable[str]) -> bool:
        """Whether a document is in force on a date and may be seen."""
        evidence = document.evidence
        return evidence.visible_to(principal) and self.store.currency(evidence, as_of) == "current"

    def in_force(self, matter: str, *, as_of: str, principal: Iterable[str]) -> list[Document]:
        """Every complete document of a matter that applies, found or not: parallel versions among them."""
        names = tuple(principal)
        return [
            document
            for document in self._documents.values()
            if document.matter == matter and document.complete and self.applies(document, as_of=as_of, principal=names)
        ]
