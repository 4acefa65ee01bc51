"""What goes into a store comes out, letter by letter and row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import datasets
import pytest

from ragx.errors import DataError, IndexMismatchError
from ragx.records import Passage
from ragx.retriever.passages import PassageStore, passages_fingerprint

WHOLE = Passage(
    source="peru",
    version="2016-12",
    chunk="3",
    title='"Weird" NA',
    text="He  said \"hi\"\tand\r\nleft: \u2028 ü 😀 'null' ",
    span=(5, 44),
    valid_from="2011-07-28",
    valid_to=None,
    acl=("staff", "press"),
)


def test_every_field_comes_back(tmp_path: Path, passages: list[Passage]) -> None:
    store = PassageStore.build([WHOLE, *passages], tmp_path / "store")
    assert list(store) == [WHOLE, *passages]
    assert store[0] == WHOLE and store[-1] == passages[-1] and store[1:3] == passages[:2]
    assert len(PassageStore.open(tmp_path / "store")) == 7


def test_take_by_row(tmp_path: Path) -> None:
    """More rows than one Arrow batch holds, asked for out of order and twice."""
    many = [Passage(str(row), "1", "0", f"title {row}", f"text {row}") for row in range(2500)]
    store = PassageStore.build(iter(many), tmp_path / "store")
    rows = [2499, 0, 1000, 0, 999]
    assert store.take(rows) == [many[row] for row in rows]
    assert store.take([]) == []
    with pytest.raises(IndexError, match="2500"):
        store.take([2500])


def test_bytes_depend_on_content_alone(tmp_path: Path, passages: list[Passage]) -> None:
    first = PassageStore.build(passages, tmp_path / "a")
    again = PassageStore.build(passages, tmp_path / "b" / "c")
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / "c" / file.name).read_bytes()
    assert first.fingerprint == again.fingerprint == passages_fingerprint(first) == passages_fingerprint(passages)


def test_fingerprint_covers_order_and_every_field(passages: list[Passage]) -> None:
    changed = [
        passages[::-1],
        passages[:-1],
        [dataclasses.replace(passages[0], title="peru"), *passages[1:]],
        [dataclasses.replace(passages[0], version="2018-12"), *passages[1:]],
        [dataclasses.replace(passages[0], valid_to="2018"), *passages[1:]],
        [dataclasses.replace(passages[0], acl=("staff",)), *passages[1:]],
    ]
    fingerprints = {passages_fingerprint(each) for each in [passages, *changed]}
    assert len(fingerprints) == 7


def test_datasets_opens_it(tmp_path: Path, passages: list[Passage]) -> None:
    PassageStore.build(passages, tmp_path / "store")
    rows = datasets.load_from_disk(str(tmp_path / "store"))
    assert rows["title"] == [passage.title for passage in passages]


def test_no_passage_and_twice_the_same_identity(tmp_path: Path, passages: list[Passage]) -> None:
    with pytest.raises(DataError, match="passages must hold at least one passage, got none"):
        PassageStore.build([], tmp_path / "store")
    twin = dataclasses.replace(passages[1], text="another text", sha256="")
    with pytest.raises(DataError, match=r":7: identity must be unique, got \('7', '2016-12', '0'\) a second time"):
        PassageStore.build([*passages, twin], tmp_path / "store")
    with pytest.raises(DataError, match=r":1: identity must be three non-empty strings, got \('a', '', '0'\)"):
        PassageStore.build([Passage("a", "", "0", "", "")], tmp_path / "store")
    near = [("a", "bc"), ("ab", "c"), ('a", "b', "c"), ("a", 'b", "c'), ("a\x1fb", "c"), ("a", "b\x1fc")]
    assert len(PassageStore.build([Passage(*parts, "0", "", "") for parts in near], tmp_path / "near")) == 6


def test_whole_or_absent(tmp_path: Path, passages: list[Passage]) -> None:
    PassageStore.build(passages, tmp_path / "store")

    def breaks_off() -> Iterator[Passage]:
        yield passages[0]
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        PassageStore.build(breaks_off(), tmp_path / "store")
    assert list(PassageStore.open(tmp_path / "store")) == passages
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


def test_what_is_no_store_is_refused(tmp_path: Path, passages: list[Passage]) -> None:
    with pytest.raises(IndexMismatchError, match=r"must be a folder that PassageStore.build wrote, got .*nowhere"):
        PassageStore.open(tmp_path / "nowhere")
    PassageStore.build(passages, tmp_path / "store")
    data = tmp_path / "store" / "data-00000-of-00001.arrow"
    data.write_bytes(data.read_bytes()[:200])
    with pytest.raises(IndexMismatchError, match="must be a folder that PassageStore.build wrote"):
        PassageStore.open(tmp_path / "store")
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(str(tmp_path / "other"))
    with pytest.raises(IndexMismatchError, match=r"must have the columns \['acl', .*got \['text'\]"):
        PassageStore.open(tmp_path / "other")
