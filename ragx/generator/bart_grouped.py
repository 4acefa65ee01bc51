"""BART and mBART behind `ragx.protocols.Grouped`: the beams of `bart_decoding`, the scoring of `bart_scoring`.

Exact: hypotheses and log-probabilities are those of the plain protocol, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ragx.generator.bart_decoding import BartReading
from ragx.generator.bart_layers import FAMILIES, rows_of
from ragx.generator.bart_scoring import token_logprobs
from ragx.generator.output_layer import OutputLayer


@dataclass(frozen=True)
class BartGrouped:
    """Decoding of a BART or mBART that shares the passages.

    Attributes:
        decoder: the decoder module.
        output: its output layer.
        start, pad: the token that opens the decoder's input, and what is fed for one that is not scored.
        prepare: labels as the generator scores them: on its device, -100 at whatever is padding.
    """

    decoder: Any
    output: OutputLayer
    start: int
    pad: int
    prepare: Callable[[Tensor], Tensor]

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether this model is of a family that is known here, and is not training (there is no dropout here)."""
        return model.config.model_type in FAMILIES and not model.training

    @torch.no_grad()
    def begin(self, encoded: Any, rows: Tensor) -> BartReading:
        """See `ragx.protocols.Grouped`."""
        flat = rows.flatten().to(encoded.hidden.device)
        hidden, mask = rows_of(encoded.hidden, flat), rows_of(encoded.mask, flat)
        return BartReading(self.decoder, self.output, hidden, mask, n_rows=rows.shape[1])

    @torch.no_grad()
    def token_logprobs(self, encoded: Any, labels: Tensor, rows: Tensor) -> Tensor:
        """See `ragx.protocols.Grouped`."""
        labels, passages = self.prepare(labels), (encoded.hidden, encoded.mask)
        start = labels.new_full((len(labels), 1), self.start)
        inputs = torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] < 0, self.pad)], 1)
        return token_logprobs(self.decoder, self.output, passages, labels, inputs=inputs, rows=rows.to(labels.device))
