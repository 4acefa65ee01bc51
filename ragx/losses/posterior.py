"""Which passage explains the answer (section 2.1 read backwards; Bayes' rule).

    RAG-Sequence:  p(z|x,y)    =  p(z|x) prod_i p(y_i|x,z,y_<i)  /  p(y|x)
    RAG-Token:     p(z|x,y,i)  =  p(z|x) p(y_i|x,z,y_<i)  /  p(y_i|x,y_<i)
    gain(z)        =  log p(y|C) - log p(y|C without z)  =  log (1 - p(z|x)) / (1 - p(z|x,y))   (summed over tokens)

The gradient of the loss with respect to doc_scores is prior minus posterior, for RAG-Token summed over tokens.
Decision: the gain is computed as two leave-one-out sums, not from 1 - posterior, which loses all digits near 1. The
posterior of a span of RAG-Token, prior times the product over the span, is `rag_sequence_posterior` of the span.

All functions take token_logprobs (B, K, T), 0 at padding, and normalised doc_logprobs (B, K), both natural logarithms,
and raise ShapeError where the two disagree.

Shapes: B batch, K n_docs, T target length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragx.losses.shapes import check_marginal


def rag_sequence_posterior(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """p(z|x,y), shape (B, K); rows sum to 1."""
    token_logprobs, doc_logprobs = check_marginal(token_logprobs, doc_logprobs)
    return (doc_logprobs + token_logprobs.sum(2)).softmax(1)


def rag_token_posterior(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """p(z|x,y,i) per token, shape (B, K, T); sums to 1 over K, equals the prior at padding."""
    token_logprobs, doc_logprobs = check_marginal(token_logprobs, doc_logprobs)
    return (doc_logprobs.unsqueeze(2) + token_logprobs).softmax(1)


def rag_sequence_running_logposterior(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """log p(z|x,y_<i), shape (B, K, T): what RAG-Sequence believes about z before it reads token i.

    At i = 0 this is the prior. sum_z p(z|x,y_<i) p(y_i|x,z,y_<i) is RAG-Sequence's p(y_i|x,y_<i).
    """
    token_logprobs, doc_logprobs = check_marginal(token_logprobs, doc_logprobs)
    start = torch.zeros_like(token_logprobs[:, :, :1])
    before = torch.cat([start, token_logprobs[:, :, :-1]], 2).cumsum(2)[:, :, : token_logprobs.shape[2]]
    return (doc_logprobs.unsqueeze(2) + before).log_softmax(1)


def rag_sequence_gain(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """log p(y|C) - log p(y|C without z) in nats, shape (B, K), the prior renormalised over C without z.

    Positive exactly where posterior > prior; 0 for a masked passage; nan where no other passage is left.
    """
    token_logprobs, doc_logprobs = check_marginal(token_logprobs, doc_logprobs)
    scores = doc_logprobs + token_logprobs.sum(2)
    return scores.logsumexp(1, keepdim=True) - (_sum_of_others(scores) - _sum_of_others(doc_logprobs))


def rag_token_gain(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """As `rag_sequence_gain` for RAG-Token: shape (B, K), summed over the tokens given (the answer, or one span)."""
    token_logprobs, doc_logprobs = check_marginal(token_logprobs, doc_logprobs)
    scores = doc_logprobs.unsqueeze(2) + token_logprobs
    without = _sum_of_others(scores) - _sum_of_others(doc_logprobs).unsqueeze(2)
    return (scores.logsumexp(1, keepdim=True) - without).sum(2)


def _sum_of_others(scores: Tensor) -> Tensor:
    """logsumexp over K without passage z itself, same shape as `scores` (B, K, ...); -inf where there is no other."""
    n_docs = scores.shape[1]
    itself = torch.eye(n_docs, dtype=torch.bool, device=scores.device)
    itself = itself.view(1, n_docs, n_docs, *[1] * (scores.dim() - 2))
    return scores.unsqueeze(1).masked_fill(itself, float("-inf")).logsumexp(2)
