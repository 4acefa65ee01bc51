"""Twenty seeded worlds: random sizes, scores, logits and padding, in float64."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from ragx.losses.prior import doc_logprobs
from ragx.losses.token_logprobs import token_logprobs


class World(NamedTuple):
    """One batch: (B, K) scores, (B, K, T, V) logits, (B, T) labels with -100 behind a random length, 0 included."""

    doc_scores: Tensor
    logits: Tensor
    labels: Tensor

    @property
    def doc_logprobs(self) -> Tensor:
        """log p(z|x), (B, K)."""
        return doc_logprobs(self.doc_scores)

    @property
    def labels_per_passage(self) -> Tensor:
        """The labels repeated over the passages, (B, K, T)."""
        return self.labels.unsqueeze(1).expand(self.logits.shape[:3])

    @property
    def token_logprobs(self) -> Tensor:
        """log p(y_i|x,z,y_<i), (B, K, T)."""
        return token_logprobs(self.logits, self.labels_per_passage)


def make_world(seed: int) -> World:
    """K runs over 1..5 and T over 1..6 as the seeds do; at least one label is real."""
    generator = torch.Generator().manual_seed(seed)
    n_docs, length, vocab_size = 1 + seed % 5, 1 + seed % 6, 7
    labels = torch.randint(0, vocab_size, (3, length), generator=generator)
    lengths = torch.randint(0, length + 1, (3,), generator=generator)
    lengths[0] = length
    labels[torch.arange(length) >= lengths[:, None]] = -100
    return World(
        doc_scores=torch.randn(3, n_docs, generator=generator, dtype=torch.float64) * 3,
        logits=torch.randn(3, n_docs, length, vocab_size, generator=generator, dtype=torch.float64) * 3,
        labels=labels,
    )


@pytest.fixture(params=range(20), ids=lambda seed: f"world{seed}")
def world(request: pytest.FixtureRequest) -> World:
    """Each test that asks for it runs in all twenty worlds."""
    return make_world(request.param)
