"""The table of hypotheses that a search carries.

Shapes: U units, M hypotheses each, G rows per unit, T `max_length`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

END = -100
"""Fills `token_ids` after the last token; the value that labels have at padding."""


@dataclass(frozen=True, slots=True)
class Beams:
    """M hypotheses for each of U units.

    Attributes:
        token_ids: (U, M, T) int64 without the start token, `END` after the last token.
        logprobs: (U, M) log of the probability under the mixture; -inf marks an empty entry.
        passage_logprobs: (U, M, G) log of the probability under each row alone.
        posteriors: (U, M, G) p(row | x, y_<=i), summed over the tokens.
    """

    token_ids: Tensor
    logprobs: Tensor
    passage_logprobs: Tensor
    posteriors: Tensor

    @classmethod
    def empty(cls, n_units: int, width: int, n_rows: int, max_length: int, *, device: torch.device) -> Beams:
        """`width` empty entries per unit."""
        return cls(
            torch.full((n_units, width, max_length), END, device=device),
            torch.full((n_units, width), -torch.inf, device=device),
            torch.zeros(n_units, width, n_rows, device=device),
            torch.zeros(n_units, width, n_rows, device=device),
        )

    @classmethod
    def start(cls, n_units: int, n_rows: int, max_length: int, *, device: torch.device) -> Beams:
        """One hypothesis per unit, without tokens and with probability one."""
        beams = cls.empty(n_units, 1, n_rows, max_length, device=device)
        beams.logprobs.zero_()
        return beams

    @classmethod
    def cat(cls, parts: Sequence[Beams], *, dim: int) -> Beams:
        """Joined along units (dim 0) or hypotheses (dim 1)."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts], dim) for f in fields(cls)))

    @property
    def width(self) -> int:
        """M, hypotheses per unit."""
        return self.logprobs.shape[1]

    def lengths(self) -> Tensor:
        """(U, M) number of tokens."""
        return (self.token_ids != END).sum(2)

    def scores(self, length_penalty: float) -> Tensor:
        """(U, M) logprob / length ** length_penalty."""
        return self.logprobs / self.lengths().clamp(min=1).float() ** length_penalty

    def units(self, index: Tensor) -> Beams:
        """The units of `index` (U',)."""
        return Beams(*(getattr(self, f.name)[index] for f in fields(self)))

    def pick(self, index: Tensor) -> Beams:
        """For every unit the hypotheses of `index` (U, M')."""
        units = torch.arange(len(index), device=index.device).unsqueeze(1)
        return Beams(*(getattr(self, f.name)[units, index] for f in fields(self)))

    def only(self, mask: Tensor) -> Beams:
        """The same table with the entries outside `mask` (U, M) emptied."""
        logprobs = self.logprobs.masked_fill(~mask, -torch.inf)
        return Beams(self.token_ids, logprobs, self.passage_logprobs, self.posteriors)

    def where(self, mask: Tensor, other: Beams) -> Beams:
        """The entries of this table inside `mask` (U, M), those of `other` outside."""
        logprobs = torch.where(mask, self.logprobs, other.logprobs)
        wide = mask.unsqueeze(2)
        return Beams(
            torch.where(wide, self.token_ids, other.token_ids),
            logprobs,
            torch.where(wide, self.passage_logprobs, other.passage_logprobs),
            torch.where(wide, self.posteriors, other.posteriors),
        )

    def put(self, index: Tensor, other: Beams) -> None:
        """Overwrites the units of `index` (U',) with those of `other`, in place."""
        for f in fields(self):
            getattr(self, f.name)[index] = getattr(other, f.name)

    def extend(self, tokens: Tensor, logprobs: Tensor, by_passage: Tensor, posterior: Tensor, *, length: int) -> Beams:
        """Each hypothesis with `tokens` (U, M) at position `length` - 1.

        Args:
            logprobs: (U, M) log-probability of the longer hypothesis.
            by_passage: (U, M, G) log-probability of the token under each row.
            posterior: (U, M, G) p(row | x, y_<=i) at this token.
        """
        token_ids = self.token_ids.clone()
        token_ids[:, :, length - 1] = tokens
        return Beams(token_ids, logprobs, self.passage_logprobs + by_passage, self.posteriors + posterior)
