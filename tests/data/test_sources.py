"""Passages from a folder of datasets or a hub layout, with columns by name, cut in words or as the user's function."""

from __future__ import annotations

import sys
from pathlib import Path

import datasets
import numpy as np
import pytest

from ragx.data.chunking import load_chunker
from ragx.data.corpus import Columns
from ragx.data.dataset_folders import open_folder, rows_of_dataset, vectors_of_dataset
from ragx.data.sources import Source, cut
from ragx.errors import ConfigError, DataError
from ragx.records import Passage

ROWS = {
    "heading": ["Peru", None, "NA"],
    "body": ['He said "hi"', "  two  blanks\n", "ü 😀"],
    "views": [3, 2, 1],
    "texts": ["", "", ""],  # a column near a name of ours is the data set's own business
}
COLUMNS = Columns(text="body", title="heading")


def saved(folder: Path, rows: dict[str, list[object]] | None = None, *, split: str | None = None) -> Path:
    found = datasets.Dataset.from_dict(rows or ROWS)
    (datasets.DatasetDict({split: found, "other": found}) if split else found).save_to_disk(folder)
    return folder


@pytest.mark.parametrize("form", ["saved", "split", "parquet", "json"])
def test_a_folder_of_datasets_in_any_form(tmp_path: Path, form: str) -> None:
    folder, split = tmp_path / "d", None
    if form in ("saved", "split"):
        split = "validation" if form == "split" else None
        saved(folder, split=split)
    else:
        folder.mkdir()
        found = datasets.Dataset.from_dict(ROWS)
        getattr(found, "to_parquet" if form == "parquet" else "to_json")(folder / f"train.{form}")
    passages = list(Source(str(folder), COLUMNS, split, version="v").passages())
    assert [(p.key, p.title, p.text) for p in passages] == [
        (("0", "v", "0"), "Peru", 'He said "hi"'),
        (("1", "v", "0"), "", "  two  blanks\n"),
        (("2", "v", "0"), "NA", "ü 😀"),
    ]


def test_a_local_folder_in_the_hubs_layout(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    datasets.Dataset.from_dict({**ROWS, "id": ["a", "b", "c"]}).to_parquet(tmp_path / "d" / "test.parquet")
    found = list(Source(f"hub:{tmp_path}/d:test", COLUMNS).passages())
    assert [p.source for p in found] == ["a", "b", "c"] and found[0].text == 'He said "hi"'


def test_rows_come_in_order_across_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragx.data.dataset_folders._ROWS", 2)
    rows = open_folder(
        saved(tmp_path / "d", {"text": list("abcde"), "embeddings": [[float(n), 1.0] for n in range(5)]})
    )
    assert [(row.line, row.values) for row in rows_of_dataset(rows, place="d", without=("embeddings",))] == [
        (number, {"text": letter}) for number, letter in enumerate("abcde", start=1)
    ]
    blocks = list(vectors_of_dataset(rows, "embeddings", place="d"))
    assert [len(block) for block in blocks] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate(blocks), [[n, 1.0] for n in range(5)])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"text": ["a", None]}, r"d:2: text: must be text, got None"),
        ({"text": ["a", "b"], "id": ["x", "x"]}, r"d:2: id: identity must be unique, got \('x', '1', '0'\) again"),
        ({"title": ["a"]}, r"d:1: text: must be given, got the fields"),
        ({"text": ["a"], "title": [5]}, r"d:1: title: must be text, got 5"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, rows: dict[str, list[object]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(Source(str(saved(tmp_path / "d", rows))).passages())


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data set must be a folder, got none"):
        open_folder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: folder must be one that datasets reads, got: "):
        open_folder(tmp_path / "empty")
    with pytest.raises(DataError, match="split must be one of validation, other, got None"):
        open_folder(saved(tmp_path / "two", split="validation"))
    rows = open_folder(saved(tmp_path / "d"))
    with pytest.raises(DataError, match="d: embeddings: column must be there with a vector a row, got"):
        list(vectors_of_dataset(rows, "embeddings", place="d"))
    uneven = open_folder(saved(tmp_path / "u", {"embeddings": [[1.0], [1.0, 2.0]]}))
    with pytest.raises(DataError, match="u:1: embeddings: must hold vectors of one length"):
        list(vectors_of_dataset(uneven, "embeddings", place="u"))


ARTICLE = Passage("a", "v", "0", "Title", "one two\n three four five", acl=("staff",), valid_from="2016")


def test_articles_are_cut_with_their_title() -> None:
    found = list(cut([ARTICLE], words=2))
    assert [(p.key, p.title, p.text, p.span) for p in found] == [
        (("a", "v", "0"), "Title", "one two", (0, 7)),
        (("a", "v", "1"), "Title", "three four", (9, 19)),
        (("a", "v", "2"), "Title", "five", (20, 24)),
    ]
    assert {(p.acl, p.valid_from) for p in found} == {(("staff",), "2016")}


def test_a_piece_that_is_cut_again_keeps_its_place() -> None:
    piece = Passage("a", "v", "3", "T", "x y z", span=(100, 105))
    assert [(p.chunk, p.span) for p in cut([piece], words=2)] == [("3.0", (100, 103)), ("3.1", (104, 105))]


def test_a_function_of_the_users_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves_source = "def halves(text):\n    return [(0, len(text) // 2), (len(text) // 2, len(text))]\n"
    module = halves_source + "\nbad = lambda text: [(0, 99)]\n"
    (tmp_path / "my_chunks.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    halves = load_chunker("my_chunks:halves")
    assert [p.text for p in cut([ARTICLE], chunker=halves)] == [ARTICLE.text[:12], ARTICLE.text[12:]]
    with pytest.raises(ConfigError, match=r"chunker must return spans \[start, end\) within the 24 code points of 'a'"):
        list(cut([ARTICLE], chunker=load_chunker("my_chunks:bad")))
    for name in ("my_chunks", "my_chunks:nothing", "no_such_module:f", "my_chunks:__name__"):
        with pytest.raises(ConfigError, match=f"chunker must be package.module:function, got '{name}'"):
            load_chunker(name)
    sys.modules.pop("my_chunks")
