"""Dates as texts write them, in several languages, brought to one form.

    2026-01-01   January 1, 2026   1 January 2026   1er janvier 2026   1. Januar 2026   2026年1月1日   ->   (2026, 1, 1)

One decision: only what can be read in one way is a date. 1.2.2026 is day.month.year, as it is written wherever it is
written with points; 1/2/2026 is two different days on two continents and stays three numbers.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

_MONTHS = {
    "january jan januar janvier enero gennaio janeiro januari": 1,
    "february feb februar février fevrier febrero febbraio fevereiro februari": 2,
    "march mar märz marz mars marzo março marco maart": 3,
    "april apr avril abril aprile": 4,
    "may mai mayo maggio maio mei": 5,
    "june jun juni juin junio giugno junho": 6,
    "july jul juli juillet julio luglio julho": 7,
    "august aug août aout agosto augustus": 8,
    "september sep sept septembre septiembre settembre setembro": 9,
    "october oct oktober octobre octubre ottobre outubro okt": 10,
    "november nov novembre noviembre novembro": 11,
    "december dec dezember décembre decembre diciembre dicembre dezembro dez": 12,
}
MONTHS = {name: number for names, number in _MONTHS.items() for name in names.split()}
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_YEAR = r"(?P<y>[12]\d{3})(?!\d)"
_DAY = r"(?P<d>[0-3]?\d)(?:st|nd|rd|th|er|\.)?"
_NO_DIGIT = r"(?<![\d.,])"
_NO_LETTER = r"(?<![^\W\d_])"
# In this order: the first that matches at a place wins, the finest first.
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_NO_DIGIT}{_YEAR}\s*[年년](?:\s*(?P<m>1[0-2]|0?[1-9])\s*[月월](?:\s*(?P<d>[0-3]?\d)\s*[日号號일])?)?",
        rf"{_NO_DIGIT}(?P<y>[12]\d{{3}})-(?P<m>1[0-2]|0[1-9])(?:-(?P<d>[0-3]\d))?(?![\d-])",
        rf"{_NO_DIGIT}(?P<y>[12]\d{{3}})/(?P<m>1[0-2]|0?[1-9])/(?P<d>[0-3]?\d)(?!\d)",
        rf"{_NO_DIGIT}(?P<d>[0-3]?\d)\.\s?(?P<m>1[0-2]|0?[1-9])\.\s?{_YEAR}",
        rf"{_NO_DIGIT}{_DAY}\s+(?:de\s+|of\s+)?(?P<n>{_MONTH})\.?,?\s+(?:de[l]?\s+|do\s+)?{_YEAR}",
        rf"{_NO_LETTER}(?P<n>{_MONTH})\.?\s+{_DAY},?\s+{_YEAR}",
        rf"{_NO_LETTER}(?P<n>{_MONTH})\.?,?\s+(?:de[l]?\s+|do\s+|of\s+)?{_YEAR}",
    )
)


class WrittenDate(NamedTuple):
    """A date of a text; a month or day that it does not give is None."""

    year: int
    month: int | None
    day: int | None

    def stated_by(self, other: WrittenDate) -> bool:
        """Whether `other` says this and perhaps more: a day states its month and its year."""
        given = [part for part in self if part is not None]
        return list(other)[: len(given)] == given


def read_dates(text: str) -> tuple[list[WrittenDate], str]:
    """The dates of a text in order of form, and the text with blanks in their place, so that no part counts twice."""
    text = unicodedata.normalize("NFKC", text)
    dates: list[WrittenDate] = []
    for form in _FORMS:
        for match in form.finditer(text):
            date = _date(match.groupdict())
            if date is not None:
                dates.append(date)
                text = text[: match.start()] + " " * (match.end() - match.start()) + text[match.end() :]
    return dates, text


def _date(parts: dict[str, str | None]) -> WrittenDate | None:
    name, number, written = parts.get("n"), parts.get("m"), parts.get("d")
    month = MONTHS[name.lower()] if name else int(number) if number else None
    day = int(written) if written else None
    if day is not None and not 1 <= day <= 31:
        return None
    return WrittenDate(int(parts["y"] or 0), month, day)
