"""Two dated dumps of the World Factbook, and the positions whose holder changed between them (section 4.5).

    factbook_passages_2016.tsv.gz   id, text, title     fb2016-al-6730, "Executive branch: ...", "Albania (Government)"
    leaders.csv                     country, position, question, gec, holder_2016_12, psg_2016 (an id) and the like
    leaders_unchanged.csv           country, position, gec, holder, since

One decision: a passage's source is the country's code and the section, and its chunk the place there. Row numbers and
titles differ between dumps; so one section is one source in both, also of a country that was renamed, and an audit can
tell what the later dump no longer says. Positions that kept their holder name no passage: gold is what the section on
the government says of the holder by name and day ("since 10 September 2013"). The same rule finds 158 of the 171
passages that the changed positions name, and never another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragx.data.tables import read_table
from ragx.dates import is_date
from ragx.errors import DataError
from ragx.jsonl import Row
from ragx.records import Example, Passage, PassageKey

CHANGED, UNCHANGED = "changed", "unchanged"
GOVERNMENT = "Government"
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump and the columns that belong to it.

    Attributes:
        edition: when the text was taken; the version of its passages and the date its questions are asked about.
        leaders: when the holders held their positions.
        year: in the names of file and column.
    """

    edition: str
    leaders: str
    year: str

    @property
    def holder(self) -> str:
        """The column of the holders."""
        return f"holder_{self.leaders.replace('-', '_')}"


DUMPS = (Dump("2016-11", "2016-12", "2016"), Dump("2020-11", "2018-12", "2020"))


class Factbook:
    """The passages of one dump, and the questions of its date.

    Args:
        directory: of the files.
        dump: which one.

    Raises:
        DataError: naming file, line and field: an id or title of another form, an unknown passage, a question twice.
        FileNotFoundError: a file is not there, nor with .gz after it.
    """

    def __init__(self, directory: str | Path, dump: Dump) -> None:
        self.directory, self.dump = Path(directory), dump
        self.passages: list[Passage] = []
        self._keys: dict[str, PassageKey] = {}
        self._government: dict[str, list[Passage]] = {}
        places: Counter[str] = Counter()
        for row in _rows(self.directory / f"factbook_passages_{dump.year}", ".tsv"):
            name, title = row.text("id", row.require("id")), row.text("title", row.require("title"))
            code, section = _code(row, name), title.rpartition(" (")[2].rstrip(")")
            source = f"{code}/{section}"
            text = row.text("text", row.require("text"))
            passage = Passage(source, dump.edition, str(places[source]), title, text)
            places[source] += 1
            self.passages.append(passage)
            self._keys[name] = passage.key
            if section == GOVERNMENT:
                self._government.setdefault(code, []).append(passage)

    def questions(self) -> list[Example]:
        """One question a position: those of another holder later, `kind` `changed`, then those of the same holder.

        Gold is empty where this dump states the holder nowhere.
        """
        found = [*self._changed(), *self._unchanged()]
        twice = [name for name, n in Counter(example.id for example in found).items() if n > 1]
        if twice:
            raise DataError(f"positions must differ, got {twice[0]!r} twice. Keep one row", path=self.directory)
        return found

    def _changed(self) -> Iterator[Example]:
        for row in _rows(self.directory / "leaders", ".csv"):
            name = str(row.values.get(f"psg_{self.dump.year}") or "")
            if name and name not in self._keys:
                row.fail(f"psg_{self.dump.year}", f"must be the id of a passage, got {name!r}. Take both from one dump")
            gold = (self._keys[name],) if name else ()
            yield self._question(row, row.text("question", row.require("question")), self.dump.holder, CHANGED, gold)

    def _unchanged(self) -> Iterator[Example]:
        for row in _rows(self.directory / "leaders_unchanged", ".csv"):
            holder, since, code = (row.text(name, row.require(name)) for name in ("holder", "since", "gec"))
            if len(since) != 10 or not is_date(since):
                row.fail("since", f"must be a day as 2013-09-10, got {since!r}. Write it so")
            held = f"since {int(since[8:])} {_MONTHS[int(since[5:7]) - 1]} {since[:4]}"
            gold = tuple(
                passage.key
                for passage in self._government.get(code, ())
                if held in passage.text and holder.lower() in passage.text.lower()
            )
            question = f"Who is the {row.require('position')} of {row.require('country')}?"
            yield self._question(row, question, "holder", UNCHANGED, gold)

    def _question(self, row: Row, question: str, holder: str, kind: str, gold: Sequence[PassageKey]) -> Example:
        return Example(
            id=f"{row.require('country')}:{row.require('position')}",
            query=question,
            answers=(row.text(holder, row.require(holder)),),
            kind=kind,
            gold=tuple(gold),
            as_of=self.dump.edition,
        )


def _rows(stem: Path, suffix: str) -> Iterator[Row]:
    """The rows of a table, packed or not."""
    path = stem.with_name(stem.name + suffix)
    if not path.exists():
        path = path.with_name(path.name + ".gz")
    if suffix == ".csv":
        return read_table(path, delimiter=",")
    return read_table(path, delimiter="\t", quoting="none")  # a quotation mark in a text is a letter


def _code(row: Row, name: str) -> str:
    parts = name.split("-")
    if len(parts) != 3:
        row.fail("id", f"must read fb<year>-<country>-<number>, got {name!r}. Use the ids of the dump")
    return parts[1]
