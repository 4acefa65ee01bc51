"""d(z) that learns: live refresh, an option beyond the paper, whose section 2.4 holds the passage encoder still.

    doc_scores  =  q(x) . d(z)        d(z) of the passages that were found is computed anew, with a gradient

The index then only finds candidates, by vectors that are some steps old, until `ragx.training.live_refresh` replaces
it. One decision: this is a class of its own and `PassageEncoder` stays frozen, so that no run trains d(z) by accident.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ragx.records import Retrieved
from ragx.retriever.tower import Tower


class TrainedPassageEncoder(nn.Module):
    """A trainable text encoder for passages; part of a model only while it is trained with it."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.tower = tower

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | Path, *, pooling: str | None = None, max_length: int | None = None
    ) -> TrainedPassageEncoder:
        """Arguments and errors as `PassageEncoder.from_pretrained`."""
        return cls(Tower.from_pretrained(path_or_name, role="passage", pooling=pooling, max_length=max_length))

    def forward(self, retrieved: Retrieved) -> Tensor:
        """d(z) of the passages found, (B, K, D) float32 with gradient; one found for several queries is read once."""
        _, first, places = np.unique(retrieved.rows, return_index=True, return_inverse=True)
        found = [passage for passages in retrieved.passages for passage in passages]
        distinct = [found[place] for place in first]
        token_ids = self.tower.tokenize([p.title for p in distinct], [p.text for p in distinct])
        vectors = self.tower(*self.tower.pad(token_ids))
        return vectors[torch.as_tensor(places.reshape(retrieved.rows.shape), device=vectors.device)]

    def save_pretrained(self, directory: str | Path) -> None:
        """Writes a folder in Hugging Face format that `PassageEncoder` opens; an older encoder is replaced whole."""
        self.tower.save_pretrained(directory)

    def fingerprint(self) -> str:
        """That of a `PassageEncoder` with these weights."""
        return self.tower.fingerprint()
