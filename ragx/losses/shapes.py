"""What every loss checks about its inputs, and the precision it computes in.

Decision: all losses run in float32 whatever the model's dtype, because a sum of bfloat16 log-probabilities is off by
0.1 nats after a few tokens; float64 stays float64 so that gradients can be checked to 1e-10.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragx.errors import ShapeError


def float32_or_wider(tensor: Tensor) -> Tensor:
    """`tensor` in float32, or unchanged where it already is float64."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def check_marginal(token_logprobs: Tensor, doc_logprobs: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors in float32 or wider, after their shapes were found to agree.

    Args:
        token_logprobs: (B, K, T) log p(y_i|x,z,y_<i), 0 at padding.
        doc_logprobs: (B, K) log p(z|x).

    Raises:
        ShapeError: the two disagree on (B, K), have other ranks, no passage, or are not floating point.
    """
    if token_logprobs.dim() != 3:
        raise ShapeError(
            f"token_logprobs must have shape (B, K, T), got {tuple(token_logprobs.shape)}. "
            "Keep a passage axis of size 1 for a model without passages."
        )
    if token_logprobs.shape[:2] != doc_logprobs.shape:
        raise ShapeError(
            "token_logprobs and doc_logprobs must agree on (batch, n_docs), got "
            f"{tuple(token_logprobs.shape)} and {tuple(doc_logprobs.shape)}. Row b*K + k is passage k of query b."
        )
    check_n_docs(doc_logprobs, name="doc_logprobs")
    for name, tensor in (("token_logprobs", token_logprobs), ("doc_logprobs", doc_logprobs)):
        if not tensor.is_floating_point():
            raise ShapeError(f"{name} must be floating point, got {tensor.dtype}. Pass natural logarithms.")
    return float32_or_wider(token_logprobs), float32_or_wider(doc_logprobs)


def check_n_docs(tensor: Tensor, *, name: str) -> None:
    """Raises ShapeError unless `tensor` is (B, K) with at least one passage."""
    if tensor.dim() != 2 or tensor.shape[1] == 0:
        raise ShapeError(
            f"{name} must have shape (B, K) with K >= 1, got {tuple(tensor.shape)}. Retrieve at least one passage."
        )
