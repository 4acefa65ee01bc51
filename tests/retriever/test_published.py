"""DPR's pickled shards: arrays and ids are read as NumPy wrote them, and nothing in a hostile file runs."""

from __future__ import annotations

import codecs
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragx.errors import DataError
from ragx.retriever.published import read_shard, shard_files

VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4) / 7


def write(path: Path, content: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8"])
def test_every_protocol_and_float(tmp_path: Path, protocol: int, dtype: str) -> None:
    pairs = [(f"wiki:{row}", vector.astype(dtype)) for row, vector in enumerate(VECTORS)]
    shard = read_shard(write(tmp_path / "s.pkl", pairs, protocol))
    assert shard.ids == ["wiki:0", "wiki:1", "wiki:2"] and shard.vectors.dtype == np.float32
    np.testing.assert_array_equal(shard.vectors, VECTORS.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("old", [False, True])
def test_names_of_numpy_1_and_2(tmp_path: Path, old: bool) -> None:
    content = pickle.dumps([("1", VECTORS[0])], protocol=0)
    modern, former = b"numpy._core.multiarray", b"numpy.core.multiarray"
    file = tmp_path / "s.pkl"
    file.write_bytes(content.replace(modern, former) if old else content.replace(former, modern))
    np.testing.assert_array_equal(read_shard(file).vectors, VECTORS[:1])


@pytest.mark.parametrize("name", [7, "7", b"7", np.int64(7), np.uint8(7)])
def test_ids_of_every_kind_are_text(tmp_path: Path, name: object) -> None:
    assert read_shard(write(tmp_path / "s.pkl", [(name, VECTORS[0])])).ids == ["7"]


def test_views_columns_and_rows_of_one_keep_their_numbers(tmp_path: Path) -> None:
    """DPR wrote `out[i].view(-1).numpy()`; others wrote (1, D)."""
    odd = [VECTORS[0], VECTORS[1:2], np.asfortranarray(VECTORS)[2], torch.from_numpy(VECTORS)[0].view(-1).numpy()]
    for protocol in (2, 5):
        shard = read_shard(write(tmp_path / "s.pkl", [(str(n), v) for n, v in enumerate(odd)], protocol))
        np.testing.assert_array_equal(shard.vectors, VECTORS[[0, 1, 2, 0]])


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, r"(posix|nt).system"),
        (eval, r"(builtins|__builtin__).eval"),
        (getattr, r"(builtins|__builtin__).getattr"),
        (open, r"_?io.open"),
        (np.load, r"numpy.load"),
        (torch.load, r"torch(.serialization)?.load"),
        (codecs.decode, r"_codecs.decode"),
        (bytearray, r"(builtins|__builtin__).bytearray"),
    ],
)
def test_a_call_is_refused_with_its_name_and_does_not_run(
    tmp_path: Path, function: Callable[..., Any], name: str, protocol: int
) -> None:
    marker = tmp_path / "ran"
    for content in (Calls(function, f"touch {marker}"), [("1", Calls(function, f"touch {marker}"))]):
        file = write(tmp_path / "evil.pkl", content, protocol)
        message = rf"evil.pkl: pickle must hold NumPy arrays and ids alone, got the name {name}. Do not trust this file"
        with pytest.raises(DataError, match=message):
            read_shard(file)
    assert not marker.exists()


def test_the_same_call_does_run_elsewhere(tmp_path: Path) -> None:
    """What the refusals above are worth: an ordinary unpickler would have made the file."""
    content = pickle.dumps(Calls(os.system, f"touch {tmp_path / 'ran'}"))
    pickle.loads(content)
    assert (tmp_path / "ran").exists()


def reduced(*opcodes: bytes) -> bytes:
    return b"\x80\x02" + b"".join(opcodes) + b"."


@pytest.mark.parametrize(
    "content",
    [
        reduced(b"Pnumpy\n"),  # a persistent id
        reduced(b"cnumpy\nndarray\n", b")R"),  # the class itself is no function
        reduced(b"cnumpy\ndtype\n", b"(X\x01\x00\x00\x00OK\x00K\x01tR"),  # objects
        reduced(b"cnumpy\ndtype\n", b"}b"),  # state for a function
        reduced(b"cnumpy\ndtype\n", b")\x81"),  # __new__ of something that is no class
        reduced(b"c_codecs\nencode\n", b"(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR"),  # another codec
        b"\x80\x02]q",
        b"",
        b"not a pickle",
    ],
    ids=range(9),
)
def test_hand_made_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.pkl").write_bytes(content)
    with pytest.raises(DataError, match=r"s.pkl: file must be a pickle of \(id, vector\) pairs, got"):
        read_shard(tmp_path / "s.pkl")


def test_bytes_that_do_not_fit_the_shape_never_reach_numpy(tmp_path: Path) -> None:
    """NumPy's own reconstruction trusts such a state; here it is measured first."""
    content = pickle.dumps([("1", VECTORS[0])], protocol=2)
    shorter = content.replace(b"K\x04\x85", b"K\x05\x85")  # the shape (4,) made (5,)
    assert shorter != content
    (tmp_path / "s.pkl").write_bytes(shorter)
    with pytest.raises(DataError, match=r"got: 16 bytes for an array of shape \(5,\)"):
        read_shard(tmp_path / "s.pkl")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"file must hold a list of \(id, vector\) pairs, got an empty list"),
        ({"1": VECTORS[0]}, r"file must hold a list of \(id, vector\) pairs, got dict"),
        ([("1", VECTORS[0]), "2"], r"entry 1 must be a pair of an id and a vector of floats, got str"),
        ([("1", [0.5])], r"entry 0 must be .* got the vector list"),
        ([(None, VECTORS[0])], r"entry 0 must be .* got the id NoneType"),
        ([("", VECTORS[0])], r"entry 0 must be .* got the id str"),
        ([("1", VECTORS)], r"entry 0 must be .* got an array float32 of shape \(3, 4\)"),
        ([("1", np.arange(3))], r"entry 0 must be .* got an array int64 of shape \(3,\)"),
        ([("1", VECTORS[0]), ("2", VECTORS[0, :2])], r"entry 1 must be .* got a vector of length 2 after .* length 4"),
        ([("1", np.array(["a"], dtype=object))], r"file must be a pickle .* got: arrays of dtype O8"),
    ],
)
def test_another_content_is_named(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(DataError, match=f"s.pkl: {message}"):
        read_shard(write(tmp_path / "s.pkl", content))


def test_shards_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """FAULTS D4: 2 before 10."""
    for number in (10, 2, 0, 1):
        write(tmp_path / f"wikipedia_passages_{number}.pkl", [])
    (tmp_path / "notes.txt").write_text("")
    names = [f"wikipedia_passages_{number}.pkl" for number in (0, 1, 2, 10)]
    assert [file.name for file in shard_files(tmp_path)] == names
    assert [file.name for file in shard_files(tmp_path / "wikipedia_passages_*")] == names
    with pytest.raises(
        DataError, match="nothing_.*pkl: embeddings must be a folder or pattern of .pkl files, got none"
    ):
        shard_files(tmp_path / "nothing_*.pkl")
