"""The raw lists become tidy CSVs: names mended, impossible dates dropped and listed, nothing lost on the way."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ragx.data.world_leaders import tidy

SHARED = Path(__file__).parents[4] / "shared" / "data" / "leaders_hotswap"


@pytest.mark.parametrize(
    ("raw", "mended"),
    [
        ("Katr\u00c3\u00adn Jakobsd\u00c3\u00b3ttir", "Katrín Jakobsdóttir"),
        ("Eyskens, G.", "G. Eyskens"),
        ("Margai,M", "M. Margai"),
        ("D.Barrow", "D. Barrow"),
        ("S.W.R.D. Bandaranaike", "S.W.R.D. Bandaranaike"),
        ("Vincenzo Pedini (2nd time)         (", "Vincenzo Pedini"),
        ("Surya  Bahadur Thapa", "Surya Bahadur Thapa"),
        ("Denis SASSOU-Nguesso", "Denis Sassou-Nguesso"),
        ("XI Jinping", "Xi Jinping"),
        ("Carl XVI Gustaf", "Carl XVI Gustaf"),
    ],
)
def test_names_are_mended(raw: str, mended: str) -> None:
    assert tidy.mend_name(raw) == mended


def _raw(leader: str, start: tuple[int, int, int], end: tuple[int, int] | None, birth: str = "1950") -> dict[str, str]:
    return {
        "ccode": "135", "leader": leader, "sdate": str(start[2]), "smonth": str(start[1]), "syear": str(start[0]),
        "emonth": str(end[1]) if end else "", "eyear": str(end[0]) if end else "", "birthyear": birth, "gender": "0",
        "militarycareer": "1",
    }  # fmt: skip


def test_impossible_dates_are_dropped_and_listed() -> None:
    rows = [
        _raw("Good", (1990, 7, 28), (1995, 7)),
        _raw("Overlaps", (1995, 7, 28), (2001, 12)),
        _raw("Follows", (2000, 11, 22), None, birth="-99"),
        _raw("Backwards", (1980, 2, 1), (1979, 1)),
        _raw("NoSuchDay", (1985, 2, 30), (1986, 1)),
    ]
    kept, dropped = tidy.tidy_spells(rows, {"135": "Peru"})
    assert [spell["leader"] for spell in kept] == ["Good", "Follows"]
    assert {(row["leader"], row["field"]) for row in dropped} == {
        ("Overlaps", "end"), ("Follows", "birth_year"), ("Backwards", "start"), ("NoSuchDay", "start")
    }  # fmt: skip
    assert kept[0]["woman"] == 1 and kept[0]["military"] == 1 and kept[1]["birth_year"] == ""


def test_a_country_is_named_as_it_was_when_the_spell_began() -> None:
    names = {"365": "Russia", "345": "Serbia", "135": "Peru"}
    assert tidy.country_on("365", names, "1985-03-11") == "Soviet Union"
    assert tidy.country_on("365", names, "2000-01-01") == "Russia"
    assert tidy.country_on("345", names, "1989-05-15") == "Yugoslavia"
    assert tidy.country_on("135", names, "1945-01-01") == "Peru"


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the raw leader lists are not on this machine")
def test_the_committed_csvs_are_what_the_raw_lists_give() -> None:
    raw = list(csv.DictReader(open(SHARED / "reign_leaderlist_2021_03.csv", encoding="latin-1", newline="")))
    names = {
        row["code"]: row["country"] for row in csv.DictReader(open(tidy.FOLDER / "countries.csv", encoding="utf-8"))
    }
    kept, dropped = tidy.tidy_spells(raw, names)
    committed = list(csv.DictReader(open(tidy.FOLDER / "spells.csv", encoding="utf-8", newline="")))
    assert [{key: str(value) for key, value in row.items()} for row in kept] == committed
    whole_rows = [row for row in dropped if row["field"] != "birth_year"]
    assert len(raw) == len(kept) + len(whole_rows) == 2524
    listed = list(csv.DictReader(open(tidy.FOLDER / "dropped.csv", encoding="utf-8", newline="")))
    assert listed == dropped
