"""How the numbers of embeddings.npy lie on disk: 4 or 2 bytes each (section 2.2: the index of 21M x 768 is the bulk).

    fp32   float32, as the encoder gave them
    fp16   float16; every value must be below 65504 in size
    bf16   uint16, the upper half of the float32, rounded to nearest even: NumPy has no bfloat16

The manifest names the storage (`fp32` where it names none). Scores are computed in float32 from `restored` vectors, so
a narrower storage rounds the vectors once and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ragx.errors import ConfigError, ShapeError

STORAGES: dict[str, np.dtype[Any]] = {"fp32": np.dtype("<f4"), "fp16": np.dtype("<f2"), "bf16": np.dtype("<u2")}


def dtype_of(storage: str) -> np.dtype[Any]:
    """The dtype of embeddings.npy.

    Raises:
        ConfigError: an unknown storage.
    """
    if storage not in STORAGES:
        raise ConfigError([f"storage must be one of {', '.join(STORAGES)}, got {storage!r}."])
    return STORAGES[storage]


def stored(vectors: np.ndarray, storage: str) -> np.ndarray:
    """float32 vectors of any shape as they are written; finite ones stay finite.

    Raises:
        ShapeError: a value that the storage cannot hold.
    """
    dtype = dtype_of(storage)
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if storage == "fp32":
        return vectors.astype(dtype, copy=False)
    if storage == "fp16":
        with np.errstate(over="ignore"):
            narrow = vectors.astype(dtype)
        overflown = np.isinf(narrow) & np.isfinite(vectors)
    else:
        bits = vectors.view(np.uint32)
        rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
        narrow = np.where(np.isfinite(vectors), rounded >> np.uint32(16), _unrounded(bits)).astype(dtype)
        overflown = ((narrow & 0x7FFF) == 0x7F80) & np.isfinite(vectors)
    if overflown.any():
        raise ShapeError(f"vectors must fit {storage}, got the value {vectors[overflown][0]:.6g}. Store them as fp32.")
    return narrow


def restored(array: np.ndarray, storage: str) -> np.ndarray:
    """float32 vectors of what `stored` returned; also of a part of a mapped file.

    Raises:
        ShapeError: an array of another dtype than the storage's.
    """
    dtype = dtype_of(storage)
    if array.dtype != dtype:
        raise ShapeError(f"embeddings must be {dtype} with storage {storage}, got {array.dtype}. Read the manifest.")
    if storage == "bf16":
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32, copy=False)


def _unrounded(bits: np.ndarray) -> np.ndarray:
    """The upper half of infinities and NaN; a NaN stays one."""
    upper = bits >> np.uint32(16)
    return np.where((bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000), upper | np.uint32(0x40), upper)
