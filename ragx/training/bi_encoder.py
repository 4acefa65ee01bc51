"""DPR's loss (section 2.2 of the paper; Karpukhin et al. 2020, section 3.2): in-batch negatives.

    loss  =  - 1/B  sum_i  log  exp(q_i.p_i) / sum_j exp(q_i.p_j)      j over all B + N passages of the batch

A passage that also answers another query of the batch is no negative for it: false negatives are masked out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragx.errors import ShapeError

_BLOCK = 512  # queries that are scored against a whole pool at a time


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
    gold = torch.eye(len(query_embeds), len(passage_embeds), dtype=torch.bool, device=passage_embeds.device)
    return gold_ranks(query_embeds, passage_embeds, gold).mean()


def gold_ranks(query_embeds: Tensor, pool_embeds: Tensor, gold: Tensor) -> Tensor:
    """The rank of each query's best gold passage among the passages of a pool that are not gold; (B,) float64.

    1 is best (DPR counts from 0). Of r passages with the same score as it, half count as before it: an encoder that
    gives all texts one vector gets the middle rank and not the first.

    Args:
        query_embeds: (B, D).
        pool_embeds: (M, D).
        gold: (B, M) bool, at least one True a row.

    Raises:
        ShapeError: `gold` of another shape, or a row without a gold passage.
    """
    if gold.shape != (len(query_embeds), len(pool_embeds)):
        wanted = (len(query_embeds), len(pool_embeds))
        raise ShapeError(f"gold must have shape {wanted}, got {tuple(gold.shape)}.")
    if not gold.any(1).all():
        raise ShapeError("gold must name a passage of the pool for each query, got a query without.")
    ranks = []
    for start in range(0, len(query_embeds), _BLOCK):
        is_gold = gold[start : start + _BLOCK]
        scores = query_embeds[start : start + _BLOCK].float() @ pool_embeds.float().T
        best = scores.masked_fill(~is_gold, float("-inf")).amax(1, keepdim=True)
        before = ((scores > best) & ~is_gold).sum(1).double()
        beside = ((scores == best) & ~is_gold).sum(1).double()
        ranks.append(1 + before + beside / 2)
    return torch.cat(ranks)
