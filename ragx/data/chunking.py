"""Section 3: "each article is split into disjoint 100-word chunks"; the title goes with every one of them.

A chunk is a span of code points, from the first letter of its first word to the last of its last, so that the text of
a passage is the text of its source, blanks and line breaks included, and an audit can find it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ragx.errors import ConfigError
from ragx.records import Passage

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Document:
    """An article before it is cut.

    Attributes:
        source, version: its identity; passages add their chunk number.
        title, text: as written.
        valid_from, valid_to, acl: handed down to each passage.
    """

    source: str
    version: str
    title: str
    text: str
    valid_from: str | None = None
    valid_to: str | None = None
    acl: tuple[str, ...] = ()


def chunk_words(text: str, *, size: int = 100) -> list[tuple[int, int]]:
    """Code point spans [start, end) of disjoint chunks of `size` words.

    Words are what white space separates. Every word is in exactly one chunk; the last chunk may be shorter, an empty
    text has none.

    Raises:
        ConfigError: `size` below 1.
    """
    if size < 1:
        raise ConfigError([f"size must be >= 1 words, got {size}."])
    words = [match.span() for match in _WORD.finditer(text)]
    return [(words[i][0], words[min(i + size, len(words)) - 1][1]) for i in range(0, len(words), size)]


def passages_of(document: Document, *, size: int = 100) -> Iterator[Passage]:
    """The passages of an article in order, chunk "0" first, each with its span in the article's text."""
    for number, (start, end) in enumerate(chunk_words(document.text, size=size)):
        yield Passage(
            source=document.source,
            version=document.version,
            chunk=str(number),
            title=document.title,
            text=document.text[start:end],
            span=(start, end),
            valid_from=document.valid_from,
            valid_to=document.valid_to,
            acl=document.acl,
        )
