"""An index is replaced whole or not at all: on disk by a build, in a running process by a swap."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ragx.errors import DataError, IndexMismatchError
from ragx.filters import PassageFilter
from ragx.records import Passage
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.manifest import Manifest, describe_files
from ragx.retriever.passage_encoder import PassageEncoder


def test_a_failed_build_leaves_the_old_index(
    build: Callable[..., Path],
    tmp_path: Path,
    passages: list[Passage],
    next_edition: list[Passage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DataError, match="at least one passage, got none"):
        build([])
    assert list(tmp_path.iterdir()) == []
    files = describe_files(build(passages))

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ragx.retriever.index.VectorIndex.write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        build(next_edition)
    assert describe_files(tmp_path / "index") == files
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".index.encoding", "index"]
    monkeypatch.undo()
    monkeypatch.setattr("ragx.retriever.passage_encoder.PassageEncoder._embed", None)  # nothing is encoded again
    build(next_edition)
    assert list(DenseRetriever.open(tmp_path / "index").passages) == next_edition
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]


def test_a_kill_during_the_build_leaves_the_old_index(
    build: Callable[..., Path], checkpoint: Callable[..., Path], passages: list[Passage]
) -> None:
    """FAULTS D4: killed at the last moment, the next start finds the old index whole, and a build goes through."""
    folder = build(passages)
    files = describe_files(folder)
    script = textwrap.dedent(
        f"""
        import os, signal
        from ragx.records import Passage
        from ragx.retriever import building
        from ragx.retriever.passage_encoder import PassageEncoder
        building.Manifest.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # all is written but the last file
        encoder = PassageEncoder.from_pretrained({str(checkpoint("context"))!r})
        passages = [Passage("a", "1", "0", "", "paris")]
        building.build_index(passages, passage_encoder=encoder, directory={str(folder)!r}, edition="x", progress=False)
        """
    )
    code = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300).returncode
    assert code == -signal.SIGKILL
    assert describe_files(folder) == files and len(DenseRetriever.open(folder)) == 6
    build(passages[:2])
    assert len(DenseRetriever.open(folder)) == 2 and [entry.name for entry in folder.parent.iterdir()] == ["index"]


def test_a_kill_between_the_two_renames_is_mended(build: Callable[..., Path], passages: list[Passage]) -> None:
    """FAULTS D4: the old complete version is put back."""
    folder = build(passages)
    os.replace(folder, folder.parent / ".index.replaced")
    assert len(DenseRetriever.open(folder)) == 6


def test_swap(
    build: Callable[..., Path],
    checkpoint: Callable[..., Path],
    passages: list[Passage],
    next_edition: list[Passage],
    tmp_path: Path,
) -> None:
    """FAULTS D4: what does not fit is refused, and the old index goes on answering."""
    old, new = build(passages, "old"), build(next_edition, "new", edition="2018-12", kind="hnsw")
    retriever = DenseRetriever.open(old)
    before = retriever.fingerprint
    retriever.swap(new)
    assert retriever.edition == "2018-12" and retriever.fingerprint == Manifest.read(new).fingerprint != before
    found = retriever.retrieve(["a"], 3, query_embeds=torch.ones(1, 16))
    assert found.index_fingerprint == retriever.fingerprint
    assert {passage.version for passage in found.passages[0]} == {"2018-12"}
    other = PassageEncoder.from_pretrained(checkpoint("context", 1))
    smaller = PassageEncoder.from_pretrained(checkpoint("projected"))
    broken = shutil.copytree(new, tmp_path / "broken")
    (broken / "index.faiss").write_bytes(b"")
    refused = {
        build(passages, "other", passage_encoder=other): "encoder_fingerprint must agree",
        build(passages, "smaller", passage_encoder=smaller): "encoder_fingerprint must agree",
        broken: "index.faiss: bytes must agree",
        tmp_path / "nowhere": "index must be a folder with manifest.json",
    }
    for folder, message in refused.items():
        with pytest.raises(IndexMismatchError, match=message):
            retriever.swap(folder)
        again = retriever.retrieve(["a"], 3, query_embeds=torch.ones(1, 16))
        assert again.passages == found.passages and again.index_fingerprint == found.index_fingerprint


def mapped_files(folder: Path) -> set[str]:
    """What this process maps of a folder; Linux alone says so."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if str(folder) in line}


@pytest.mark.parametrize("kind", ["flat", "hnsw", "torch"])
def test_answers_during_swaps_come_from_one_edition(
    build: Callable[..., Path], passages: list[Passage], next_edition: list[Passage], tmp_path: Path, kind: str
) -> None:
    """FAULTS D4: eight threads ask while the index is swapped 50 times; then nothing of the other edition is held."""
    folders = [build(passages, "old", kind=kind), build(next_edition[:4], "new", edition="2018-12", kind=kind)]
    versions = {Manifest.read(folder).fingerprint: Manifest.read(folder).edition for folder in folders}
    retriever = DenseRetriever.open(folders[0])
    embeds = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    wrong: list[object] = []
    seen: set[str] = set()
    done = threading.Event()

    def ask() -> None:
        while not done.wait(0.005):
            try:
                found = retriever.retrieve(["a", "b"], 4, query_embeds=embeds)
            except Exception as error:
                wrong.append(error)
                return
            edition = versions[found.index_fingerprint]
            seen.add(edition)
            if {passage.version for row in found.passages for passage in row} != {edition}:
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for turn in range(50):
        retriever.swap(folders[(turn + 1) % 2])
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and seen == {"2016-12", "2018-12"}
    assert retriever.edition == "2016-12"
    if Path("/proc/self/maps").exists():
        gc.collect()
        assert mapped_files(folders[1]) == set() and len(mapped_files(folders[0])) >= 2  # text and vectors


def test_memory_returns_after_many_swaps(build: Callable[..., Path], passages: list[Passage]) -> None:
    """FAULTS D4: an edition that is swapped out is freed, with the filters that were asked of it."""
    folders = [build(passages, "old"), build(passages[:4], "new")]
    retriever = DenseRetriever.open(folders[0])
    editions = []
    for turn in range(6):
        editions.append(weakref.ref(retriever._edition))
        retriever.retrieve(["a"], 2, query_embeds=torch.ones(1, 16), passage_filter=PassageFilter(acl=(), as_of="2017"))
        retriever.swap(folders[(turn + 1) % 2])
    gc.collect()
    assert [edition() for edition in editions] == [None] * 6
