"""What a caller may set about decoding; every decoder of section 2.5 takes the same settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ragx.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DecodingSettings:
    """Controls of all decoders; lengths count new tokens, EOS included and the start token not.

    A token that a rule forbids gets probability zero and the others keep theirs: reported values are the model's own.

    Attributes:
        num_beams: hypotheses kept per beam search; 1 is greedy.
        num_return_sequences: answers returned per question, and samples drawn. Where fewer distinct ones exist the list
            is shorter: none is repeated or invented.
        max_length: a hypothesis of this many tokens is cut, its probability is that of the prefix.
        min_length: EOS is not allowed before this many tokens, itself counted.
        length_penalty: answers rank by log p(y|x) / length ** length_penalty; 0 ranks by probability. It acts only
            where passages have been merged, never inside the beams of single passages, and never on `logprob`.
        early_stopping: stop a beam search once `num_beams` hypotheses are finished; otherwise once no live beam can
            still enter them.
        forced_bos_token_id: the first token of every answer; None for any.
        force_eos: the last token that `max_length` leaves room for must be EOS: no answer is cut.
        bad_token_ids: tokens that never occur. A forced token may.
        no_repeat_ngram_size: no run of so many tokens occurs twice in an answer; 0 for no such rule.
        do_sample: token_beam draws its answers instead of searching for the best.
        temperature, top_k, top_p: of sampling. The distribution is flattened by the temperature, then cut to the top_k
            best tokens (None for all), then to the fewest best that hold top_p of the rest.
        seed: of sampling.
        max_sequences_in_flight: at most this many sequences are decoded or scored at a time, one beam search at least;
            None for no bound. It bounds memory and leaves results alone.
    """

    num_beams: int = 4
    num_return_sequences: int = 1
    max_length: int = 32
    min_length: int = 0
    length_penalty: float = 0.0
    early_stopping: bool = False
    forced_bos_token_id: int | None = None
    force_eos: bool = False
    bad_token_ids: tuple[int, ...] = ()
    no_repeat_ngram_size: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    max_sequences_in_flight: int | None = 1024

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ConfigError(problems)

    def units_at_once(self, *, sequences_per_unit: int) -> int:
        """How many beam searches of `sequences_per_unit` sequences may run together; at least one."""
        if self.max_sequences_in_flight is None:
            return 2**31 - 1
        return max(1, self.max_sequences_in_flight // sequences_per_unit)

    def _problems(self) -> Iterator[str]:
        """Everything that is wrong."""
        for name, least in (("num_beams", 1), ("num_return_sequences", 1), ("max_length", 1)):
            if not _is_whole(getattr(self, name), least):
                yield f"{name} must be >= {least}, got {getattr(self, name)}"
        if not _is_whole(self.min_length, 0) or (_is_whole(self.max_length, 1) and self.min_length > self.max_length):
            yield f"min_length must be between 0 and max_length ({self.max_length}), got {self.min_length}"
        if not _is_finite(self.length_penalty):
            yield f"length_penalty must be finite, got {self.length_penalty}"
        if not _is_whole(self.no_repeat_ngram_size, 0):
            yield f"no_repeat_ngram_size must be >= 0, got {self.no_repeat_ngram_size}"
        if self.forced_bos_token_id is not None and not _is_whole(self.forced_bos_token_id, 0):
            yield f"forced_bos_token_id must be >= 0 or None, got {self.forced_bos_token_id}"
        if not isinstance(self.bad_token_ids, tuple) or not all(_is_whole(token, 0) for token in self.bad_token_ids):
            yield f"bad_token_ids must be a tuple of numbers >= 0, got {self.bad_token_ids}"
        if not _is_finite(self.temperature) or self.temperature <= 0:
            yield f"temperature must be > 0, got {self.temperature}"
        if not _is_finite(self.top_p) or not 0 < self.top_p <= 1:
            yield f"top_p must be above 0 and at most 1, got {self.top_p}"
        for name in ("top_k", "max_sequences_in_flight"):
            if getattr(self, name) is not None and not _is_whole(getattr(self, name), 1):
                yield f"{name} must be >= 1 or None, got {getattr(self, name)}"


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
