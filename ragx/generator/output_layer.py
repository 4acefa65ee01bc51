"""The output layer while decoding (section 2.5): slices of the vocabulary, one exp a logit (our own kernel).

    log p(v|g)  =  logit_g[v] - lse_g          log sum_g w_g p(v|g)  =  log sum_g (w_g e^(shift_g - lse_g)) e_g[v]
    e_g[v]      =  exp(logit_g[v] - shift_g)   shift_g the largest logit of the slice

Decision: mix probabilities, not their logarithms. What the sum over passages needs is e_g[v], which the normalizer
lse_g was summed from anyway, so the mixture is one small matrix product a slice and no logit is exponentiated twice.
Only some units are in work at a time: (U, M, G, V) numbers are never held.

Shapes: U units, M sequences, G rows, C candidates, N rows of any kind, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ragx.losses.token_logprobs import operand_dtype

SMALLEST = 1e-35
"""Probabilities relative to the best of a slice are not told apart below this; exp(-80), above float32's denormals."""


@dataclass(frozen=True)
class Sizes:
    """How much is in work at a time.

    Attributes:
        slice: vocabulary entries; a CPU keeps a slice of the weight in its cache, an accelerator wants few launches.
        numbers: float32 of working memory.
    """

    slice: int
    numbers: int

    @classmethod
    def of(cls, device: torch.device) -> Sizes:
        """Sizes that suit a device."""
        return cls(2048, 2**22) if device.type == "cpu" else cls(2**17, 2**26)


@dataclass
class Scratch:
    """Working memory kept from step to step; fresh pages for every step would cost as much as the exponentials."""

    buffers: dict[str, Tensor] = field(default_factory=dict)

    def take(self, name: str, rows: int, columns: int, *, device: torch.device) -> Tensor:
        """(rows, columns) float32 of any content; the next call with this name may return the same memory."""
        held = self.buffers.get(name)
        if held is None or held.numel() < rows * columns:
            held = None
            self.buffers.pop(name, None)  # gone before the larger one is there
            held = self.buffers[name] = torch.empty(rows * columns, device=device)
        return held[: rows * columns].view(rows, columns)


class OutputLayer:
    """log softmax(scale * h W^T + b), without gradients.

    Args:
        weight, bias: (V, D), and (V,) or None.
        scale: of the decoder states.
        sizes: how much is in work at a time; None for what suits the weight's device.

    On the CPU half-precision operands are multiplied in float32, on an accelerator in their own (or autocast's) dtype;
    everything after the product is float32. `ragx.losses.token_logprobs` has the same rule.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, scale: float = 1.0, sizes: Sizes | None = None) -> None:
        self.weight, self.scale = weight.detach(), scale
        # Most checkpoints carry a bias of zeros; to add it would be a twentieth of the work.
        self.bias = bias.detach() if bias is not None and bool(bias.any()) else None
        self.sizes = sizes or Sizes.of(weight.device)

    def logsumexp(self, hidden: Tensor) -> Tensor:
        """log of the normalizer, (N,) float32, of hidden states (N, D)."""
        found = [self._logsumexp(part) for part in hidden.split(max(1, self.sizes.numbers // self._slice))]
        return torch.cat(found) if found else hidden.new_zeros(0, dtype=torch.float32)

    def logits_at(self, hidden: Tensor, token_ids: Tensor) -> Tensor:
        """Logits (N, G) float32 of one token each (N,) after hidden states (N, G, D)."""
        at_once = max(1, self.sizes.numbers // (4 * hidden.shape[1] * hidden.shape[2]))
        found = hidden.new_empty(hidden.shape[:2], dtype=torch.float32)
        for start in range(0, len(hidden), at_once):
            part = slice(start, start + at_once)
            states = hidden[part].float() * self.scale
            found[part] = torch.bmm(states, self.weight[token_ids[part]].float().unsqueeze(2)).squeeze(2)
        return found if self.bias is None else found + self.bias[token_ids].float().unsqueeze(1)

    def mixtures(
        self, hidden: Tensor, log_weights: Tensor, logprobs: Tensor, scratch: Scratch
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some units at a time: which, `Reading.continuations` (u, M, V) of them, and their normalizers (u, M, G).

        Args:
            hidden: (U, M, G, D).
            log_weights: (U, G).
            logprobs: (U, M).
            scratch: what is yielded lies there.
        """
        n_units, width, n_rows, _ = hidden.shape
        at_once = max(1, self.sizes.numbers // (width * n_rows * len(self.weight)))
        for start in range(0, n_units, at_once):
            part = slice(start, min(start + at_once, n_units))
            mix = self._plain if n_rows == 1 else self._mixed
            values, lse = mix(hidden[part], log_weights[part], logprobs[part], scratch)
            yield part, values, lse

    def _plain(self, hidden: Tensor, log_weights: Tensor, logprobs: Tensor, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """One row a unit: logits, moved by what all tokens of a sequence share."""
        n_units, width = logprobs.shape
        logits = scratch.take("logits", n_units * width, len(self.weight), device=hidden.device)
        exps = scratch.take("exps", len(logits), self._slice, device=hidden.device)
        lse = torch.full((len(logits),), -torch.inf, device=hidden.device)
        for _, block in self._slices(hidden.flatten(0, 2), logits):
            part = exps.flatten()[: block.numel()].view(block.shape)
            shift = _finite(block.amax(1, keepdim=True))
            total = torch.sub(block, shift, out=part).exp_().sum(1)
            lse = torch.logaddexp(lse, shift.squeeze(1) + total.log())
        lse = lse.view(n_units, width, 1)
        values = logits.view(n_units, width, -1)
        return values.add_((logprobs + log_weights).unsqueeze(2) - lse), lse

    def _mixed(self, hidden: Tensor, log_weights: Tensor, logprobs: Tensor, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """Several rows a unit: their probabilities mixed."""
        n_units, width, n_rows, _ = hidden.shape
        exps = scratch.take("exps", n_units * width * n_rows, len(self.weight), device=hidden.device)
        shifts, totals = [], []
        for _, block in self._slices(hidden.flatten(0, 2), exps):
            shift = _finite(block.amax(1, keepdim=True))
            totals.append(block.sub_(shift).exp_().sum(1))
            shifts.append(shift.squeeze(1))
        shift = torch.stack(shifts).view(-1, n_units, width, n_rows)
        lse = (shift + torch.stack(totals).log().view_as(shift)).logsumexp(0)
        factors = log_weights.unsqueeze(1) + shift - lse
        top = _finite(factors.amax(3, keepdim=True))
        weights = (factors - top).exp().view(-1, n_units * width, 1, n_rows)
        offsets = (top.squeeze(3) + logprobs).view(-1, n_units * width, 1)
        mixed = scratch.take("mixed", n_units * width, len(self.weight), device=hidden.device)
        for columns, offset, weight in zip(self._columns(), offsets, weights, strict=True):
            block = exps[:, columns].unflatten(0, (n_units * width, n_rows))
            mixed[:, columns] = torch.bmm(weight, block).squeeze(1).clamp_(min=SMALLEST).log_().add_(offset)
        return mixed.view(n_units, width, -1), lse

    def _logsumexp(self, hidden: Tensor) -> Tensor:
        buffer = torch.empty(len(hidden) * self._slice, device=hidden.device)
        lse = torch.full((len(hidden),), -torch.inf, device=hidden.device)
        for _, block in self._slices(hidden, buffer):
            shift = _finite(block.amax(1, keepdim=True))
            total = block.sub_(shift).exp_().sum(1)
            lse = torch.logaddexp(lse, shift.squeeze(1) + total.log())
        return lse

    @property
    def _slice(self) -> int:
        return min(self.sizes.slice, len(self.weight))

    def _columns(self) -> Iterator[slice]:
        for start in range(0, len(self.weight), self.sizes.slice):
            yield slice(start, min(start + self.sizes.slice, len(self.weight)))

    def _slices(self, hidden: Tensor, out: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Which columns, and their logits (N, n): in these columns of `out` (N, V), or over and over in a flat one."""
        dtype = operand_dtype(hidden, self.weight)
        hidden = (hidden * self.scale if self.scale != 1.0 else hidden).to(dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            for columns in self._columns():
                size = columns.stop - columns.start
                logits = out[: len(hidden) * size].view(-1, size) if out.dim() == 1 else out[:, columns]
                product = self.weight[columns].to(dtype).t()
                if dtype == logits.dtype:
                    torch.mm(hidden, product, out=logits)
                else:
                    logits.copy_(torch.mm(hidden, product))
                if self.bias is not None:
                    logits += self.bias[columns]
                yield columns, logits


def _finite(maximum: Tensor) -> Tensor:
    """A maximum that can be subtracted: 0 where everything is -inf."""
    return maximum.masked_fill(maximum == -torch.inf, 0.0)
