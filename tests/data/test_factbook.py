"""Dated dumps as passages and positions as questions: what is one source, what is gold, and what is refused."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from ragx.data.factbook import DUMPS, Dump, Factbook
from ragx.errors import DataError
from ragx.records import PassageKey

BEFORE, AFTER = DUMPS


def write_table(path: Path, rows: Sequence[dict[str, str]], delimiter: str = ",") -> None:
    """A table with a header, packed where the name says so; no value holds the delimiter."""
    lines = [delimiter.join(values) for values in (rows[0], *(row.values() for row in rows))]
    text = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def passage(name: str, text: str, title: str) -> dict[str, str]:
    return {"id": name, "text": text, "title": title}


CHANGED = {
    "country": "Eswatini", "position": "Prime Minister", "question": "Who is the Prime Minister of Eswatini?",
    "gec": "wz", "holder_2016_12": "Old One", "holder_2018_12": "New Two", "psg_2016": "fb2016-wz-7", "psg_2020": "",
}  # fmt: skip
KEPT = {"country": "Peru", "position": "Judge", "holder": "Al Same", "since": "2013-09-05", "gec": "pe"}
TEXTS = {
    "2016": [
        passage("fb2016-wz-3", 'Says "hello.', "Swaziland (Introduction)"),
        passage("fb2016-wz-7", "Prime Minister Old ONE (since 1 May 2010)", "Swaziland (Government)"),
        passage("fb2016-pe-9", "Judge Al SAME (since 5 September 2013)", "Peru (Government)"),
        passage("fb2016-pe-10", "Judge Al SAME (since 6 September 2013)", "Peru (Government)"),
        passage("fb2016-pe-11", "Al SAME writes (since 5 September 2013)", "Peru (Economy)"),
    ],
    "2020": [
        passage("fb2020-wz-1", "Prime Minister of Eswatini: vacant", "Eswatini (Government)"),
        passage("fb2020-pe-2", "Judge Al Same, held since 5 September 2013", "Peru (Government)"),
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for year, rows in TEXTS.items():
        write_table(tmp_path / f"factbook_passages_{year}.tsv.gz", rows, "\t")
    write_table(tmp_path / "leaders.csv", [CHANGED])
    write_table(tmp_path / "leaders_unchanged.csv", [KEPT])
    return tmp_path


def test_a_section_is_one_source_in_both_dumps(folder: Path) -> None:
    """Also of a country that was renamed; a passage's number in the file says nothing."""
    keys = [[p.key for p in Factbook(folder, dump).passages] for dump in DUMPS]
    assert keys[0][1:4] == [
        PassageKey("wz/Government", "2016-11", "0"),
        PassageKey("pe/Government", "2016-11", "0"),
        PassageKey("pe/Government", "2016-11", "1"),
    ]
    assert keys[1][0] == PassageKey("wz/Government", "2020-11", "0")
    assert Factbook(folder, BEFORE).passages[0].text == 'Says "hello.'


def test_questions_of_each_date(folder: Path) -> None:
    changed, kept = Factbook(folder, BEFORE).questions()
    assert (changed.query, changed.answers, changed.kind, changed.as_of) == (
        "Who is the Prime Minister of Eswatini?", ("Old One",), "changed", "2016-11",
    )  # fmt: skip
    assert changed.gold == (PassageKey("wz/Government", "2016-11", "0"),)
    assert (kept.query, kept.answers, kept.kind) == ("Who is the Judge of Peru?", ("Al Same",), "unchanged")
    assert kept.gold == (PassageKey("pe/Government", "2016-11", "0"),)  # not another day's, not another section's
    changed, kept = Factbook(folder, AFTER).questions()
    assert (changed.answers, changed.gold) == (("New Two",), ())
    assert kept.gold == (PassageKey("pe/Government", "2020-11", "0"),)


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        (
            "leaders.csv",
            [{**CHANGED, "psg_2016": "fb2016-wz-8"}],
            "leaders.csv:2: psg_2016: must be the id of",
        ),
        ("leaders.csv", [{**CHANGED, "holder_2016_12": ""}], "leaders.csv:2: holder_2016_12: must be text"),
        ("leaders_unchanged.csv", [{**KEPT, "since": "2013"}], "unchanged.csv:2: since: must be a day as 2013-09-10"),
        ("leaders_unchanged.csv", [KEPT, KEPT], "positions must differ, got 'Peru:Judge' twice"),
        ("factbook_passages_2016.tsv", [passage("7", "a", "Peru (Government)")], "tsv:2: id: must read fb<year>-"),
    ],
)
def test_what_cannot_be_read_is_named(folder: Path, file: str, rows: list[dict[str, str]], message: str) -> None:
    write_table(folder / file, rows, "\t" if file.endswith("tsv") else ",")
    with pytest.raises(DataError, match=message):
        Factbook(folder, BEFORE).questions()


@pytest.mark.shared
@pytest.mark.parametrize(("dump", "passages", "stated"), [(BEFORE, 11774, (90, 133)), (AFTER, 12720, (81, 127))])
def test_the_real_dumps(shared: Path, dump: Dump, passages: int, stated: tuple[int, int]) -> None:
    """92 positions that changed hands and 138 that did not; the dump states the holder of so many of each."""
    book = Factbook(shared / "leaders_hotswap", dump)
    asked = book.questions()
    assert len(book.passages) == len({p.key for p in book.passages}) == passages
    assert Counter(example.kind for example in asked) == {"changed": 92, "unchanged": 138}
    found = Counter(example.kind for example in asked if example.gold)
    assert (found["changed"], found["unchanged"]) == stated
    texts = {p.key: p.text.lower() for p in book.passages}
    named = [e.answers[0].split()[-1].lower() in texts[key] for e in asked for key in e.gold]
    assert sum(named) >= len(named) - 12  # the holder stands there; a few names are spelt in another way
