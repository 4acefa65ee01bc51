"""Section 2.3: the template that joins a passage and a query, cut into the two parts that are tokenized apart.

    "{title} / {text} // {query}"   ->   "{title} / {text}"   and   " // {query}"

The cut lies before a blank. Byte-level and sentence-piece tokenizers never join two sides of a blank into one token, so
the ids equal those of the whole string, while a passage, which many queries read, is tokenized once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter

from ragx.errors import ConfigError

FIELDS = ("title", "text", "query")


@dataclass(frozen=True, slots=True)
class Template:
    """The two parts of a template; literal text and fields alternate.

    Attributes:
        passage: (literal, field) pairs of the part with the passage; the last field may be empty.
        query: the literals before and after the query in the other part.
        query_first: whether the query stands before the passage.
    """

    passage: tuple[tuple[str, str], ...]
    query: tuple[str, str]
    query_first: bool

    @classmethod
    def parse(cls, template: str) -> Template:
        """The parts of `template`.

        Raises:
            ConfigError: a field missing, unknown or doubled, a query in the middle, no blank beside it.
        """
        pairs = [(literal, field) for literal, field, _, _ in Formatter().parse(template)]
        names = [field for _, field in pairs if field is not None]
        once = all(names.count(name) == 1 for name in ("text", "query")) and names.count("title") <= 1
        if not once or not set(names) <= set(FIELDS) or "query" not in (names[0], names[-1]):
            raise ConfigError(
                [
                    "generator.template must hold {text} and {query} once each, {title} at most once, "
                    f"{{query}} first or last, got {template!r}. Try '{{title}} / {{text}} // {{query}}'."
                ]
            )
        tail = pairs.pop()[0] if pairs[-1][1] is None else ""
        if names[0] == "query":
            before, (between, field) = pairs[0][0], pairs[1]
            left, right = _split(between, template)
            passage = ((right, field or ""), *((literal, name or "") for literal, name in pairs[2:]), (tail, ""))
            return cls(passage, (before, left), query_first=True)
        left, right = _split(pairs[-1][0], template)
        passage = (*((literal, name or "") for literal, name in pairs[:-1]), (left, ""))
        return cls(passage, (right, tail), query_first=False)

    def ask(self, query: str) -> str:
        """The part with the query, which is left letter by letter."""
        return f"{self.query[0]}{query}{self.query[1]}"

    def present(self, title: str, text: str) -> tuple[str, int]:
        """The part with the passage, and the code point where its text begins."""
        part, start = "", 0
        for literal, field in self.passage:
            part += literal
            if field == "text":
                start = len(part)
            part += {"title": title, "text": text, "": ""}[field]
        return part, start


def _split(between: str, template: str) -> tuple[str, str]:
    blank = re.search(r"\s", between)
    if blank is None:
        raise ConfigError(
            [
                "generator.template must have a blank between the passage and {query}, "
                f"got {template!r}. Put one in, as in ' // {{query}}'."
            ]
        )
    return between[: blank.start()], between[blank.start() :]
