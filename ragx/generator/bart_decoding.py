"""Beams of BART that share what they read (section 2.5): one passage a row, one tree of tokens a unit.

    cross-attention  `bart_passages`, with the passage as batch and all sequences on it as queries
    self-attention   softmax(q K^T) V over every token any sequence of the unit said, each seeing its own past

Decision: nothing is ever reordered. The keys of a token are written once, where they stay; that a sequence goes on
from another is one row of a bool table of who sees what. When the memory is full, tokens that no sequence sees any more
are left behind: after a few steps most beams have most of their past in common. Passages are never copied for beams.
Units that are finished leave when a quarter is gone: to copy what the others hold costs as much as a few steps.

Shapes: U units of G rows, M sequences, R = U*G, T tokens said so far by all M, S passage length, H heads, D hidden
size, d = D/H.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ragx.generator.bart_layers import attention, embed, split_heads, walk
from ragx.generator.bart_passages import Passages
from ragx.generator.output_layer import OutputLayer, Scratch

LEAVE_BELOW = 0.75
"""Share of the units in memory that are still at work below which the others are let go."""
ROOM = 16
"""Tokens that the memory of what was said has room for when it was full."""


class BartReading:
    """`ragx.protocols.Reading` of a BART or mBART decoder.

    Args:
        decoder: the decoder module.
        output: its output layer.
        hidden, mask: (R, S, D) encoder states and (R, S) attention mask, unit by unit.
        n_rows: G.
    """

    def __init__(self, decoder: Any, output: OutputLayer, hidden: Tensor, mask: Tensor, *, n_rows: int) -> None:
        self._decoder, self._output, self._n_rows = decoder, output, n_rows
        self._passages = Passages(decoder, hidden, mask)
        self._said: list[tuple[Tensor, Tensor]] = []
        self._seen = torch.zeros(len(hidden) // n_rows, 1, 0, dtype=torch.bool, device=hidden.device)
        # Units of memory that the caller's units lie in; None while they are the same.
        self._places: Tensor | None = None
        self._steps = 0
        self._scratch = Scratch()
        self._hidden = hidden[:0]
        self._normalizers: Tensor | None = None

    @torch.no_grad()
    def feed(self, token_ids: Tensor, parents: Tensor) -> None:
        """See `ragx.protocols.Reading`."""
        token_ids, parents = self._spread(token_ids), self._spread(parents)
        n_units, width = token_ids.shape
        said = self._seen.shape[2]
        itself = torch.eye(width, dtype=torch.bool, device=token_ids.device).expand(n_units, -1, -1)
        past = self._seen.gather(1, parents.unsqueeze(2).expand(-1, -1, said))
        if self._said and said + width > self._said[0][0].shape[2]:
            past = self._make_room(past)
            said = past.shape[2]
        self._seen = torch.cat([past, itself], 2)
        hidden = embed(self._decoder, token_ids, token_ids.new_tensor(self._steps))
        hidden = hidden.unsqueeze(1).expand(-1, self._n_rows, -1, -1).flatten(0, 1)
        seen = self._seen.unsqueeze(1).expand(-1, self._n_rows, -1, -1).flatten(0, 1).unsqueeze(1)

        def attend(place: int, module: Any, hidden: Tensor) -> Tensor:
            query, key, value = (
                split_heads(project(hidden), module.num_heads)
                for project in (module.q_proj, module.k_proj, module.v_proj)
            )
            keys, values = self._remember(place, key, value, said=said)
            return attention(query, keys, values, seen)

        self._passages.expect(width)
        hidden = walk(self._decoder, hidden, attend=attend, read=self._passages.read)
        hidden = hidden.unflatten(0, (n_units, self._n_rows))
        self._hidden = (hidden if self._places is None else hidden[self._places]).transpose(1, 2)
        self._normalizers = None
        self._steps += 1

    def keep(self, units: Tensor) -> None:
        """See `ragx.protocols.Reading`."""
        in_memory = len(self._seen)
        self._hidden, self._normalizers = self._hidden[units], None
        self._places = units if self._places is None else self._places[units]
        if len(units) > LEAVE_BELOW * in_memory:
            return
        rows = self._places.unsqueeze(1) * self._n_rows + torch.arange(self._n_rows, device=units.device)
        rows, said = rows.flatten(), self._seen.shape[2]
        self._seen, self._places = self._seen[self._places], None
        self._passages.keep(rows)
        for place, (keys, values) in enumerate(self._said):  # a layer at a time: the old ones are freed in between
            self._said[place] = (keys[rows, :, :said], values[rows, :, :said])

    def continuations(self, log_weights: Tensor, logprobs: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """See `ragx.protocols.Reading`."""
        normalizers = self._hidden.new_empty(self._hidden.shape[:3], dtype=torch.float32)
        for part, values, lse in self._output.mixtures(self._hidden, log_weights, logprobs, self._scratch):
            normalizers[part] = lse
            yield part, values
        self._normalizers = normalizers

    def read(self, parents: Tensor, token_ids: Tensor) -> Tensor:
        """See `ragx.protocols.Reading`."""
        if self._normalizers is None:
            flat = self._output.logsumexp(self._hidden.flatten(0, 2))
            self._normalizers = flat.view(self._hidden.shape[:3])
        units = torch.arange(len(parents), device=parents.device).unsqueeze(1)
        states = self._hidden[units, parents].flatten(0, 1)
        logits = self._output.logits_at(states, token_ids.flatten()).view(*token_ids.shape, -1)
        return logits - self._normalizers[units, parents]

    def _spread(self, values: Tensor) -> Tensor:
        """Values (U, M) of the caller's units, at the places of all units in memory; the others say anything."""
        if self._places is None:
            return values
        return values.new_zeros(len(self._seen), values.shape[1]).index_copy(0, self._places, values)

    def _make_room(self, past: Tensor) -> Tensor:
        """Memory for ROOM more tokens a sequence, of those tokens alone that `past` (U, M, T) sees; `past` for them."""
        unseen = ~past.any(1)
        longest = int((~unseen).sum(1).max())
        kept = unseen.long().argsort(dim=1, stable=True)[:, :longest]  # in their order, behind them others
        rows = kept.repeat_interleave(self._n_rows, dim=0)[:, None, :, None]
        for place, held in enumerate(self._said):
            keys, values = (
                _longer(
                    memory.gather(2, rows.expand(-1, memory.shape[1], -1, memory.shape[3])),
                    longest + past.shape[1] + ROOM,
                )
                for memory in held
            )
            self._said[place] = (keys, values)
        return past.gather(2, kept.unsqueeze(1).expand(-1, past.shape[1], -1))

    def _remember(self, place: int, key: Tensor, value: Tensor, *, said: int) -> tuple[Tensor, Tensor]:
        """Writes keys and values (R, H, M, d) of a layer behind the `said` old ones; returns all of them."""
        total = said + key.shape[2]
        if place == len(self._said):
            self._said.append((_longer(key[:, :, :0], total + ROOM), _longer(value[:, :, :0], total + ROOM)))
        held = self._said[place]
        for memory, new in zip(held, (key, value), strict=True):
            memory[:, :, said:total] = new
        return held[0][:, :, :total], held[1][:, :, :total]


def _longer(states: Tensor, length: int) -> Tensor:
    """The states (R, H, T, d) at the head of memory for `length` of them."""
    longer = states.new_empty(*states.shape[:2], length, states.shape[3])
    longer[:, :, : states.shape[2]] = states
    return longer
