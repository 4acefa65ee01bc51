"""What label smoothing needs of a mixture (`losses.label_smoothing`), over blocks of the vocabulary.

    sum_v log sum_z exp(offset_z + h_z . W_v + b_v)
    with offset_z = log w(z) - logsumexp_v (h_z . W_v + b_v)  it is  sum_v log sum_z w(z) p(v|z)
    gradient    r_z(v) = w(z) p(v|z) / sum of the same over z:   to logit z, v   and, summed over v, to offset_z
    one passage  sum_v (offset + h . W_v + b_v)  =  V offset + h . sum_v W_v + sum_v b_v

Decision: the normalizers come in through the offsets, with their own gradient, so that this is a plain sum over blocks.
The (N, K, V) logits are computed block by block, twice, and never held.

Shapes: N positions, K passages, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ragx.losses.shapes import float32_or_wider
from ragx.losses.vocabulary_blocks import HeadGradients, blocks


def linear_mixture_sums(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, *, block_size: int
) -> Tensor:
    """The sum over the vocabulary of the module's head, shape (N,), float32 (float64 stays); checked inputs only.

    Args:
        hidden: (N, K, D); blocks of the weight are converted to its dtype.
        weight: (V, D).
        bias: (V,), or None.
        offsets: (N, K), -inf for a passage of weight 0.
        block_size: vocabulary entries at a time.
    """
    if hidden.shape[1] == 1:
        with torch.autocast(hidden.device.type, enabled=False):
            hidden, offsets = float32_or_wider(hidden), float32_or_wider(offsets)
            total = weight.shape[0] * offsets[:, 0] + hidden[:, 0] @ weight.sum(0, dtype=hidden.dtype)
            return total if bias is None else total + bias.sum(dtype=hidden.dtype)
    sums: Tensor = _MixtureSums.apply(hidden, weight, bias, offsets, block_size)
    return sums


class _MixtureSums(torch.autograd.Function):
    """Saves hidden, weight, bias, offsets and sum_v r_z(v) per passage; first derivatives only."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor, block_size: int
    ) -> Tensor:
        total = float32_or_wider(hidden.new_zeros(hidden.shape[0]))
        shares = float32_or_wider(torch.zeros_like(hidden[:, :, 0]))
        with torch.autocast(hidden.device.type, enabled=False):
            for _, _, logits in blocks(hidden.flatten(0, 1), weight, bias, block_size):
                ratios, mixture = _ratios(logits, offsets)
                total += mixture.sum(1)
                shares += ratios.sum(2)
        ctx.block_size = block_size
        ctx.save_for_backward(hidden, weight, bias, offsets, shares)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, offsets, shares = ctx.saved_tensors
        rows = hidden.flatten(0, 1)
        gradients = HeadGradients(rows, weight, bias, needed=ctx.needs_input_grad[:3])
        with torch.autocast(hidden.device.type, enabled=False):
            for start, block, logits in blocks(rows, weight, bias, ctx.block_size):
                grad_logits = _ratios(logits, offsets)[0].mul_(grad[:, None, None]).flatten(0, 1)
                gradients.add(start, block, grad_logits)
        grad_rows, grad_weight, grad_bias = gradients.found()
        grad_hidden = None if grad_rows is None else grad_rows.view(hidden.shape)
        return grad_hidden, grad_weight, grad_bias, (shares * grad.unsqueeze(1)).to(offsets.dtype), None


def _ratios(logits: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """r (N, K, n), written over the logits (N*K, n) of a block, and the log of the mixture (N, n)."""
    scores = logits.view(*offsets.shape, logits.shape[1]).add_(offsets.unsqueeze(2))
    shift = scores.amax(1)
    shift = shift.masked_fill(shift == float("-inf"), 0.0)  # no passage allows this token: -inf - -inf would be nan
    total = scores.sub_(shift.unsqueeze(1)).exp_().sum(1)
    mixture = shift + total.log()
    return scores.div_(total.masked_fill(total == 0, 1.0).unsqueeze(1)), mixture
