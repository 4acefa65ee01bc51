"""The passages that sequences of BART read while they grow (section 2.5): keys and values only once they pay.

    softmax(q K^T) V  with  K = h W_k, V = h W_v        =        softmax((q W_k^T) h^T) h  W_v

Decision: read the encoder states h themselves. The projection then moves from the S tokens of a passage to the few
sequences that read it, and keys and values, 2L times the size of h for a decoder of L layers, need not exist. A query
costs H times the products that way; after d queries (16 tokens of 4 beams, heads of 64) as many products have been made
as keys and values take, and then these are computed, once, for the passages that are still read. Most answers to
questions are over by then. The bias of the keys adds one number to all scores of a query and drops out.

Shapes: R rows, M sequences, S passage length, H heads, D hidden size, d = D/H.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ragx.generator.bart_layers import attention, split_heads


class Passages:
    """R passages, read by sequences of their own.

    Args:
        decoder: the decoder module.
        hidden, mask: (R, S, D) encoder states, which are not written to, and (R, S) attention mask.
    """

    def __init__(self, decoder: Any, hidden: Tensor, mask: Tensor) -> None:
        self._modules = [layer.encoder_attn for layer in decoder.layers]
        self._mask = passage_mask(mask)
        self._hidden = hidden if self._mask is None else hidden[:, : self._mask.shape[3]]
        self._keys: list[tuple[Tensor, Tensor]] = []
        # A projection that was replaced, by a quantized one for example, computes keys and need not have weights.
        plain = all(type(part) is nn.Linear for module in self._modules for part in (module.k_proj, module.v_proj))
        self._queries_left = self._modules[0].head_dim if plain else 0

    def expect(self, width: int) -> None:
        """Says that every passage is to be read by `width` sequences, in each layer once."""
        self._queries_left -= width
        if self._queries_left < 0 and not self._keys:
            self._keys = [passage_keys(module, self._hidden) for module in self._modules]
            self._hidden = self._hidden.new_empty(0)  # not a part of it, which would keep all of it

    def read(self, place: int, module: Any, hidden: Tensor) -> Tensor:
        """`bart_layers.Attend`: what the sequences (R, M, D) find in the passages, in layer `place`."""
        query = split_heads(module.q_proj(hidden), module.num_heads)
        if self._keys:
            return attention(query, *self._keys[place], self._mask)
        into, out = (part.weight.unflatten(0, (module.num_heads, -1)) for part in (module.k_proj, module.v_proj))
        query = torch.einsum("rhmd,hde->rhme", query, into)
        states = self._hidden.unsqueeze(1)
        found = nn.functional.scaled_dot_product_attention(
            query.flatten(1, 2).unsqueeze(1), states, states, attn_mask=self._mask, scale=module.head_dim**-0.5
        )
        values = torch.einsum("rhme,hde->rmhd", found.view_as(query), out).flatten(2)
        return values if module.v_proj.bias is None else values + module.v_proj.bias

    def keep(self, rows: Tensor) -> None:
        """Goes on with the passages `rows` (R',) alone."""
        self._mask = None if self._mask is None else self._mask[rows]
        if not self._keys:
            self._hidden = self._hidden[rows]
        for place, (keys, values) in enumerate(self._keys):  # a layer at a time: the old ones are freed in between
            self._keys[place] = (keys[rows], values[rows])


def passage_mask(mask: Tensor) -> Tensor | None:
    """(R, 1, 1, S') true at the tokens of a passage, S' the longest; None where no passage is padded.

    A row that is padding throughout sees all of it: its states are of no use, but they are numbers.
    """
    seen = mask.bool()
    seen = seen | ~seen.any(1, keepdim=True)
    last = torch.arange(1, seen.shape[1] + 1, device=seen.device)
    longest, shortest = torch.stack([(seen * last).amax(), seen.sum(1).amin()]).tolist()
    if shortest == seen.shape[1]:
        return None
    return seen[:, None, None, :longest]


def passage_keys(module: Any, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values (R, H, S, d) of encoder states (R, S, D)."""
    return (
        split_heads(module.k_proj(hidden), module.num_heads),
        split_heads(module.v_proj(hidden), module.num_heads),
    )
