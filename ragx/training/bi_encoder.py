"""DPR's loss (section 2.2 of the paper; Karpukhin et al. 2020, section 3.2): in-batch negatives.

    loss  =  - 1/B  sum_i  log  exp(q_i.p_i) / sum_j exp(q_i.p_j)      j over all B + N passages of the batch

A passage that also answers another query of the batch is no negative for it: false negatives are masked out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragx.errors import ShapeError


def in_batch_nll(query_embeds: Tensor, passage_embeds: Tensor, *, false_negatives: Tensor | None = None) -> Tensor:
    """Mean over the queries of -log p(their own passage), scalar, nats.

    Args:
        query_embeds: (B, D).
        passage_embeds: (P, D) with P >= B; passage i is the positive of query i, the rest are negatives of all.
        false_negatives: (B, P) bool, True where passage j must not count as a negative of query i.

    Raises:
        ShapeError: fewer passages than queries, or a mask of another shape.
    """
    batch, n_passages = len(query_embeds), len(passage_embeds)
    if n_passages < batch:
        raise ShapeError(f"passage_embeds must hold a positive for each of {batch} queries, got {n_passages} passages.")
    scores = query_embeds.float() @ passage_embeds.float().T
    if false_negatives is not None:
        if false_negatives.shape != scores.shape:
            raise ShapeError(
                f"false_negatives must have shape {tuple(scores.shape)}, got {tuple(false_negatives.shape)}."
            )
        own = torch.eye(batch, n_passages, dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(false_negatives & ~own, float("-inf"))
    positives = scores.diagonal()
    return (scores.logsumexp(1) - positives).mean()


def average_rank(query_embeds: Tensor, passage_embeds: Tensor) -> Tensor:
    """Mean rank (1 is best) of each query's own passage among all of them, DPR's validation figure; scalar."""
    scores = query_embeds.float() @ passage_embeds.float().T
    return ((scores > scores.diagonal().unsqueeze(1)).sum(1) + 1).double().mean()
