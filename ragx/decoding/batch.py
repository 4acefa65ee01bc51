"""What every decoder of section 2.5 is given, checked in one place.

A decoder is written as a function of a `Batch`; `decoder` gives it the signature that callers use and does what all of
them must: check the prior, and keep no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol

import torch
from torch import Tensor

from ragx.decoding.plain import grouped
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError, ShapeError
from ragx.protocols import Generator, Grouped
from ragx.records import Hypothesis

Answers = list[list[Hypothesis]]
"""Per question its hypotheses, best first: shorter than asked for where fewer exist, empty where none is possible."""

AllowedTokens = Callable[[int, int | None, tuple[int, ...]], Iterable[int]]
"""(question, passage or None where all are mixed, tokens so far) -> the ids that may follow. Both count from 0."""


@dataclass(frozen=True)
class Batch:
    """B questions with K passages each.

    Attributes:
        generator, encoded: who reads, and what `generator.encode` returned; row b*K + k is passage k of question b.
        doc_logprobs: (B, K) float32 log p(z|x), -inf for a masked passage, which is never read.
        settings: of the decoder.
        allowed: which tokens may come next; None for all.
        seeds: one a question, for sampling; empty for `settings.seed` everywhere.
    """

    generator: Generator
    encoded: Any
    doc_logprobs: Tensor
    settings: DecodingSettings
    allowed: AllowedTokens | None = None
    seeds: Sequence[int] = ()
    reader: Grouped = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doc_logprobs", check_doc_logprobs(self.doc_logprobs))
        if self.seeds and len(self.seeds) != len(self.doc_logprobs):
            raise ShapeError(
                f"seeds must be one a question ({len(self.doc_logprobs)}) or none, got {len(self.seeds)}. "
                "Leave them out to sample every question with settings.seed."
            )
        object.__setattr__(self, "reader", grouped(self.generator))

    @property
    def n_docs(self) -> int:
        """K."""
        return self.doc_logprobs.shape[1]

    def refuse_sampling(self, decoder: str) -> None:
        """Raises ConfigError where the settings ask for samples of a decoder that has none to give."""
        if self.settings.do_sample:
            raise ConfigError([f"do_sample must be false with {decoder}, got true. Use token_beam to sample."])


class Decode(Protocol):
    """A decoder as callers see it."""

    def __call__(
        self,
        generator: Generator,
        encoded: Any,
        doc_logprobs: Tensor,
        *,
        settings: DecodingSettings,
        allowed: AllowedTokens | None = None,
        seeds: Sequence[int] = (),
    ) -> Answers:
        """The answers to a `Batch` of these.

        Raises:
            ShapeError: `doc_logprobs` is no distribution over passages, or seeds of another number than questions.
            ConfigError: settings that this decoder cannot follow.
            RagxError: the generator gave a log-probability that is not a number.
        """
        ...


def decoder(decode: Callable[[Batch], Answers]) -> Decode:
    """`decode` as a function of what a `Batch` is made of."""

    @wraps(decode)
    def checked(generator: Generator, encoded: Any, doc_logprobs: Tensor, **options: Any) -> Answers:
        with torch.no_grad():
            return decode(Batch(generator, encoded, doc_logprobs, **options))

    return checked


def check_doc_logprobs(doc_logprobs: Tensor) -> Tensor:
    """`doc_logprobs` (B, K) as float32, after checking that every row is a distribution over passages.

    Raises:
        ShapeError: not (B, K) with B, K >= 1, or a row whose probabilities do not sum to one.
    """
    if doc_logprobs.dim() != 2 or 0 in doc_logprobs.shape:
        raise ShapeError(
            f"doc_logprobs must be (B, K) with B and K >= 1, got {tuple(doc_logprobs.shape)}. "
            "Give zeros of shape (B, 1) to decode without passages."
        )
    doc_logprobs = doc_logprobs.detach().float()
    total = doc_logprobs.logsumexp(1).exp()
    if not bool(((total - 1).abs() < 1e-2).all()):
        raise ShapeError(
            f"doc_logprobs must sum to one in probability over the passages, got "
            f"{[round(p, 4) for p in total.tolist()]}. Pass doc_scores through ragx.losses.prior.doc_logprobs first."
        )
    return doc_logprobs
