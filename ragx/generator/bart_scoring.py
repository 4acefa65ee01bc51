"""Teacher forcing of many answers against shared passages, for BART (section 2.5, thorough decoding).

    log p(y_i|x,z,y_<i)  =  h W[y_i] + b[y_i]  -  logsumexp over v of h W[v] + b[v]          h that of (x, z, y_<i)

Decision: everything is computed once per distinct (passage, prefix): the layers, and above all the normalizer over the
vocabulary. Passages are the batch of the cross-attention and the prefixes read against them its queries, so their keys
are computed once a passage, a layer at a time. Only self-attention sees answers one by one.

Shapes: N answers, T longest answer, R rows encoded, P nodes of the prefix tree.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ragx.generator.bart_layers import attention, embed, rows_of, split_heads, walk
from ragx.generator.bart_passages import passage_keys, passage_mask
from ragx.generator.output_layer import OutputLayer
from ragx.generator.prefix_tree import PrefixTree


def token_logprobs(
    decoder: Any, output: OutputLayer, passages: tuple[Tensor, Tensor], labels: Tensor, *, inputs: Tensor, rows: Tensor
) -> Tensor:
    """(N, T) float32: labels (N, T) against the rows of `passages` that `rows` (N,) names; 0 where a label is -100.

    Args:
        passages: (R, S, D) encoder states and (R, S) attention mask.
        inputs: (N, T) what is fed to predict each label.
    """
    scored = labels >= 0
    steps = torch.arange(1, labels.shape[1] + 1, device=labels.device)
    lengths = (scored * steps).amax(1).clamp(min=1)
    tree = PrefixTree.build(inputs, lengths, rows)
    states = _states(decoder, tree, *passages)
    normalizers = output.logsumexp(states)
    answer, position = scored.nonzero(as_tuple=True)
    node = tree.nodes[answer, position]
    token = labels[answer, position]
    found = normalizers.new_zeros(labels.shape)
    found[answer, position] = output.logits_at(states[node].unsqueeze(1), token).squeeze(1) - normalizers[node]
    return found


def _states(decoder: Any, tree: PrefixTree, hidden: Tensor, mask: Tensor) -> Tensor:
    """Decoder states (P, D) of all nodes."""
    hidden, seen = rows_of(hidden, tree.rows), passage_mask(rows_of(mask, tree.rows))
    if seen is not None:
        hidden = hidden[:, : seen.shape[3]]

    def attend(place: int, module: Any, states: Tensor) -> Tensor:
        query, key, value = (
            split_heads(project(states)[tree.nodes], module.num_heads)
            for project in (module.q_proj, module.k_proj, module.v_proj)
        )
        return attention(query, key, value, causal=True).flatten(0, 1)[tree.first]

    def read(place: int, module: Any, states: Tensor) -> Tensor:
        query = split_heads(tree.table(module.q_proj(states)), module.num_heads)
        return tree.nodes_of(attention(query, *passage_keys(module, hidden), seen))

    return walk(decoder, embed(decoder, tree.token_ids, tree.positions), attend=attend, read=read)
