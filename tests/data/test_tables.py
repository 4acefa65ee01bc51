"""Tables with and without quoting: every letter arrives, and a broken row of a quoted table is never smoothed over."""

from __future__ import annotations

import csv
import gzip
import logging
from pathlib import Path

import pytest

from ragx.data.corpus import read_passages
from ragx.data.tables import read_table
from ragx.errors import ConfigError, DataError

PLAIN = 'id\ttext\ttitle\n1\t"Flight" is an episode.\t"Flight"\n2\tNothing "odd".\tPlain\n3\t5" nail\tA "b"\n'


def texts(path: Path, quoting: str = "auto") -> list[tuple[str, str]]:
    return [(row.values["text"], row.values["title"]) for row in read_table(path, delimiter="\t", quoting=quoting)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_table_that_quotes_nothing_is_read_letter_by_letter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, newline: str, packed: bool
) -> None:
    content = b"\xef\xbb\xbf" + PLAIN.replace("\n", newline).encode()
    file = tmp_path / ("a.tsv" + ".gz" * packed)
    file.write_bytes(gzip.compress(content) if packed else content)
    with caplog.at_level(logging.INFO, logger="ragx"):
        found = texts(file)
    expected = [('"Flight" is an episode.', '"Flight"'), ('Nothing "odd".', "Plain"), ('5" nail', 'A "b"')]
    assert found == expected == texts(file, "none")
    assert "quotes nothing: quotation marks in it are letters" in caplog.text
    assert [row.line for row in read_table(file, delimiter="\t")] == [2, 3, 4]


@pytest.mark.parametrize(
    "rows",
    [
        ['1\t"says ""hi"""\tA', '2\t"broken" here\tB'],  # doubled marks
        ['1\t"two\tfields"\tA', '2\t"broken" here\tB'],  # a tab inside marks
        ['1\t"two\nlines"\tA', '2\t"broken" here\tB'],  # a line break inside marks
        ['1\t"a"\tA', '2\t"broken" here\tB', '3\t"c"\tC'],  # a column that is enclosed
    ],
    ids=["doubled", "tab", "line break", "enclosed"],
)
def test_one_broken_row_of_a_quoted_table_is_named(tmp_path: Path, rows: list[str]) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("\n".join(["id\ttext\ttitle", *rows]) + "\n")
    line = "\n".join(["header", *rows]).split("2\t")[0].count("\n") + 1
    with pytest.raises(
        DataError, match=rf"a.tsv:{line}: row must be well-formed, got: .* or read the file with quoting=none"
    ):
        texts(file)


def test_what_csv_can_read_is_csv(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    with file.open("w", newline="") as handle:
        rows = csv.writer(handle, delimiter="\t")
        rows.writerows([["id", "text", "title"], ["1", '"Flight" is', "a\tb"], ["2", 'c "d"', '"e"']])
    assert texts(file) == [('"Flight" is', "a\tb"), ('c "d"', '"e"')]


def test_csv_is_asked_for_and_then_kept_to(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(PLAIN)
    with pytest.raises(DataError, match=r"a.tsv:2: row must be well-formed"):
        texts(tmp_path / "a.tsv", "csv")
    (tmp_path / "b.csv").write_text('id,text\n1,"Weird" Al\n')  # a comma is no sign of anything
    with pytest.raises(DataError, match=r"b.csv:2: row must be well-formed"):
        list(read_passages(tmp_path / "b.csv"))
    with pytest.raises(ConfigError, match="quoting must be one of auto, csv, none, got 'all'"):
        texts(tmp_path / "a.tsv", "all")


def test_a_short_row_of_a_plain_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("id\ttext\ttitle\n1\ta\tb\n\n2\tno title\n")
    with pytest.raises(DataError, match=r"a.tsv:4: row must have 3 fields as the header, got 2"):
        texts(tmp_path / "a.tsv", "none")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "count", "line", "start"),
    [
        ("nq_qed/passages.tsv.gz", 8096, 17, '"Flight" is the twenty-fourth'),
        ("leaders_hotswap/factbook_passages_2016.tsv.gz", 11774, 2, "Background: After more than a century"),
    ],
)
def test_shared_tables_load_as_they_are(shared: Path, name: str, count: int, line: int, start: str) -> None:
    passages = list(read_passages(shared / name))
    assert len(passages) == count
    assert passages[line - 2].text.startswith(start)
    raw = gzip.open(shared / name, "rt", encoding="utf-8", newline="\n").read().rstrip("\n").split("\n")[1:]
    assert [f"{p.source}\t{p.text}\t{p.title}" for p in passages] == raw  # letter by letter
