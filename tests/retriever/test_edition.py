"""An index folder is opened by mapping: at once and without memory, whatever its size, and without a network."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ragx.errors import IndexMismatchError
from ragx.experiments.benchmarks.meter import Meter
from ragx.records import Passage
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.embeddings import Embeddings
from ragx.retriever.index import VectorIndex
from ragx.retriever.manifest import Manifest, describe_files
from ragx.retriever.passages import PassageStore


def bytes_read() -> int:
    """By this process so far, from files of any kind; Linux alone says so."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(lines[0].removeprefix("rchar: "))


def test_ten_gigabytes_are_opened_without_being_read(tmp_path: Path) -> None:
    """FAULTS C12: 2,500 vectors of a million numbers in a sparse file; only what is searched for is touched."""
    dimension, names = 1_000_000, [str(row) for row in range(2500)]
    store = PassageStore.build((Passage(name, "1", "0", "", "t") for name in names), tmp_path / "index" / "passages")
    file = tmp_path / "index" / "embeddings.npy"
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(names), dimension)}
    with file.open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, header)
        handle.truncate(handle.tell() + 4 * len(names) * dimension)
    if file.stat().st_blocks * 512 > 2**30:
        pytest.skip("the file system has no sparse files")
    sizes = {path.relative_to(tmp_path / "index").as_posix(): path for path in sorted(tmp_path.rglob("*.*"))}
    Manifest(
        edition="1",
        encoder_fingerprint="",
        passages_fingerprint=store.fingerprint,
        dimension=dimension,
        count=len(names),
        kind="flat",
        parameters={},
        files={name: {"bytes": path.stat().st_size, "sha256": ""} for name, path in sizes.items()},
    ).write(tmp_path / "index")
    opened: list[DenseRetriever] = []
    before = bytes_read() if Path("/proc/self/io").exists() else 0
    extra = Meter("cpu").extra_mib(lambda: opened.append(DenseRetriever.open(tmp_path / "index")))
    assert file.stat().st_size > 10**10 and len(opened[0]) == 2500
    if extra is not None:
        assert extra < 64 and bytes_read() - before < 4 * 2**20


@pytest.mark.parametrize("kind", ["flat", "torch"])
def test_building_streams_the_vectors(tmp_path: Path, kind: str) -> None:
    """FAULTS C12: 200,000 x 64 from a memory map; mapped pages count too, so one copy fits and two do not."""
    vectors = Embeddings.create(tmp_path / "embeddings.npy", count=200_000, dimension=64)
    for start in range(0, 200_000, 20_000):
        vectors.write(slice(start, start + 20_000), np.full((20_000, 64), start, dtype=np.float32))
    del vectors
    mapped = Embeddings.open(tmp_path / "embeddings.npy", storage="fp32")
    extra = Meter("cpu").extra_mib(lambda: VectorIndex.build(mapped, kind=kind))
    if extra is None:
        pytest.skip("this system does not tell the peak of memory")
    assert extra < 1.3 * 200_000 * 64 * 4 / 2**20


@pytest.mark.parametrize("kind", ["hnsw", "sq"])
def test_an_index_file_is_mapped_and_shared(build: Callable[..., Path], passages: list[Passage], kind: str) -> None:
    """FAULTS C12: every kind that has a file maps it, so that processes that open one index hold its pages once."""
    folder = build(passages, kind=kind)
    opened = DenseRetriever.open(folder)
    if not Path("/proc/self/maps").exists():
        pytest.skip("this system does not tell what is mapped")
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = {Path(line.split(maxsplit=5)[5]).name for line in lines if str(folder) in line}
    assert {"index.faiss", "embeddings.npy"} <= mapped and len(opened) == 6


def test_an_index_needs_no_network(
    build: Callable[..., Path], passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS C3: with sockets blocked an index of one's own is opened and searched."""
    folder = build(passages, kind="sq")

    def blocked(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "socket", blocked)
    found = DenseRetriever.open(folder).retrieve(["a"], 2, query_embeds=torch.ones(1, 16))
    assert found.doc_scores.shape == (1, 2)


def test_no_index_there(tmp_path: Path) -> None:
    """FAULTS C3: one line that says what is missing and the command that builds it."""
    with pytest.raises(
        IndexMismatchError, match=r"^index must be a folder with manifest.json, got .*none\. Build it: py"
    ):
        DenseRetriever.open(tmp_path / "none")


def test_a_missing_index_file_is_named(build: Callable[..., Path], passages: list[Passage]) -> None:
    """FAULTS C3: a half-copied index is refused before anything is searched."""
    folder = build(passages, kind="hnsw")
    os.unlink(folder / "index.faiss")
    with pytest.raises(IndexMismatchError, match=r"files must agree(.|\n)*asked: .*'index.faiss'"):
        DenseRetriever.open(folder)
    dataclasses.replace(Manifest.read(folder), files=describe_files(folder)).write(folder)
    with pytest.raises(IndexMismatchError, match="index.faiss must be a FAISS index"):
        DenseRetriever.open(folder)


def test_vectors_that_do_not_fit_their_storage(tmp_path: Path) -> None:
    vectors = Embeddings.create(tmp_path / "embeddings.npy", count=3, dimension=2, storage="bf16")
    vectors.write(slice(0, 3), np.array([[1.0, -2.5], [3e38, 1e-30], [0.1, 0.0]], dtype=np.float32))
    read = Embeddings.open(tmp_path / "embeddings.npy", storage="bf16")
    np.testing.assert_allclose(read.rows(slice(None)), [[1.0, -2.5], [3e38, 1e-30], [0.1, 0.0]], rtol=2**-8)
    assert not read.array.flags.writeable and read.rows(np.array([[0, 1]])).shape == (1, 2, 2)
    with pytest.raises(ValueError, match=r"embeddings.npy must be float32 \(fp32\), got uint16"):
        Embeddings.open(tmp_path / "embeddings.npy", storage="fp32")
