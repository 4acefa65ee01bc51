"""Exact search in torch, for a device that holds the vectors: 21M x 768 in bf16 are 32 GB.

    topk over blocks of  q . D^T        in float32, whatever the vectors are stored as

On a CPU the vectors stay mapped, as with `flat`; a CUDA device gets a copy when the index is opened.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import torch
from torch import Tensor

from ragx.errors import RagxError
from ragx.retriever.allowed import Allowed
from ragx.retriever.embeddings import BLOCK, Embeddings

_DEVICE_BLOCK = 262_144  # rows that are float32 at a time on a device


class TorchSearcher:
    """Searches vectors that lie on a torch device."""

    def __init__(self, embeddings: Embeddings, *, device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._vectors = _tensor(embeddings).to(self._device)
        self._block = BLOCK if self._device.type == "cpu" else _DEVICE_BLOCK
        self._process = os.getpid()

    @property
    def tolerance(self) -> float:
        """Relative error of a score; TF32 products, where the user allows them, have ten bits."""
        rounded = self._device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
        return 4e-3 if rounded else 1e-5

    def candidates(self, queries: np.ndarray, fetch: int, allowed: Allowed | None) -> tuple[np.ndarray, np.ndarray]:
        """Float32 scores and rows, both (B, fetch), best first; row -1 where there are no more.

        Raises:
            RagxError: a CUDA device asked from a forked process.
        """
        if self._device.type != "cpu" and os.getpid() != self._process:
            raise RagxError(
                f"an index on {self._device} must be searched by the process that opened it, got a forked one. "
                "Open it there, retrieve in the main process, or take index.kind=flat."
            )
        with torch.inference_mode():
            scores, rows = self._topk(torch.from_numpy(queries).to(self._device), fetch, allowed)
        found = rows.cpu().numpy()
        values = scores.cpu().numpy()
        found[np.isneginf(values)] = -1
        return values, found

    def _topk(self, queries: Tensor, fetch: int, allowed: Allowed | None) -> tuple[Tensor, Tensor]:
        mask = None if allowed is None else torch.from_numpy(np.array(allowed.mask)).to(self._device)
        scores = queries.new_full((len(queries), fetch), float("-inf"))
        rows = torch.full(scores.shape, -1, dtype=torch.int64, device=self._device)
        for start in range(0, len(self._vectors), self._block):
            block = self._vectors[start : start + self._block].float()
            some = queries @ block.T
            if mask is not None:
                some.masked_fill_(~mask[start : start + len(block)], float("-inf"))
            best, found = some.topk(min(fetch, len(block)), dim=1)
            scores, kept = torch.cat([scores, best], 1).topk(fetch, dim=1)
            rows = torch.cat([rows, found + start], 1).gather(1, kept)
        return scores, rows


def _tensor(embeddings: Embeddings) -> Tensor:
    """The stored bytes as a tensor, not copied."""
    array = embeddings.array.view(np.int16) if embeddings.storage == "bf16" else embeddings.array
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nothing writes to it
        tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if embeddings.storage == "bf16" else tensor
