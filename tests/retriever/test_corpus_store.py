"""A corpus that is streamed to disk for the time of a build, and gone afterwards whatever happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragx.data.corpus import read_passages
from ragx.errors import DataError
from ragx.records import Passage
from ragx.retriever.corpus_encoding import Alone
from ragx.retriever.corpus_store import on_disk


def test_rows_are_the_files_and_only_one_passage_is_in_memory(passages: list[Passage], tmp_path: Path) -> None:
    alive = {"most": 0, "now": 0}

    def one_at_a_time() -> Iterator[Passage]:
        for passage in passages:
            alive["now"] += 1
            alive["most"] = max(alive["most"], alive["now"])
            yield passage
            alive["now"] -= 1

    with on_disk(one_at_a_time(), tmp_path / "index", processes=Alone()) as corpus:
        assert list(corpus) == passages and len(corpus) == 6
        assert corpus[2:4] == passages[2:4]
        assert [path.name for path in tmp_path.iterdir()] == [".index.passages"]
    assert alive["most"] == 1
    assert list(tmp_path.iterdir()) == []


def test_a_bad_row_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "text": "a"}\n{"id": 2}\n')
    with pytest.raises(DataError, match="a.jsonl:2: text: must be given"):
        with on_disk(read_passages(tmp_path / "a.jsonl"), tmp_path / "index", processes=Alone()):
            pytest.fail("the build began")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_other_processes_wait_for_the_main_one_and_map_what_it_wrote(passages: list[Passage], tmp_path: Path) -> None:
    class Second(Alone):
        num_processes, process_index = 2, 1

        def wait_for_everyone(self) -> None:
            if not (tmp_path / ".index.passages").exists():  # what the main process does meanwhile
                self.main = on_disk(passages, tmp_path / "index", processes=Alone())
                self.main.__enter__()

    second = Second()
    with on_disk(iter(()), tmp_path / "index", processes=second) as corpus:
        assert list(corpus) == passages
    assert (tmp_path / ".index.passages").exists()  # the main process removes it
    second.main.__exit__(None, None, None)
    assert not (tmp_path / ".index.passages").exists()
