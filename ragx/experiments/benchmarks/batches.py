"""What one step reads: token ids of a fixed length drawn from a seed, or real texts.

fixed   queries (B, S_q), inputs (B*K, S), labels (B, T-1) behind the start token: nothing is padded
text    B questions with K passages each; every side tokenizes and pads in its own way
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ragx.experiments.benchmarks.sizes import BOS, EOS, Setup
from ragx.records import Passage, Retrieved


@dataclass(frozen=True)
class Lengths:
    """Tokens of a query, of a generator input, and of the peer's labels, whose first is the start token."""

    query: int
    context: int
    target: int


@dataclass(frozen=True)
class FixedBatch:
    """Tensors of one step.

    Attributes:
        query_ids: (B, S_q).
        context_ids: (B*K, S), row b*K + k is passage k of query b.
        labels: (B, T-1) ending in EOS.
        doc_embeds: (B, K, D) d(z).
        doc_scores: (B, K), for decoding, where no query is encoded.
    """

    query_ids: Tensor
    context_ids: Tensor
    labels: Tensor
    doc_embeds: Tensor
    doc_scores: Tensor


@dataclass(frozen=True)
class TextBatch:
    """B questions, their answers, and K passages for each with vectors and scores."""

    queries: list[str]
    answers: list[str]
    passages: list[list[Passage]]
    doc_embeds: np.ndarray
    doc_scores: np.ndarray

    @property
    def retrieved(self) -> Retrieved:
        """The passages as a retriever hands them out."""
        rows = np.arange(self.doc_scores.size).reshape(self.doc_scores.shape)
        return Retrieved(self.passages, rows, self.doc_embeds, self.doc_scores, "benchmark")


Batch = FixedBatch | TextBatch


def fixed_batch(setup: Setup, *, batch_size: int, lengths: Lengths) -> FixedBatch:
    """Random ids, a function of the arguments alone, on the setup's device."""
    numbers = torch.Generator().manual_seed(setup.seed + 2)
    size, rows = setup.size, batch_size * setup.n_docs

    def ids(count: int, length: int, vocab_size: int) -> Tensor:
        return torch.randint(10, vocab_size, (count, length), generator=numbers)

    context, labels = ids(rows, lengths.context, size.vocab_size), ids(batch_size, lengths.target - 1, size.vocab_size)
    context[:, 0], context[:, -1], labels[:, -1] = BOS, EOS, EOS
    # Scores of about one standard deviation: a prior that no single passage has to itself.
    doc_embeds = torch.randn(batch_size, setup.n_docs, size.query_d_model, generator=numbers)
    batch = FixedBatch(
        query_ids=ids(batch_size, lengths.query, size.query_vocab_size),
        context_ids=context,
        labels=labels,
        doc_embeds=doc_embeds / size.query_d_model**0.5,
        doc_scores=torch.randn(batch_size, setup.n_docs, generator=numbers),
    )
    return FixedBatch(**{name: tensor.to(setup.device) for name, tensor in vars(batch).items()})
