"""Any generator as one that decodes in units (section 2.5), over the plain protocol: begin, next_logprobs, reorder.

Nothing is shared: every sequence of every unit has its own state and its own distribution over the vocabulary. T5, and
whatever else has no faster way, decodes through this; so does the toy world that the tests enumerate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ragx.protocols import Generator, Grouped, GroupingGenerator, Reading


def grouped(generator: Generator) -> Grouped:
    """The generator's own way to decode in units, else `PlainGrouped`."""
    own = generator.grouped if isinstance(generator, GroupingGenerator) else None
    return PlainGrouped(generator) if own is None else own


@dataclass(frozen=True)
class PlainGrouped:
    """`ragx.protocols.Grouped` over a generator that knows of single sequences only."""

    generator: Generator

    def begin(self, encoded: Any, rows: Tensor) -> Reading:
        """See `ragx.protocols.Grouped`."""
        return PlainReading(self.generator, encoded, rows)

    def token_logprobs(self, encoded: Any, labels: Tensor, rows: Tensor) -> Tensor:
        """See `ragx.protocols.Grouped`."""
        return self.generator.token_logprobs(encoded, labels, rows).float()


class PlainReading:
    """`ragx.protocols.Reading` with a sequence of the generator for each (unit, sequence, row), in this order."""

    def __init__(self, generator: Generator, encoded: Any, rows: Tensor) -> None:
        self._generator = generator
        self._state = generator.begin(encoded, rows.flatten())
        self._n_rows = rows.shape[1]
        self._width = 1
        self._units = torch.arange(len(rows), device=rows.device)
        self._logprobs = torch.empty(0)
        self._started = False

    def feed(self, token_ids: Tensor, parents: Tensor) -> None:
        """See `ragx.protocols.Reading`."""
        if self._started:
            sequences = (self._units.unsqueeze(1) * self._width + parents).unsqueeze(2) * self._n_rows
            sequences = sequences + torch.arange(self._n_rows, device=sequences.device)
            self._state = self._generator.reorder(self._state, sequences.flatten())
        fed = token_ids.unsqueeze(2).expand(-1, -1, self._n_rows).flatten()
        logprobs, self._state = self._generator.next_logprobs(self._state, fed)
        self._logprobs = logprobs.float().view(*token_ids.shape, self._n_rows, -1)
        self._units = torch.arange(len(token_ids), device=token_ids.device)
        self._width, self._started = token_ids.shape[1], True

    def keep(self, units: Tensor) -> None:
        """See `ragx.protocols.Reading`."""
        self._units, self._logprobs = self._units[units], self._logprobs[units]

    def continuations(self, log_weights: Tensor, logprobs: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """See `ragx.protocols.Reading`."""
        mixed = log_weights[:, None, :, None] + self._logprobs
        mixed = mixed.squeeze(2) if self._n_rows == 1 else mixed.logsumexp(2)
        yield slice(0, len(mixed)), logprobs.unsqueeze(2) + mixed

    def read(self, parents: Tensor, token_ids: Tensor) -> Tensor:
        """See `ragx.protocols.Reading`."""
        units = torch.arange(len(parents), device=parents.device)[:, None, None]
        rows = torch.arange(self._n_rows, device=parents.device)
        return self._logprobs[units, parents.unsqueeze(2), rows, token_ids.unsqueeze(2)]
