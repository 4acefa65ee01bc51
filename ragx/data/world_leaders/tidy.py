"""From the raw lists to tidy CSVs: countries spelled out, encodings mended, impossible dates dropped and listed.

Source of the facts: the REIGN leader list (March 2021) and office holders of the CIA World Factbook (public domain).
"""

from __future__ import annotations

import calendar
import csv
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ragx import atomic

FOLDER = Path(__file__).parent
SPELL_FIELDS = ("country", "leader", "start", "end", "birth_year", "woman", "military")
OFFICE_FIELDS = ("country", "office", "territory", "holder_2016_12", "since_2016_12", "holder_2018_12", "since_2018_12")
DROPPED_FIELDS = ("country", "leader", "field", "value", "reason")

SPELLING = {"Gonz\u0161lez": "Gonz\u00e1lez", "XI Jinping": "Xi Jinping", "Ilhma": "Ilham", " & ": " and "}


def mend_name(raw: str) -> str:
    """A name in reading order: UTF-8 read as Latin-1 mended, remarks in brackets cut, `Family, Given` turned round."""
    try:
        name = raw.encode("latin-1").decode("utf-8")
    except UnicodeError:
        name = raw
    name = re.sub(r"\(.*", "", name)
    if "," in name:
        family, given = (part.strip() for part in name.split(",", 1))
        given = given + "." if len(given) == 1 else given.rstrip("-")
        name = f"{given} {family}"
    name = re.sub(r"\.(?=[A-Z][a-z])", ". ", name)
    for wrong, right in SPELLING.items():
        name = name.replace(wrong, right)
    return " ".join(word if not _shouts(word) else word.title() for word in name.split())


def _shouts(word: str) -> bool:
    letters = re.sub(r"[^A-Za-z]", "", word)
    return (
        any(len(part) >= 2 and part.isupper() and not re.fullmatch(r"[IVX]+", part) for part in word.split("-"))
        and len(letters) > 2
    )


def country_on(code: str, names: dict[str, str], start: str) -> str:
    """The name a country had when the spell began; two states changed theirs without changing their code."""
    if code == "365" and start < "1991-07":
        return "Soviet Union"
    if code == "345" and start < "2004":
        return "Yugoslavia"
    return names[code]


def tidy_spells(
    rows: Iterable[dict[str, str]], names: dict[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The spells sorted by country and start, and what was dropped from them with the reason."""
    by_code: dict[str, list[dict[str, Any]]] = defaultdict(list)
    dropped: list[dict[str, Any]] = []
    for row in rows:
        year, month, day = int(row["syear"]), int(row["smonth"]), int(row["sdate"])
        start = f"{year:04d}-{month:02d}-{day:02d}"
        end = f"{int(row['eyear']):04d}-{int(row['emonth']):02d}" if row["eyear"].strip() else ""
        spell: dict[str, Any] = {
            "country": country_on(row["ccode"], names, start),
            "leader": mend_name(row["leader"]),
            "start": start,
            "end": end,
            "birth_year": row["birthyear"].strip(),
            "woman": int(row["gender"].strip() == "0"),
            "military": int(row["militarycareer"].strip() == "1"),
        }
        place = {"country": spell["country"], "leader": spell["leader"]}
        if day > calendar.monthrange(year, month)[1] or (end and end < start[:7]):
            dropped.append({**place, "field": "start", "value": start, "reason": "no such date, or after the end"})
            continue
        if not spell["birth_year"].isdigit() or not 14 <= year - int(spell["birth_year"]) <= 99:
            reason = "unknown in the source, or an impossible age at the start"
            dropped.append({**place, "field": "birth_year", "value": spell["birth_year"], "reason": reason})
            spell["birth_year"] = ""
        by_code[row["ccode"]].append(spell)
    kept: list[dict[str, Any]] = []
    for code in sorted(by_code, key=int):
        spells = sorted(by_code[code], key=lambda spell: spell["start"])
        for spell, following in zip(spells, [*spells[1:], None], strict=True):
            if following is not None and (not spell["end"] or spell["end"] > following["start"][:7]):
                reason = f"ends after {following['leader']} began on {following['start']}; the whole spell is left out"
                dropped.append(
                    {
                        "country": spell["country"],
                        "leader": spell["leader"],
                        "field": "end",
                        "value": spell["end"],
                        "reason": reason,
                    }
                )
            else:
                kept.append(spell)
    return kept, dropped


def tidy_offices(changed: Iterable[dict[str, str]], unchanged: Iterable[dict[str, str]]) -> list[dict]:
    """One row an office, with who held it in December 2016 and in December 2018 and since when."""
    rows = [
        {
            "country": row["country"],
            "office": row["position"],
            "territory": row["territory"],
            "holder_2016_12": mend_name(row["holder_2016_12"]),
            "since_2016_12": row["since_2016_holder"],
            "holder_2018_12": mend_name(row["holder_2018_12"]),
            "since_2018_12": row["since_2018_holder"],
        }
        for row in changed
    ]
    for row in unchanged:
        holder = mend_name(row["holder"])
        rows.append(
            {
                "country": row["country"],
                "office": row["position"],
                "territory": "0",
                "holder_2016_12": holder,
                "since_2016_12": row["since"],
                "holder_2018_12": holder,
                "since_2018_12": row["since"],
            }
        )
    return sorted(rows, key=lambda row: (row["country"], row["office"]))


def tidy_all(raw: Path) -> dict[str, int]:
    """Reads the raw lists in `raw`, writes the CSVs beside this file and returns their row counts."""
    with open(FOLDER / "countries.csv", encoding="utf-8", newline="") as handle:
        names = {row["code"]: row["country"] for row in csv.DictReader(handle)}
    spells, dropped = tidy_spells(_read(raw / "reign_leaderlist_2021_03.csv", "latin-1"), names)
    offices = tidy_offices(_read(raw / "leaders.csv", "utf-8"), _read(raw / "leaders_unchanged.csv", "utf-8"))
    _write("spells.csv", SPELL_FIELDS, spells)
    _write("offices.csv", OFFICE_FIELDS, offices)
    _write("dropped.csv", DROPPED_FIELDS, dropped)
    return {"spells.csv": len(spells), "offices.csv": len(offices), "dropped.csv": len(dropped)}


def _read(path: Path, encoding: str) -> list[dict[str, str]]:
    with open(path, encoding=encoding, newline="") as handle:
        return list(csv.DictReader(handle))


def _write(name: str, fields: tuple[str, ...], rows: list[dict]) -> None:
    with atomic.open_file(FOLDER / name) as handle:
        writer = csv.DictWriter(handle, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
