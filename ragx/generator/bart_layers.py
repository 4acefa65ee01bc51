"""The decoder of BART and mBART, layer by layer, with the two attentions left to the caller (section 2.3).

    BART:  h = norm(h + f(h))          mBART:  h = h + f(norm(h)), and a last norm

Decision: the modules of the checkpoint do the work (projections, norms, activation), whatever they were replaced by;
only what attends to what is ours. So one walk serves beams, which share a passage's keys, and trees of answers.

Shapes: anything (..., D) for hidden states; N batch, H heads, Q queries, S keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

FAMILIES = {"bart": False, "mbart": True}
"""Model types that this walk knows, and whether they normalize before each block."""

Attend = Callable[[int, Any, Tensor], Tensor]
"""(place of the layer, its attention module, queries' hidden states) -> what was attended to, before `out_proj`."""


def embed(decoder: Any, token_ids: Tensor, positions: Tensor) -> Tensor:
    """Hidden states (..., D) of tokens at their positions (of the same or a broadcast shape)."""
    places = decoder.embed_positions
    # The position table begins with entries that no position uses.
    return decoder.layernorm_embedding(
        decoder.embed_tokens(token_ids) + nn.functional.embedding(positions + places.offset, places.weight)
    )


def walk(decoder: Any, hidden: Tensor, *, attend: Attend, read: Attend) -> Tensor:
    """Hidden states after all layers; `attend` is self-attention, `read` attention to the encoder."""
    before = FAMILIES[decoder.config.model_type]
    for place, layer in enumerate(decoder.layers):
        blocks = (
            (layer.self_attn_layer_norm, partial(_attended, layer.self_attn, attend, place)),
            (layer.encoder_attn_layer_norm, partial(_attended, layer.encoder_attn, read, place)),
            (layer.final_layer_norm, partial(_fed_forward, layer)),
        )
        for norm, block in blocks:
            hidden = hidden + block(norm(hidden)) if before else norm(hidden + block(hidden))
    return decoder.layer_norm(hidden) if before else hidden


def _attended(module: Any, attend: Attend, place: int, hidden: Tensor) -> Tensor:
    return module.out_proj(attend(place, module, hidden))


def _fed_forward(layer: Any, hidden: Tensor) -> Tensor:
    return layer.fc2(layer.activation_fn(layer.fc1(hidden)))


def rows_of(states: Tensor, rows: Tensor) -> Tensor:
    """The `rows` (N,) of `states` (R, ...), not copied where they are all of them in order (seen on the CPU alone)."""
    if rows.device.type == "cpu" and torch.equal(rows, torch.arange(len(states))):
        return states
    return states.index_select(0, rows)


def split_heads(states: Tensor, n_heads: int) -> Tensor:
    """(N, Q, D) as (N, H, Q, D/H), a view."""
    return states.unflatten(2, (n_heads, -1)).transpose(1, 2)


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Scaled dot-product attention of (N, H, Q, d) queries, as (N, Q, D).

    Args:
        mask: bool, broadcast to (N, H, Q, S), true where a key is seen; every query sees one.
    """
    found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
    return found.transpose(1, 2).flatten(2)
