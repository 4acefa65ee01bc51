"""Two-byte storage: every number is the nearest one there is, and what does not fit is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, ShapeError
from ragx.retriever.storage import STORAGES, dtype_of, restored, stored

VALUES = np.array([0.0, -0.0, 1.0, 1.00390625, 1.01171875, -3.14159, 1e-30, 65504.0, 1e-45, 6.1e-5], dtype=np.float32)


@pytest.mark.parametrize(("storage", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_values_are_those_of_torch(storage: str, dtype: torch.dtype) -> None:
    vectors = np.concatenate([VALUES, np.random.default_rng(0).standard_normal(5000).astype(np.float32)])
    expected = torch.from_numpy(vectors).to(dtype).float().numpy()
    found = restored(stored(vectors, storage), storage)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_full_width_changes_no_bit() -> None:
    assert restored(stored(VALUES, "fp32"), "fp32").tobytes() == VALUES.tobytes()


@pytest.mark.parametrize("storage", STORAGES)
def test_what_is_restored_is_stored_as_it_was(storage: str) -> None:
    once = stored(VALUES.reshape(2, 5), storage)
    assert (once.shape, once.dtype) == ((2, 5), dtype_of(storage))
    assert stored(restored(once, storage), storage).tobytes() == once.tobytes()


@pytest.mark.parametrize(("storage", "value"), [("fp16", 65520.0), ("bf16", 3.4e38)])
def test_a_value_beyond_the_storage_is_refused(storage: str, value: float) -> None:
    message = re.escape(f"vectors must fit {storage}, got the value {value:.6g}. Store them as fp32")
    with pytest.raises(ShapeError, match=message):
        stored(np.array([1.0, value], dtype=np.float32), storage)


def test_nan_stays_nan_and_infinity_infinity() -> None:
    odd = np.array([np.nan, np.inf, -np.inf], dtype=np.float32)
    odd[0:1].view(np.uint32)[0] = 0x7F800001  # a NaN whose upper half alone would read as infinity
    np.testing.assert_array_equal(restored(stored(odd, "bf16"), "bf16"), odd)


def test_another_dtype_or_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="storage must be one of fp32, fp16, bf16, got 'int8'"):
        dtype_of("int8")
    with pytest.raises(ShapeError, match="embeddings must be uint16 with storage bf16, got float16"):
        restored(np.zeros(2, dtype=np.float16), "bf16")
