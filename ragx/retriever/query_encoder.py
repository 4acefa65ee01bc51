"""q(x), section 2.2: the half of the bi-encoder that learns with the generator.

    p(z|x)  proportional to  exp( d(z) . q(x) )

The gradient of the loss reaches the retriever through q(x) alone; d(z) and the index stand still.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ragx.errors import ShapeError
from ragx.retriever.tower import Tower


class QueryEncoder(nn.Module):
    """A trainable text encoder for questions."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.tower = tower

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | Path, *, pooling: str | None = None, max_length: int | None = None
    ) -> QueryEncoder:
        """Loads `DPRQuestionEncoder`, `BertModel` or any `AutoModel` folder or hub name, in eval mode.

        Args:
            pooling: `cls` or `mean`; default as saved, else `cls` (which DPR requires).
            max_length: tokens of a query; default as saved, else at most 256.

        Raises:
            CheckpointError: nothing there, or weights missing.
        """
        return cls(Tower.from_pretrained(path_or_name, role="query", pooling=pooling, max_length=max_length))

    @property
    def tokenizer(self) -> Any:
        """The encoder's own tokenizer; the generator has another."""
        return self.tower.tokenizer

    @property
    def embedding_size(self) -> int:
        """D."""
        return self.tower.embedding_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.tower.device

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """q(x), (B, D) float32, of token ids (B, S)."""
        return self.tower(input_ids, attention_mask)

    def embed(self, queries: Sequence[str]) -> Tensor:
        """q(x), (B, D) float32, with gradient where gradients are enabled.

        Raises:
            ShapeError: no query, or one string in place of a sequence.
        """
        if isinstance(queries, str):
            raise ShapeError(f"queries must be a sequence of strings, got the string {queries!r}. Put it in a list.")
        return self(*self.tower.pad(self.tower.tokenize(queries)))

    def save_pretrained(self, directory: str | Path) -> None:
        """Writes a folder in Hugging Face format; an older encoder there is replaced whole."""
        self.tower.save_pretrained(directory)

    def fingerprint(self) -> str:
        """sha256 over config essentials, pooling, `max_length`, weights and tokenizer."""
        return self.tower.fingerprint()
