"""The vectors d(z) as they lie on disk, `embeddings.npy`, in any storage of `ragx.retriever.storage`, read as float32.

One decision: the vectors are mapped, and turned to float32 a block or a few rows at a time, so that neither opening
nor searching an index needs memory for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ragx.errors import ShapeError
from ragx.retriever.storage import STORAGES, dtype_of, restored, stored

BLOCK = 16_384  # rows that are float32 at a time
LARGEST = 1e12  # in size, of a number of a vector: float32 then holds any product of two, and what k-means sums up


class Embeddings:
    """(N, D) vectors, read-only unless created.

    Attributes:
        array: as it lies on disk, perhaps a memory map.
        storage: `fp32`, `fp16` or `bf16`.
    """

    def __init__(self, array: np.ndarray, storage: str) -> None:
        self.array, self.storage = array, storage
        self._plain = np.asarray(array)  # a memory map's own indexing is slow

    @classmethod
    def of(cls, vectors: np.ndarray | Embeddings) -> Embeddings:
        """`vectors` (N, D) as they are, where their type is float32 or float16; any other becomes float32."""
        if isinstance(vectors, Embeddings):
            return vectors
        storage = next((name for name in ("fp32", "fp16") if vectors.dtype == STORAGES[name]), None)
        return cls(vectors if storage else vectors.astype(np.float32), storage or "fp32")

    @classmethod
    def create(cls, path: str | Path, *, count: int, dimension: int, storage: str = "fp32") -> Embeddings:
        """A file of zeros to write into.

        Raises:
            ConfigError: `storage`.
        """
        dtype = dtype_of(storage)
        return cls(np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(count, dimension)), storage)

    @classmethod
    def open(cls, path: str | Path, *, storage: str) -> Embeddings:
        """Maps a file read-only.

        Raises:
            OSError, ValueError: no file, or not an array of numbers.
            ShapeError: of another type than `storage` says.
        """
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.dtype != dtype_of(storage):
            raise ShapeError(f"{Path(path).name} must be {dtype_of(storage)} ({storage}), got {array.dtype}.")
        return cls(array, storage)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, D)."""
        return self.array.shape

    def __len__(self) -> int:
        return len(self.array)

    def rows(self, rows: np.ndarray | slice) -> np.ndarray:
        """Float32 vectors of `rows`, in an array of the caller's own; (R, D), or (..., D) for an array of rows."""
        picked = self._plain[rows]
        return restored(picked.copy() if isinstance(rows, slice) else picked, self.storage)

    def write(self, rows: slice | Sequence[int], vectors: np.ndarray) -> None:
        """Stores float32 `vectors` (R, D), rounded to the nearest that the storage has."""
        self.array[rows] = stored(vectors, self.storage)

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, float32 vectors) of `size` rows at a time; contiguous, not to be written to."""
        for start in range(0, len(self), size):
            block = restored(self._plain[start : start + size], self.storage)
            yield start, np.ascontiguousarray(block)

    @property
    def in_place(self) -> bool:
        """Whether the bytes can be searched where they lie."""
        return self.storage == "fp32" and self.array.flags.c_contiguous

    def check_finite(self) -> None:
        """Raises ShapeError, naming the row, where a number is NaN, infinite or beyond `LARGEST`."""
        for start, block in self.blocks():
            bad = np.flatnonzero(~(np.abs(block) <= LARGEST).all(axis=1))  # false for NaN too
            if bad.size:
                got = f"{np.abs(block[bad[0]]).max():g}" if np.isfinite(block[bad[0]]).all() else "NaN or infinity"
                raise ShapeError(
                    f"embeddings must be finite {self.storage} up to {LARGEST:g}, got {got} in row {start + bad[0]}. "
                    "Check the encoder."
                )
