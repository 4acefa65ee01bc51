"""What a caller may set about decoding; every decoder of section 2.5 takes the same settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ragx.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DecodingSettings:
    """Controls of all decoders; lengths count new tokens, EOS included and the start token not.

    Attributes:
        num_beams: hypotheses kept per beam search; 1 is greedy.
        num_return_sequences: answers returned per question. Where fewer distinct ones exist the list is shorter:
            none is repeated or invented.
        max_length: a hypothesis of this many tokens is cut, its probability is that of the prefix.
        min_length: EOS is not allowed before this many tokens, itself counted.
        length_penalty: answers rank by log p(y|x) / length ** length_penalty; 0 ranks by probability. It acts only
            where passages have been merged, never inside the beams of single passages, and never on `logprob`.
        early_stopping: stop a beam search once `num_beams` hypotheses are finished; otherwise once no live beam can
            still enter them.
        max_sequences_in_flight: at most this many sequences are decoded or scored at a time, one beam search at least;
            None for no bound. It bounds memory and leaves results alone.
    """

    num_beams: int = 4
    num_return_sequences: int = 1
    max_length: int = 32
    min_length: int = 0
    length_penalty: float = 0.0
    early_stopping: bool = False
    max_sequences_in_flight: int | None = 1024

    def __post_init__(self) -> None:
        bound = self.max_sequences_in_flight
        checks = (
            (self.num_beams >= 1, f"num_beams must be >= 1, got {self.num_beams}"),
            (self.num_return_sequences >= 1, f"num_return_sequences must be >= 1, got {self.num_return_sequences}"),
            (self.max_length >= 1, f"max_length must be >= 1, got {self.max_length}"),
            (
                0 <= self.min_length <= self.max_length,
                f"min_length must be between 0 and max_length ({self.max_length}), got {self.min_length}",
            ),
            (math.isfinite(self.length_penalty), f"length_penalty must be finite, got {self.length_penalty}"),
            (bound is None or bound >= 1, f"max_sequences_in_flight must be >= 1 or None, got {bound}"),
        )
        problems = [problem for holds, problem in checks if not holds]
        if problems:
            raise ConfigError(problems)

    def units_at_once(self, *, sequences_per_unit: int) -> int:
        """How many beam searches of `sequences_per_unit` sequences may run together; at least one."""
        if self.max_sequences_in_flight is None:
            return 2**31 - 1
        return max(1, self.max_sequences_in_flight // sequences_per_unit)
