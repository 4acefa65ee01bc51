"""Which tokens may come next (section 2.5; the rules are those of `DecodingSettings` and the caller's own).

A forbidden token gets probability zero and the others keep theirs, so that what is reported stays the model's own. A
forced token overrides every other rule, for it stands where no other may. The caller's function is asked once for each
live sequence and step; RAG-Token mixes the passages of a question, so there it is asked about the question alone.

Shapes: U units, M sequences, A allowed tokens, X forbidden ones, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragx.decoding.batch import AllowedTokens
from ragx.decoding.beams import Beams
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ShapeError
from ragx.protocols import Generator

NONE = -1

Source = tuple[int, int | None]
"""The question that a unit belongs to and the passage that it reads, None where it mixes them."""


@dataclass(frozen=True)
class Restriction:
    """What may follow the live sequences at one step.

    Attributes:
        only: (U, M, A) ids in ascending order, `NONE` where there are fewer; None where every token may follow.
        never: (X,) ids that follow none of them; does not concern `only`, nor does `not_here`.
        not_here: (U, M, X) ids that do not follow this sequence, `NONE` where there are fewer; None for no such rule.
    """

    only: Tensor | None
    never: Tensor
    not_here: Tensor | None

    def forbid(self, scores: Tensor, units: slice) -> None:
        """Writes -inf into `scores` (u, M, V) of these units where `never` and `not_here` say so."""
        if len(self.never):
            scores.index_fill_(2, self.never, -torch.inf)
        if self.not_here is not None:
            tokens = self.not_here[units]
            loss = torch.where(tokens < 0, torch.inf, -torch.inf).to(scores.dtype)
            scores.scatter_reduce_(2, tokens.clamp(min=0), loss, "amin")


@dataclass(frozen=True)
class Rules:
    """The rules of one search.

    Attributes:
        settings: lengths, forced and bad tokens, repeated n-grams.
        eos, vocab_size: of the generator.
        sources: one for each unit.
        allowed: the caller's function.
    """

    settings: DecodingSettings
    eos: int
    vocab_size: int
    sources: Sequence[Source]
    allowed: AllowedTokens | None = None

    @classmethod
    def of(
        cls,
        generator: Generator,
        settings: DecodingSettings,
        sources: Sequence[Source],
        *,
        allowed: AllowedTokens | None,
    ) -> Rules:
        """The rules of a search with this generator.

        Raises:
            ShapeError: a token id that the generator does not have.
        """
        ids = {"bad_token_ids": settings.bad_token_ids, "forced_bos_token_id": (settings.forced_bos_token_id or 0,)}
        for name, given in ids.items():
            beyond = [token for token in given if token >= generator.vocab_size]
            if beyond:
                raise ShapeError(
                    f"{name} must be below the vocabulary's size {generator.vocab_size}, got {beyond[0]}. "
                    "Give ids of the generator's own tokenizer."
                )
        return cls(settings, generator.eos_token_id, generator.vocab_size, sources, allowed)

    def at(self, live: Beams, units: Tensor, *, length: int) -> Restriction:
        """What may be the token at place `length` (from 1) of the live sequences of `units` (U,)."""
        settings, device = self.settings, live.logprobs.device
        forced = self.eos if settings.force_eos and length == settings.max_length else None
        if length == 1 and settings.forced_bos_token_id is not None:
            forced = settings.forced_bos_token_id
        never = torch.tensor([], dtype=torch.long, device=device)
        if forced is not None:
            return Restriction(torch.full((*live.logprobs.shape, 1), forced, device=device), never, None)
        banned = [*settings.bad_token_ids, *([self.eos] if length < settings.min_length else [])]
        if banned:
            never = torch.tensor(banned, device=device)
        not_here = _completing_ngrams(live.token_ids[:, :, : length - 1], settings.no_repeat_ngram_size)
        if self.allowed is None:
            return Restriction(None, never, not_here)
        only = self._ask(live, units, length=length)
        forbidden = torch.isin(only, never)
        if not_here is not None:
            forbidden |= (only.unsqueeze(3) == not_here.unsqueeze(2)).any(3)
        return Restriction(only.masked_fill(forbidden, NONE), never, not_here)

    def _ask(self, live: Beams, units: Tensor, *, length: int) -> Tensor:
        """(U, M, A) what the caller's function says."""
        assert self.allowed is not None
        prefixes = live.token_ids[:, :, : length - 1].tolist()
        possible = (live.logprobs > -torch.inf).tolist()
        lists: list[list[int]] = []
        for unit, sequences, lives in zip(units.tolist(), prefixes, possible, strict=True):
            question, passage = self.sources[unit]
            for prefix, alive in zip(sequences, lives, strict=True):
                lists.append(sorted(set(self.allowed(question, passage, tuple(prefix)))) if alive else [])
        for ids in lists:
            if ids and not 0 <= ids[0] <= ids[-1] < self.vocab_size:
                raise ShapeError(f"allowed must give ids in [0, {self.vocab_size}), got {ids[0]} to {ids[-1]}.")
        longest = max(1, *map(len, lists))
        padded = torch.tensor([ids + [NONE] * (longest - len(ids)) for ids in lists], device=live.logprobs.device)
        return padded.view(*live.logprobs.shape, longest)


def _completing_ngrams(token_ids: Tensor, size: int) -> Tensor | None:
    """(U, M, X) tokens that would repeat an n-gram of `token_ids` (U, M, L), `NONE` in places where none would."""
    length = token_ids.shape[2]
    if size == 0 or length < size:
        return None
    ngrams = token_ids.unfold(2, size, 1)
    latest = token_ids[:, :, length - size + 1 :].unsqueeze(2)
    repeats = (ngrams[..., :-1] == latest).all(3)
    return ngrams[..., -1].where(repeats, NONE)
