"""The facts behind the passages: spells of leaders and holders of offices, as typed rows.

A spell is one uninterrupted time of one leader at the head of one country. Months are ISO (`2011-07`).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
EDITIONS = ("2016-12", "2018-12")


@dataclass(frozen=True, slots=True)
class Spell:
    """One spell: `number` counts the spells of a country from 0, in order of time."""

    country: str
    number: int
    leader: str
    start: str
    end: str | None
    birth_year: str | None
    woman: bool
    military: bool


@dataclass(frozen=True, slots=True)
class Office:
    """One office of a country and who held it (holder, since) at each edition."""

    country: str
    office: str
    holders: tuple[tuple[str, str], ...]

    @property
    def changed(self) -> bool:
        """Whether another person holds it in the last edition than in the first."""
        return self.holders[0][0] != self.holders[-1][0]

    def holder(self, as_of: str) -> tuple[str, str]:
        """(name, since) at an edition."""
        return self.holders[EDITIONS.index(as_of)]


def spoken_month(iso: str) -> str:
    """`2011-07` or `2011-07-28` as `July 2011`."""
    return f"{MONTHS[int(iso[5:7]) - 1]} {iso[:4]}"


def slug(name: str) -> str:
    """A lower-case name for a source identifier: letters and digits, hyphens between."""
    kept = "".join(character if character.isalnum() else " " for character in name.lower())
    return "-".join(kept.split())


def _rows(name: str) -> list[dict[str, str]]:
    with open(FOLDER / name, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


@cache
def spells() -> dict[str, tuple[Spell, ...]]:
    """The spells of each country, in order of time, up to March 2021."""
    by_country: dict[str, list[Spell]] = defaultdict(list)
    for row in _rows("spells.csv"):
        spell = Spell(
            row["country"], len(by_country[row["country"]]), row["leader"], row["start"][:7], row["end"] or None,
            row["birth_year"] or None, row["woman"] == "1", row["military"] == "1",
        )  # fmt: skip
        by_country[spell.country].append(spell)
    return {country: tuple(rows) for country, rows in by_country.items()}


@cache
def offices() -> tuple[Office, ...]:
    """The 230 offices, sorted by country and title."""
    return tuple(
        Office(row["country"], row["office"], tuple((row[f"holder_{edition}"], row[f"since_{edition}"][:7])
               for edition in (name.replace("-", "_") for name in EDITIONS)))
        for row in _rows("offices.csv")
    )  # fmt: skip


def spells_until(country_spells: tuple[Spell, ...], as_of: str) -> tuple[Spell, ...]:
    """What was known at an edition: spells begun by then, an end that came later still open."""
    return tuple(
        Spell(
            spell.country, spell.number, spell.leader, spell.start, None, spell.birth_year, spell.woman, spell.military
        )
        if spell.end is not None and spell.end > as_of
        else spell
        for spell in country_spells
        if spell.start <= as_of
    )


def follows(earlier: Spell, later: Spell) -> bool:
    """Whether the later spell began as the earlier one ended (within a month), so that one succeeded the other."""
    if earlier.end is None or later.number != earlier.number + 1:
        return False
    months = [int(iso[:4]) * 12 + int(iso[5:7]) for iso in (earlier.end, later.start)]
    return months[1] - months[0] <= 1 and earlier.leader != later.leader
