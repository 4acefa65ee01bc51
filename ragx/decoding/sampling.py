"""Samples of RAG-Token (section 2.5): each token drawn from the mixture of passages.

    y_i  ~  p'(. | x, y_<i) ^ (1 / temperature), cut to the top_k best and the fewest that hold top_p, normalized

Decision: one uniform number for each (sample, token), mapped through the distribution sorted from the best. The numbers
come from a generator of the question's own on the CPU, so that a sample depends on the seed and the question alone: not
on the batch, not on the device, and not on how many other samples are drawn. Reported values are the model's own.

Shapes: U units (questions), M samples, G rows, T `max_length`, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ragx.decoding.batch import Batch
from ragx.decoding.beams import Beams
from ragx.decoding.candidates import still_going
from ragx.decoding.constraints import NONE, Restriction, Rules, Source
from ragx.decoding.settings import DecodingSettings
from ragx.protocols import Reading


def draw(
    batch: Batch,
    rows: Tensor,
    log_weights: Tensor,
    *,
    sources: Sequence[Source],
    settings: DecodingSettings,
) -> Beams:
    """`num_return_sequences` samples of each unit, equal ones among them; arguments as of `ragx.decoding.beam.search`.

    Returns:
        `Beams` of shape (U, M); entries with logprob -inf ended where no token was allowed.
    """
    rules = Rules.of(batch.generator, settings, sources, allowed=batch.allowed)
    at_once = settings.units_at_once(sequences_per_unit=settings.num_return_sequences * rows.shape[1])
    units = torch.arange(len(rows), device=rows.device)
    numbers = _uniform(batch, settings).to(rows.device)
    parts = [
        _draw(batch.reader.begin(batch.encoded, rows[part]), part, log_weights[part], numbers[part], rules, batch)
        for part in units.split(at_once)
    ]
    return Beams.cat(parts, dim=0)


def _uniform(batch: Batch, settings: DecodingSettings) -> Tensor:
    """(U, M, T) float64 in [0, 1)."""
    seeds = list(batch.seeds) or [settings.seed]
    drawn = [
        torch.rand(
            settings.num_return_sequences,
            settings.max_length,
            dtype=torch.float64,
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in seeds
    ]
    return torch.stack(drawn).expand(len(batch.doc_logprobs), -1, -1)


def _draw(reading: Reading, units: Tensor, log_weights: Tensor, numbers: Tensor, rules: Rules, batch: Batch) -> Beams:
    """`draw` without the bound on memory."""
    settings, (n_units, n_rows) = rules.settings, log_weights.shape
    width, device = settings.num_return_sequences, units.device
    drawn = Beams.empty(n_units, width, n_rows, settings.max_length, device=device)
    drawn.logprobs.zero_()
    active, live, going = torch.arange(n_units, device=device), drawn, drawn.logprobs == 0
    said = Beams.start(n_units, n_rows, settings.max_length, device=device)  # all samples begin with the same nothing
    tokens = torch.full((n_units, 1), batch.generator.decoder_start_token_id, device=device)
    parents = torch.zeros_like(tokens)
    for length in range(1, settings.max_length + 1):
        reading.feed(tokens, parents)
        weights, restriction = log_weights[active], rules.at(said, units[active], length=length)
        draws = numbers[active, :, length - 1]
        tokens, possible = _tokens(reading, weights, said.width, restriction, draws, settings=settings)
        sequences = torch.arange(width, device=device).clamp(max=said.width - 1).expand_as(tokens)
        by_passage = reading.read(sequences, tokens)
        mixed = weights.unsqueeze(1) + by_passage
        values = (live.logprobs + mixed.logsumexp(2)).masked_fill(~possible, -torch.inf)
        live = live.where(~going, live.extend(tokens, values, by_passage, mixed.softmax(2), length=length))
        drawn.put(active, live)
        going = going & possible & (tokens != rules.eos)
        keep = still_going(~going.any(1), live.logprobs)
        if len(keep) == 0:
            break
        if len(keep) < len(active):
            reading.keep(keep)
            active, live, going, tokens = active[keep], live.units(keep), going[keep], tokens[keep]
        said, parents = live.only(going), sequences[: len(keep)]
    return drawn


def _tokens(
    reading: Reading,
    log_weights: Tensor,
    width: int,
    restriction: Restriction,
    numbers: Tensor,
    *,
    settings: DecodingSettings,
) -> tuple[Tensor, Tensor]:
    """A token (U, M) for each of the uniform numbers (U, M), and whether any was possible.

    Args:
        width: sequences read: M, or 1 where all samples go on from the same one.
    """
    if restriction.only is None:
        found = []
        for units, scores in reading.continuations(log_weights, log_weights.new_zeros(len(numbers), width)):
            restriction.forbid(scores, units)
            found.append(_pick(scores, numbers[units], settings=settings))
        tokens, possible = (torch.cat(parts) for parts in zip(*found, strict=True))
        return tokens, possible
    only = restriction.only
    parents = torch.arange(width, device=only.device).repeat_interleave(only.shape[2]).expand(len(only), -1)
    logprobs = (log_weights.unsqueeze(1) + reading.read(parents, only.flatten(1).clamp(min=0))).logsumexp(2)
    places, possible = _pick(logprobs.view_as(only).masked_fill(only == NONE, -torch.inf), numbers, settings=settings)
    lists = only.expand(-1, numbers.shape[1], -1)
    return lists.gather(2, places.unsqueeze(2)).squeeze(2).clamp(min=0), possible


def _pick(logprobs: Tensor, numbers: Tensor, *, settings: DecodingSettings) -> tuple[Tensor, Tensor]:
    """The entry of `logprobs` (U, M or 1, n) at each uniform number (U, M), and whether it has any probability."""
    ordered, order = (logprobs / settings.temperature).sort(dim=2, descending=True, stable=True)
    if settings.top_k is not None:
        ordered = ordered[:, :, : settings.top_k]
    cumulative = ordered.double().softmax(2).cumsum(2)
    before = torch.cat([torch.zeros_like(cumulative[:, :, :1]), cumulative[:, :, :-1]], 2)
    mass = cumulative.masked_fill(before >= settings.top_p, 0.0).amax(2)  # what the fewest best that hold top_p hold
    place = (cumulative <= (numbers * mass).unsqueeze(2)).sum(2)
    # Rounding may leave the last number behind every entry; the last one that has probability is meant.
    last = ((ordered > -torch.inf) & (before < settings.top_p)).sum(2).clamp(min=1) - 1
    place = torch.minimum(place, last)
    order = order.expand(-1, numbers.shape[1], -1)
    return order.gather(2, place.unsqueeze(2)).squeeze(2), (logprobs > -torch.inf).any(2).expand_as(numbers)
