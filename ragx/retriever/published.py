"""DPR's published embeddings: `wikipedia_passages_0.pkl` to `_49.pkl`, each a pickled list of (passage id, vector).

A pickle can call any function it names. This reader gives it none: every name that a pickled NumPy array needs stands
for a small object of ours that takes numbers and bytes and checks them; any other name ends the reading and is shown.
Not even NumPy's own reconstruction runs, which trusts the bytes it is given.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ragx.errors import DataError

_FLOATS, _INTEGERS = ("f2", "f4", "f8"), ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
# What the reading of a damaged or hostile pickle may raise, beside the errors of ours.
_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    OverflowError,
    MemoryError,
)


class Shard(NamedTuple):
    """One file: N ids and their vectors (N, D) float32."""

    path: Path
    ids: list[str]
    vectors: np.ndarray

    @property
    def ids_sha256(self) -> str:
        """Over the ids in order."""
        return hashlib.sha256(json.dumps(self.ids).encode()).hexdigest()


def shard_files(source: str | Path) -> list[Path]:
    """The files of a folder or of a pattern such as `embeddings/wikipedia_passages_*.pkl`, 2 before 10.

    Raises:
        DataError: there is none.
    """
    source = Path(source)
    found = list(source.glob("*.pkl")) if source.is_dir() else list(source.parent.glob(source.name))
    files = [file for file in found if file.is_file()]
    if not files:
        raise DataError("embeddings must be a folder or pattern of .pkl files, got none. Check the path", path=source)
    return sorted(files, key=lambda file: [int(t) if t.isdecimal() else t for t in re.split(r"(\d+)", file.name)])


def read_shards(files: Sequence[Path]) -> Iterator[Shard]:
    """The shards in order, one in memory at a time."""
    return map(read_shard, files)


def read_shard(path: str | Path) -> Shard:
    """One file of (id, vector) pairs.

    Raises:
        DataError: not such a file, or one that names anything but the parts of a NumPy array; the name is shown.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    with path.open("rb") as handle:
        try:
            content = _Reader(handle, path).load()
        except DataError:
            raise
        except _BROKEN as error:
            raise DataError(
                f"file must be a pickle of (id, vector) pairs, got: {error}. Copy it again", path=path
            ) from error
    if not isinstance(content, list) or not content:
        got = "an empty list" if isinstance(content, list) else type(content).__name__
        raise DataError(f"file must hold a list of (id, vector) pairs, got {got}.", path=path)
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    for row, pair in enumerate(content):
        ids.append(_id(pair, row, path))
        vectors.append(_vector(pair, row, path))
        if vectors[-1].shape != vectors[0].shape:
            _refuse(path, row, f"a vector of length {len(vectors[-1])} after vectors of length {len(vectors[0])}")
    return Shard(path, ids, np.stack(vectors).astype(np.float32, copy=False))


def _id(pair: Any, row: int, path: Path) -> str:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        _refuse(path, row, type(pair).__name__)
    name = pair[0].value if isinstance(pair[0], _Scalar) else pair[0]
    if isinstance(name, bytes):
        name = name.decode("utf-8", errors="replace")
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        _refuse(path, row, f"the id {type(name).__name__}")
    return str(name)


def _vector(pair: Any, row: int, path: Path) -> np.ndarray:
    if not isinstance(pair[1], _Array) or pair[1].value is None:
        _refuse(path, row, f"the vector {type(pair[1]).__name__.lstrip('_')}")
    array = pair[1].value
    if array.dtype.kind != "f" or array.ndim > 2 or array.size != max(array.shape, default=0) or not array.size:
        _refuse(path, row, f"an array {array.dtype} of shape {array.shape}")
    return array.reshape(-1)


def _refuse(path: Path, row: int, got: str) -> NoReturn:
    raise DataError(f"entry {row} must be a pair of an id and a vector of floats, got {got}.", path=path)


class _Inert:
    """Stands for a name in a pickle; no state can be set on it."""

    __slots__ = ()

    def __setstate__(self, state: object) -> NoReturn:
        raise pickle.UnpicklingError("state of a function")


class _Function(_Inert):
    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


class _Dtype:
    """A number type: kind, size and byte order."""

    __slots__ = ("value",)

    def __init__(self, spec: object) -> None:
        if spec not in (*_FLOATS, *_INTEGERS):
            raise pickle.UnpicklingError(f"arrays of dtype {str(spec)[:20]}")
        self.value = np.dtype(str(spec))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if order not in ("<", ">", "=", "|") or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("a structured dtype")
        self.value = self.value.newbyteorder(order)


class _Array:
    """An array of numbers; `value` is None until its state is there."""

    __slots__ = ("value",)

    def __init__(self, value: np.ndarray | None = None) -> None:
        self.value = value

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        self.value = _array(data, dtype, shape, "F" if fortran else "C")


class _Scalar:
    """A whole number that NumPy wrote."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    whole = isinstance(shape, tuple) and all(isinstance(n, int) and 0 <= n < 2**40 for n in shape)
    if not (whole and isinstance(dtype, _Dtype) and isinstance(data, bytes | bytearray) and order in ("C", "F")):
        raise pickle.UnpicklingError("an array that is not of numbers")
    if len(data) != math.prod(shape) * dtype.value.itemsize:
        raise pickle.UnpicklingError(f"{len(data)} bytes for an array of shape {shape}")
    return np.frombuffer(bytes(data), dtype=dtype.value).reshape(shape, order=order)


def _dtype(spec: object, align: object = False, copy: object = False) -> _Dtype:
    return _Dtype(spec)


def _empty(kind: object, shape: object, code: object) -> _Array:
    return _Array()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    return _Array(_array(data, dtype, shape, order))


def _scalar(dtype: Any, data: Any) -> _Scalar:
    value = _array(data, dtype, (), "C")
    if value.dtype.kind not in "iu":
        raise pickle.UnpicklingError("a number that is not whole")
    return _Scalar(int(value))


def _latin1(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("text in another encoding than latin1")
    return text.encode("latin-1")


_NAMES: dict[tuple[str, str], _Inert] = {
    ("numpy", "ndarray"): _Inert(),
    ("numpy", "dtype"): _Function(_dtype),
    ("numpy.core.multiarray", "_reconstruct"): _Function(_empty),
    ("numpy.core.numeric", "_frombuffer"): _Function(_frombuffer),
    ("numpy.core.multiarray", "scalar"): _Function(_scalar),
    ("_codecs", "encode"): _Function(_latin1),  # how protocols 0 to 2 write bytes
}


class _Reader(pickle.Unpickler):
    """An unpickler that knows `_NAMES` and nothing else."""

    def __init__(self, handle: Any, path: Path) -> None:
        super().__init__(handle)
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        found = _NAMES.get((module.replace("numpy._core.", "numpy.core."), name))
        if found is None:
            raise DataError(
                f"pickle must hold NumPy arrays and ids alone, got the name {module}.{name}. Do not trust this file",
                path=self._path,
            )
        return found

    def persistent_load(self, identity: object) -> NoReturn:
        raise pickle.UnpicklingError("a reference to something outside the file")
