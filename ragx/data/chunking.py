"""Section 3: "each article is split into disjoint 100-word chunks"; the title goes with every one of them.

Another cut is a function of the user's, named in the configuration. A chunk is a span of code points, from the first
letter of its first word to the last of its last, so that the text of a passage is the text of its source, blanks and
line breaks included, and an audit can find it again.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ragx.errors import ConfigError
from ragx.records import Passage

_WORD = re.compile(r"\S+")
Chunker = Callable[[str], Iterable[tuple[int, int]]]


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

    @classmethod
    def of(cls, passage: Passage) -> Document:
        """A passage to be cut further, under its own source and version."""
        return cls(
            source=passage.source,
            version=passage.version,
            title=passage.title,
            text=passage.text,
            valid_from=passage.valid_from,
            valid_to=passage.valid_to,
            acl=passage.acl,
        )


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


def passages_of(document: Document, *, size: int = 100, chunker: Chunker | None = None) -> Iterator[Passage]:
    """The passages of an article in order, chunk "0" first, each with its span in the article's text.

    Args:
        size: words of a passage, without `chunker`.
        chunker: cuts a text; see `load_chunker`.

    Raises:
        ConfigError: `size` below 1, or spans of `chunker` that are empty, out of order or beyond the text.
    """
    text = document.text
    spans = chunk_words(text, size=size) if chunker is None else _checked(list(chunker(text)), document)
    for number, (start, end) in enumerate(spans):
        yield Passage(
            source=document.source,
            version=document.version,
            chunk=str(number),
            title=document.title,
            text=text[start:end],
            span=(start, end),
            valid_from=document.valid_from,
            valid_to=document.valid_to,
            acl=document.acl,
        )


def load_chunker(name: str) -> Chunker:
    """The function `package.module:function`, which takes a text and returns code point spans [start, end) of it.

    Raises:
        ConfigError: no such module or function.
    """
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function) if function else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError([f"chunker must be package.module:function, got {name!r}. {error}."]) from error
    if not callable(found):
        raise ConfigError([f"chunker must be package.module:function, got {name!r}. Write it so."])
    chunker: Chunker = found
    return chunker


def _checked(spans: list[tuple[int, int]], document: Document) -> list[tuple[int, int]]:
    for span in spans:
        whole = isinstance(span, tuple | list) and len(span) == 2 and all(isinstance(n, int) for n in span)
        if not whole or not 0 <= span[0] < span[1] <= len(document.text):
            raise ConfigError(
                [
                    f"chunker must return spans [start, end) within the {len(document.text)} code points of "
                    f"{document.source!r}, got {span!r}."
                ]
            )
    return [(start, end) for start, end in spans]
