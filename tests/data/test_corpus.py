"""Passages from files: every letter arrives, or the line that does not is named."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from ragx.data.corpus import Columns, read_passages, write_passages
from ragx.errors import DataError
from ragx.records import Passage, text_sha256

HARD_TEXTS = [
    '1"',
    'He said "hi"',
    "a\ttab",
    "two\nlines",
    "",
    "null",
    "NA",
    "nan",
    "None",
    "😀 ü \u2028 \x85 end",
    "  double  blanks  ",
    "x" * 1_000_000,
    "\\n 'single' \\",
]
WHOLE = Passage("peru", "2016-12", "3", "Peru", "Lima", (5, 9), "", "2011-07-28", "2016-07", ("staff", "press"))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(path: Path, *, delimiter: str, newline: str = "\r\n") -> Path:
    """Written as DPR wrote psgs_w100.tsv: by the csv module, id, text and title."""
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, delimiter=delimiter, lineterminator=newline)
        writer.writerow(["id", "text", "title"])
        for number, text in enumerate(HARD_TEXTS, start=1):
            writer.writerow([number, text, text[:50]])
    return path


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
@pytest.mark.parametrize(("name", "delimiter"), [("psgs_w100.tsv", "\t"), ("a.csv", ","), ("A.TSV", "\t")])
def test_tables_keep_every_letter(tmp_path: Path, name: str, delimiter: str, newline: str) -> None:
    passages = list(read_passages(table(tmp_path / name, delimiter=delimiter, newline=newline)))
    assert [p.text for p in passages] == HARD_TEXTS
    assert [p.title for p in passages] == [text[:50] for text in HARD_TEXTS]
    assert [p.key for p in passages] == [(str(number), "1", "0") for number in range(1, len(HARD_TEXTS) + 1)]


@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_lines_keep_every_letter(tmp_path: Path, ascii_only: bool) -> None:
    rows = [{"id": number, "title": text[:50], "text": text} for number, text in enumerate(HARD_TEXTS)]
    content = "\r\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows)
    passages = list(read_passages(write(tmp_path / "a.jsonl", content)))
    assert [(p.text, p.title) for p in passages] == [(text, text[:50]) for text in HARD_TEXTS]


def test_quotes_inside_an_unquoted_field_are_letters(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", 'title\tid\ttext\nthe 5" nail\tn\tHe said "hi" twice\n\t7\tno title\n')
    assert [(p.source, p.title, p.text) for p in read_passages(file)] == [
        ("n", 'the 5" nail', 'He said "hi" twice'),
        ("7", "", "no title"),
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.tsv"])
def test_byte_order_mark_and_blank_lines(tmp_path: Path, name: str) -> None:
    rows = '{"id": "a", "text": "b"}\n\n' if name == "a.jsonl" else "id\ttext\na\tb\n\n"
    for packed in (False, True):
        content = b"\xef\xbb\xbf" + rows.encode()
        file = write(tmp_path / (name + ".gz" * packed), gzip.compress(content) if packed else content)
        assert [(p.source, p.title, p.text) for p in read_passages(file)] == [("a", "", "b")]


def test_ids_of_every_kind(tmp_path: Path) -> None:
    rows = [{"id": i, "text": "x"} for i in ("wiki:1", 7, 2**40, -1, "007", "ü b")]
    file = write(
        tmp_path / "a.jsonl", lines(*rows, {"title": "Peru", "text": "y"}, {"source": "s", "id": 9, "text": "z"})
    )
    assert [p.source for p in read_passages(file)] == ["wiki:1", "7", str(2**40), "-1", "007", "ü b", "Peru", "s"]


def test_version_is_that_of_rows_without_one(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", lines({"id": 1, "text": ""}, {"id": 1, "text": "", "version": "2018-12"}))
    assert [p.version for p in read_passages(file, version="2016-12")] == ["2016-12", "2018-12"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    passages = [WHOLE, *(Passage(str(n), "1", "0", text[:50], text) for n, text in enumerate(HARD_TEXTS))]
    write_passages(tmp_path / name, iter(passages))
    assert list(read_passages(tmp_path / name)) == passages
    first = (tmp_path / name).read_bytes()
    write_passages(tmp_path / name, passages)
    assert (tmp_path / name).read_bytes() == first


def test_columns_of_other_names(tmp_path: Path) -> None:
    """FAULTS C6: None titles, missing columns, a column of the user's own."""
    rows = lines({"body": "b", "name": None, "key": 7, "text": "not this"}, {"body": "c", "name": "NA", "key": 8})
    file = write(tmp_path / "a.jsonl", rows)
    columns = Columns(text="body", title="name", id="key")
    found = [(p.source, p.title, p.text) for p in read_passages(file, columns=columns)]
    assert found == [("7", "", "b"), ("8", "NA", "c")]
    with pytest.raises(DataError, match=r"a.jsonl:1: head: must be given as title, got the fields \['body', 'key'"):
        list(read_passages(file, columns=Columns(text="body", title="head")))
    table = write(tmp_path / "a.tsv", "key\tbody\n1\tx\n")
    assert [p.text for p in read_passages(table, columns=Columns(text="body", id="key"))] == ["x"]
    with pytest.raises(DataError, match=r"a.tsv:1: header must name the column `content`, got \['key', 'body'\]"):
        list(read_passages(table, columns=Columns(text="content")))


def test_no_passage_is_refused(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", ""), ("b.jsonl", "\n \n"), ("a.tsv", "id\ttext\ttitle\n"), ("b.tsv", "")):
        with pytest.raises(DataError, match=rf"{name}: corpus must hold at least one passage, got none"):
            list(read_passages(write(tmp_path / name, content)))
    write_passages(tmp_path / "kept.jsonl", [WHOLE])
    with pytest.raises(DataError, match=r"kept.jsonl: passages must hold at least one passage, got none"):
        write_passages(tmp_path / "kept.jsonl", [])
    assert list(read_passages(tmp_path / "kept.jsonl")) == [WHOLE]


def test_twice_the_same_identity_names_both_lines(tmp_path: Path) -> None:
    rows = [{"title": "Peru", "text": "a"}, {"title": "Chile", "text": "b"}, {"title": "Peru", "text": "c"}]
    with pytest.raises(DataError, match=r"a.jsonl:3: id: .*\('Peru', '1', '0'\) again \(first on line 1\)"):
        list(read_passages(write(tmp_path / "a.jsonl", lines(*rows))))
    with pytest.raises(DataError, match=r"a.tsv:4: id: .*\('1', '1', '0'\) again \(first on line 2\)"):
        list(read_passages(write(tmp_path / "a.tsv", 'id\ttext\n1\t"two\nlines"\n1\tb\n')))
    apart = [{"source": "Peru", "chunk": n, "text": "a"} for n in range(3)]
    assert len(list(read_passages(write(tmp_path / "b.jsonl", lines(*apart))))) == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1}, r"text: must be given, got the fields \['id'\]"),
        ({"id": 1, "text": None}, "text: must be text, got None"),
        ({"id": 1, "text": 5}, "text: must be text, got 5"),
        ({"id": 1, "text": "a", "title": 5}, "title: must be text, got 5"),
        ({"text": "a"}, "id: must be given where source and title are empty"),
        ({"id": True, "text": "a"}, "id: must be text that is not blank, got True"),
        ({"id": 1.5, "text": "a"}, "id: must be text that is not blank, got 1.5"),
        ({"id": " ", "text": "a"}, "id: must be text that is not blank, got ' '"),
        ({"id": 1, "text": "\ud800"}, "text: must be Unicode text, got half a surrogate pair"),
        ({"id": 1, "text": "a", "span": [3, 1]}, r"span: must be \[start, end\] .* got \[3, 1\]"),
        ({"id": 1, "text": "a", "span": [0, True]}, r"span: must be \[start, end\] .* got \[0, True\]"),
        ({"id": 1, "text": "a", "span": 4}, r"span: must be \[start, end\] .* got 4"),
        ({"id": 1, "text": "a", "sha256": "00"}, f"sha256: must be the hash of text, {text_sha256('a')}, got '00'"),
        (
            {"id": 1, "text": "a", "valid_to": "31.12.2016"},
            "valid_to: must be a date as 2016-12-31, .* got '31.12.2016'",
        ),
        ({"id": 1, "text": "a", "acl": "staff"}, r"acl: must be a list, got 'staff'"),
        ({"id": 1, "text": "a", "acl": [""]}, r"acl\[0\]: must be text that is not blank, got ''"),
        ({"id": 1, "text": "a", "valid_too": "2016"}, "valid_too: must be a known field, got a name like `valid_to`"),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, row: dict[str, object], message: str) -> None:
    file = write(tmp_path / "a.jsonl", lines({"id": "first", "text": "a", "url": "ignored"}, row))
    with pytest.raises(DataError, match=rf"a.jsonl:2: {message}"):
        list(read_passages(file))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"id": 1, "text": "a"}\n{"id": 2, "te', r":2: line must be one JSON object"),
        ("a.jsonl", b'{"id": 1, "text": "\xff"}\n', r":1: line must be UTF-8"),
        ("a.tsv", "id\ttext\n1\ta\n2\ta\tb\n", r":3: row must have 2 fields as the header, got 3"),
        ("a.tsv", "id\ttext\n1\n", r":2: row must have 2 fields as the header, got 1"),
        ("a.tsv", 'id\ttext\n1\t"Weird" Al\n', r":2: row must be well-formed, got: .*Double the quotation marks"),
        ("a.tsv", 'id\ttext\n1\ta\n2\t"open\n3\tb\n', r":3: row must be well-formed, got: unexpected end of data"),
        ("a.tsv", b"id\ttext\n1\t\xff\n", r":2: line must be UTF-8"),
        (
            "a.tsv",
            "id\ttitle\n1\ta\n",
            r":1: header must name the column `text`, got \['id', 'title'\]",
        ),
        ("a.tsv", "text\ttext\na\tb\n", r":1: header must name each column once"),
        (
            "a.tsv.gz",
            gzip.compress(b"id\ttext\n1\ta\n2\tb\n", mtime=0)[:-9],
            r":\d+: file must be whole, got an archive",
        ),
        ("a.tsv.gz", b"id\ttext\n1\ta\n", r":1: file must be whole, got an archive"),
        ("a.txt", "a\n", r": file must end in .jsonl, .tsv or .csv, also .gz, got a.txt"),
    ],
    ids=range(12),
)
def test_a_bad_line_is_named(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=name + message):
        list(read_passages(write(tmp_path / name, content), quoting="csv"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("nowhere.jsonl", "nowhere.tsv"):
        with pytest.raises(FileNotFoundError, match=name):
            list(read_passages(tmp_path / name))
