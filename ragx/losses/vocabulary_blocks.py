"""log softmax(h W^T + b)[y] over blocks of the vocabulary, its logits never held (section 2.3; our own kernel).

    forward    m, s = running maximum and sum of exp(logit - m);    log p = logit[y] - m - log s
    backward   d log p / d logit  =  onehot(y) - softmax,  from the logits of the block computed a second time
               d logsumexp / d logit  =  softmax           (label smoothing needs the normalizer itself)

Decision: cut the vocabulary, not the rows. A block of W stays in the cache while all rows read it, its gradient is
written once, and the logits live in one buffer of N x block numbers that every block reuses. Three products in the
backward instead of two are cheaper than writing and reading (N, V) logits.

Shapes: N rows, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ragx.losses.shapes import float32_or_wider


def linear_logprobs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, block_size: int
) -> tuple[Tensor, Tensor]:
    """log softmax(hidden @ weight.T + bias)[label] and the logsumexp in it, both (N,); checked inputs only.

    Float32 (float64 stays), both with their gradients.

    Args:
        hidden: (N, D); blocks of the weight are converted to its dtype.
        weight: (V, D).
        bias: (V,), or None.
        labels: (N,) int64 in [0, V); nan comes out for others.
        block_size: vocabulary entries at a time.
    """
    logprobs, logsumexp = _LinearLogprobs.apply(hidden, weight, bias, labels, block_size)
    return logprobs, logsumexp


class _LinearLogprobs(torch.autograd.Function):
    """Saves hidden, weight, bias, labels and one logsumexp per row; first derivatives only."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, block_size: int
    ) -> tuple[Tensor, Tensor]:
        maximum = float32_or_wider(hidden.new_full((hidden.shape[0],), float("-inf")))
        total, target = torch.zeros_like(maximum), torch.full_like(maximum, float("nan"))
        with torch.autocast(hidden.device.type, enabled=False):
            for start, _, logits in blocks(hidden, weight, bias, block_size):
                column, inside = _columns(labels, start, logits.shape[1])
                target = torch.where(inside, logits.gather(1, column).squeeze(1), target)
                new = torch.maximum(maximum, logits.amax(1))
                # A block may be -inf throughout (forbidden tokens): -inf - -inf would be nan.
                shift = new.masked_fill(new == float("-inf"), 0.0)
                total = total * (maximum - shift).exp() + logits.sub_(shift.unsqueeze(1)).exp_().sum(1)
                maximum = new
        logsumexp = maximum + total.log()
        ctx.block_size = block_size
        ctx.save_for_backward(hidden, weight, bias, labels, logsumexp)
        return target - logsumexp, logsumexp

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_logsumexp: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, logsumexp = ctx.saved_tensors
        gradients = HeadGradients(hidden, weight, bias, needed=ctx.needs_input_grad[:3])
        with torch.autocast(hidden.device.type, enabled=False):
            for start, block, logits in blocks(hidden, weight, bias, ctx.block_size):
                column, inside = _columns(labels, start, logits.shape[1])
                grad_logits = logits.sub_(logsumexp.unsqueeze(1)).exp_().mul_((grad_logsumexp - grad).unsqueeze(1))
                grad_logits.scatter_add_(1, column, (grad * inside).unsqueeze(1))
                gradients.add(start, block, grad_logits)
        return *gradients.found(), None, None


class HeadGradients:
    """Gradients of a linear head, summed over blocks of the vocabulary as `blocks` yields them.

    Args:
        hidden, weight, bias: the head's operands, (N, D), (V, D), and (V,) or None.
        needed: which of the three gradients are wanted.
    """

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, *, needed: Sequence[bool]) -> None:
        self._rows = hidden
        wide = float32_or_wider(hidden.new_empty(0)).dtype
        self._hidden = torch.zeros_like(hidden, dtype=wide) if needed[0] else None
        self._weight = torch.empty_like(weight) if needed[1] else None
        self._bias = torch.empty_like(bias) if needed[2] and bias is not None else None

    def add(self, start: int, block: Tensor, grad_logits: Tensor) -> None:
        """The part of the logits (N, n) from vocabulary entry `start` on, whose weight is `block` (n, D)."""
        part = slice(start, start + grad_logits.shape[1])
        if self._bias is not None:
            self._bias[part] = grad_logits.sum(0)
        grad_logits = grad_logits.to(self._rows.dtype)
        if self._hidden is not None:
            self._hidden += grad_logits @ block
        if self._weight is not None:
            self._weight[part] = grad_logits.t() @ self._rows

    def found(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Those of hidden (in its dtype), weight and bias; None for what is not wanted."""
        hidden = None if self._hidden is None else self._hidden.to(self._rows.dtype)
        return hidden, self._weight, self._bias


def blocks(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, block_size: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yields start, the weight's block (n, D) in hidden's dtype, and logits (N, n) that the next block overwrites."""
    n_rows, vocab_size = hidden.shape[0], weight.shape[0]
    buffer = float32_or_wider(hidden.new_empty(n_rows * min(block_size, vocab_size)))
    for start in range(0, vocab_size, block_size):
        block = weight[start : start + block_size].to(hidden.dtype)
        logits = buffer[: n_rows * block.shape[0]].view(n_rows, block.shape[0])
        if hidden.dtype == logits.dtype:
            torch.mm(hidden, block.t(), out=logits)
        else:
            logits.copy_(torch.mm(hidden, block.t()))
        if bias is not None:
            logits += bias[start : start + block_size]
        yield start, block, logits


def _columns(labels: Tensor, start: int, size: int) -> tuple[Tensor, Tensor]:
    """Each label's column (N, 1) in the block, clamped into it, and whether it is there (N,)."""
    column = labels - start
    return column.clamp(0, size - 1).unsqueeze(1), (column >= 0) & (column < size)
