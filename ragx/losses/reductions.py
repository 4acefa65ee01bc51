"""From one loss per example to the number that is minimised, by name (section 2.4).

    none           -log p(y|x), one per example
    sum            the sum over the batch
    mean_sequence  sum / number of examples
    mean_token     sum / number of scored tokens

Decision: every reduction is sum / denominator with the denominator in the open, so that gradient accumulation and
several processes add sums and denominators and equal the full batch; a mean of means does not. Log a loss under the
name of its reduction.
"""

from __future__ import annotations

from torch import Tensor

from ragx.errors import ConfigError, ShapeError
from ragx.losses.token_logprobs import IGNORE_INDEX

REDUCTIONS = ("none", "sum", "mean_sequence", "mean_token")


def count_tokens(labels: Tensor) -> Tensor:
    """Scored tokens per example, (B,) int64, from labels (B, T) with -100 at padding."""
    return (labels != IGNORE_INDEX).sum(-1)


def denominator(n_tokens: Tensor, *, reduction: str) -> Tensor:
    """What the summed loss is divided by, a scalar int64 tensor; 1 for `sum` and `none`.

    Args:
        n_tokens: (B,) scored tokens per example.
        reduction: one of `REDUCTIONS`.

    Raises:
        ConfigError: an unknown reduction.
    """
    if reduction not in REDUCTIONS:
        names = ", ".join(REDUCTIONS)
        raise ConfigError(
            [f"reduction must be one of {names}, got {reduction!r}. Name what the loss is averaged over."]
        )
    if reduction == "mean_token":
        return n_tokens.sum()
    return n_tokens.new_full((), n_tokens.numel() if reduction == "mean_sequence" else 1)


def reduce(nll: Tensor, n_tokens: Tensor, *, reduction: str) -> Tensor:
    """The batch's loss: (B,) for `none`, otherwise a scalar; in nats.

    Args:
        nll: (B,) -log p(y|x).
        n_tokens: (B,) scored tokens per example. A batch without any has mean_token 0, not 0/0.
        reduction: one of `REDUCTIONS`.

    Raises:
        ConfigError: an unknown reduction.
        ShapeError: shapes that differ, or an empty batch, whose mean is undefined.
    """
    if nll.dim() != 1 or nll.shape != n_tokens.shape or nll.numel() == 0:
        raise ShapeError(
            f"nll and n_tokens must both have shape (B,) with B >= 1, got {tuple(nll.shape)} and "
            f"{tuple(n_tokens.shape)}. Pass one loss and one token count per example."
        )
    divisor = denominator(n_tokens, reduction=reduction)
    return nll if reduction == "none" else nll.sum() / divisor.clamp(min=1)
