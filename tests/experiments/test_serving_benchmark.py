"""Works `open` and `swap`, what they count as memory, and a search benchmark that goes on where it stood."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from ragx import config
from ragx.experiments.benchmarks import cell, run, search, serving
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.private_memory import mapped_mib, private_mib, private_peak
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.index import VectorIndex

CONFIGS = Path(__file__).parents[2] / "configs"
MIB = 2**20
needs_proc = pytest.mark.skipif(private_mib() is None, reason="needs /proc/self/status")


def options(*overrides: str) -> Benchmark:
    small = ["sizes=[300x8]", "index_kinds=[sq]", "n_docs=[2]", "batch_sizes=[2]", "threads=1", "pairs=2"]
    small += ["least_seconds=0", "isolate=false"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return config.resolve(compose("benchmark", overrides=[*small, *overrides]), Benchmark)


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    """Two editions of an index."""
    found = [tmp_path / name for name in ("old", "new")]
    for place in found:
        serving.write_index(place, count=300, dimension=8, kind="sq", seed=0)
    return found


def test_an_index_of_the_benchmark_is_a_whole_one(places: list[Path]) -> None:
    old, new = (DenseRetriever.open(place) for place in places)
    assert len(old) == 300 and old.manifest.kind == "sq" and old.edition == "old"
    assert old.passages[7].title == "Title 7" and old.passages[7].version == "old"
    assert old.fingerprint != new.fingerprint and old.manifest.recall["recall"] >= 0.95


def test_swaps_under_questions_are_counted(places: list[Path]) -> None:
    """FAULTS D4: every question is answered, each by one edition."""
    row = serving.swap_and_ask(places, n_docs=2, asking=3, swaps=6)
    assert (row["swaps"], row["failed"], row["mixed"]) == (6, 0, 0) and row["answers"] > 0
    assert 0 < row["swap_ms"] <= row["slowest_ms"]


def test_a_question_without_an_answer_is_counted(places: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    right, asked = serving._ask, []

    def broken(retriever: DenseRetriever, n_docs: int) -> Any:
        asked.append(n_docs)
        if len(asked) > 2:  # the two before anything is counted
            raise OSError("gone")
        return right(retriever, n_docs)

    monkeypatch.setattr(serving, "_ask", broken)
    row = serving.swap_and_ask(places, n_docs=2, asking=2, swaps=4)
    assert row["failed"] == row["answers"] > 0 and row["mixed"] == 0


def test_an_answer_of_two_editions_is_counted(places: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of the one, the passages of the other."""
    right, other = serving._ask, DenseRetriever.open(places[1])

    def torn(retriever: DenseRetriever, n_docs: int) -> Any:
        found = right(retriever, n_docs)
        found.passages[0][0] = other.passages[0] if retriever.edition == "old" else found.passages[0][0]
        return found

    monkeypatch.setattr(serving, "_ask", torn)
    row = serving.swap_and_ask(places, n_docs=2, asking=1, swaps=8)
    assert 0 < row["mixed"] <= row["answers"] and row["failed"] == 0


def test_opening_reports_both_steps(places: list[Path]) -> None:
    row = serving.open_and_ask(places[0], n_docs=2, threads=1)
    assert row["open_s"] is not None and 0 < row["open_s"] < 60
    assert row.keys() == {"open_s", "open_mib", "search_s", "search_mib", "mapped_mib"}


@needs_proc
def test_mapped_files_are_not_private_memory(tmp_path: Path) -> None:
    np.zeros(32 * MIB, dtype=np.uint8).tofile(tmp_path / "file")
    mapped_before = mapped_mib()
    with private_peak() as reading:
        mapped = np.memmap(tmp_path / "file", mode="r")
        assert mapped.sum(dtype=np.int64) == 0
    assert reading.extra is not None and reading.extra < 8
    assert (mapped_mib() or 0) - (mapped_before or 0) > 30
    with private_peak() as holding:
        held = np.frombuffer(
            mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8
        )  # fresh pages, none that the heap had kept
        held[:] = 1
    assert holding.extra is not None and 30 < holding.extra < 48


def test_a_search_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is not measured again, what is built is not built again, unless it is asked for otherwise."""
    asked = options("work=search", f"folder={tmp_path}/kept")
    first = run.benchmark(asked, output=tmp_path / "a.json", tell=lambda line: None)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("done again")

    monkeypatch.setattr(VectorIndex, "build", never)
    monkeypatch.setattr(cell, "Here", never)
    assert run.benchmark(asked, output=tmp_path / "b.json", tell=lambda line: None) == first
    assert json.loads((tmp_path / "b.json").read_text())["rows"] == first
    with pytest.raises(AssertionError, match="done again"):  # the sides, not the index
        run.benchmark(
            options("work=search", f"folder={tmp_path}/kept", "pairs=3"), output=tmp_path / "c.json", tell=print
        )
    monkeypatch.undo()
    more = options("work=search", f"folder={tmp_path}/kept", "index_kinds=[flat,sq]")
    rows = run.benchmark(more, output=tmp_path / "d.json", tell=lambda line: None)
    assert [row["index"] for row in rows] == ["flat", "sq"] and rows[1] == first[0]


def test_vectors_are_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred to a cluster: the spread inside is half of that between; a block holds no more than it says."""
    monkeypatch.setattr(search, "_NUMBERS", 64_063)  # a thousand rows
    blocks = list(search.clustered(np.random.default_rng(0), count=2500, dimension=64))
    assert [len(block) for block in blocks] == [1000, 1000, 500] and blocks[0].dtype == np.float32
    assert np.concatenate(blocks).std() == pytest.approx(np.sqrt(1.25), rel=0.05)
