"""Beam search (section 2.5) over many sources at once, exact in its scores.

    score(y_1..t)  =  sum_i log sum_g p(g) p(y_i | x, g, y_<i)        kept as a sum of log-probabilities

A unit is one thing that gets an answer of its own; it reads G generator rows together. RAG-Token has one unit per
question with G = K passages; RAG-Sequence has one unit per (question, passage) with G = 1, which is ordinary beam
search. All units advance together, and a unit that is finished leaves the batch.

* A hypothesis ends with EOS, or where `max_length` cuts it. A cut one has no EOS: its probability is that of the
  prefix.
* As is usual, an EOS counts where it ranks among the `num_beams` best continuations. With one beam this is greedy
  search.
* A token that is not allowed gets probability zero and the others keep theirs: reported values are the model's own.
* Ties: of equal continuations the one of the better beam wins, then the lower token id; of equal finished hypotheses
  the one that ended earlier.

Shapes: U units, M live beams, G rows per unit, C candidates, T `max_length`, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ragx.decoding.batch import Batch
from ragx.decoding.beams import Beams
from ragx.decoding.candidates import still_going, top_candidates
from ragx.decoding.constraints import NONE, Restriction, Rules, Source
from ragx.decoding.settings import DecodingSettings
from ragx.protocols import Reading

__all__ = ["DecodingSettings", "search"]


def search(
    batch: Batch,
    rows: Tensor,
    log_weights: Tensor,
    *,
    sources: Sequence[Source],
    settings: DecodingSettings,
) -> Beams:
    """The best hypotheses of each unit, best first by score / length ** length_penalty.

    Args:
        rows: (U, G) rows of `batch.encoded` that each unit reads.
        log_weights: (U, G) log p(g), the weights of the mixture; zeros for G = 1.
        sources: one for each unit, for the caller's rule.
        settings: in place of the batch's. At most `max_sequences_in_flight` sequences are decoded at a time; the result
            does not depend on it.

    Returns:
        `Beams` of shape (U, num_beams); entries with logprob -inf are empty.

    Raises:
        RagxError: the generator gave a log-probability that is not a number.
    """
    rules = Rules.of(batch.generator, settings, sources, allowed=batch.allowed)
    at_once = settings.units_at_once(sequences_per_unit=settings.num_beams * rows.shape[1])
    units = torch.arange(len(rows), device=rows.device)
    parts = [
        _search(batch.reader.begin(batch.encoded, rows[part]), part, log_weights[part], batch, rules)
        for part in units.split(at_once)
    ]
    return Beams.cat(parts, dim=0)


def _search(reading: Reading, units: Tensor, log_weights: Tensor, batch: Batch, rules: Rules) -> Beams:
    """`search` without the bound on memory; `units` (U,) are the places of these units in `rules.sources`."""
    settings, (n_units, n_rows) = rules.settings, log_weights.shape
    finished = Beams.empty(n_units, settings.num_beams, n_rows, settings.max_length, device=units.device)
    live = Beams.start(n_units, n_rows, settings.max_length, device=units.device)
    active = torch.arange(n_units, device=units.device)
    fed = torch.full_like(active, batch.generator.decoder_start_token_id).unsqueeze(1)
    parents = torch.zeros_like(fed)
    for length in range(1, settings.max_length + 1):
        reading.feed(fed, parents)
        restriction = rules.at(live, units[active], length=length)
        candidates, parents = _continue(reading, live, log_weights[active], restriction, length=length, rules=rules)
        ended = candidates.token_ids[:, :, length - 1] == rules.eos
        done = _finish(finished, active, candidates, ended | (length == settings.max_length), settings=settings)
        going = ended.long().argsort(dim=1, stable=True)[:, : settings.num_beams]
        live, parents = candidates.only(~ended).pick(going), parents.gather(1, going)
        done |= _hopeless(live, finished.units(active), length=length, settings=settings)
        keep = still_going(done, candidates.logprobs)
        if length == settings.max_length or len(keep) == 0:
            break
        if len(keep) < len(active):
            reading.keep(keep)
            active, live, parents = active[keep], live.units(keep), parents[keep]
        fed = live.token_ids[:, :, length - 1]
    return finished


def _continue(
    reading: Reading, live: Beams, log_weights: Tensor, restriction: Restriction, *, length: int, rules: Rules
) -> tuple[Beams, Tensor]:
    """The best continuations (U, C) of the live beams by one token, and the beam (U, C) each one continues."""
    # One EOS per live beam may rank ahead of the num_beams continuations that are wanted.
    count = rules.settings.num_beams + live.width
    choose = _choose if restriction.only is None else _choose_listed
    possible, parents, tokens = choose(reading, live, log_weights, restriction, count=count)
    by_passage = reading.read(parents, tokens)
    mixed = log_weights.unsqueeze(1) + by_passage
    values = (live.logprobs.gather(1, parents) + mixed.logsumexp(2)).masked_fill(~possible, -torch.inf)
    values, order = values.sort(dim=1, descending=True, stable=True)
    parents, tokens = parents.gather(1, order), tokens.gather(1, order)
    units = torch.arange(len(order), device=order.device).unsqueeze(1)
    longer = live.pick(parents).extend(
        tokens, values, by_passage[units, order], mixed.softmax(2)[units, order], length=length
    )
    return longer, parents


def _choose(
    reading: Reading, live: Beams, log_weights: Tensor, restriction: Restriction, *, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best continuations: which of them are possible, the beams and the tokens, all (U, C)."""
    found = []
    vocab_size = 0
    for units, scores in reading.continuations(log_weights, live.logprobs):
        restriction.forbid(scores, units)
        vocab_size = scores.shape[2]
        found.append(top_candidates(scores.flatten(1), min(count, live.width * vocab_size)))
    values, flat = (torch.cat(parts) for parts in zip(*found, strict=True))
    return values != -torch.inf, flat // vocab_size, flat % vocab_size


def _choose_listed(
    reading: Reading, live: Beams, log_weights: Tensor, restriction: Restriction, *, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """As `_choose` among `restriction.only`, where every token is read exactly."""
    assert restriction.only is not None
    n_units, width, n_allowed = restriction.only.shape
    tokens = restriction.only.flatten(1)
    parents = torch.arange(width, device=tokens.device).repeat_interleave(n_allowed).expand(n_units, -1)
    mixed = (log_weights.unsqueeze(1) + reading.read(parents, tokens.clamp(min=0))).logsumexp(2)
    scores = (live.logprobs.gather(1, parents) + mixed).masked_fill(tokens == NONE, -torch.inf)
    values, order = top_candidates(scores, min(count, scores.shape[1]))
    return values != -torch.inf, parents.gather(1, order), tokens.gather(1, order).clamp(min=0)


def _finish(finished: Beams, active: Tensor, candidates: Beams, ended: Tensor, *, settings: DecodingSettings) -> Tensor:
    """Moves ended candidates into `finished`, in place, keeping the best; returns which units are full and may stop."""
    counts = ended.clone()
    counts[:, settings.num_beams :] = False
    pool = Beams.cat([finished.units(active), candidates.only(counts)], dim=1)
    best = pool.scores(settings.length_penalty).argsort(dim=1, descending=True, stable=True)[:, : settings.num_beams]
    kept = pool.pick(best)
    finished.put(active, kept)
    full = (kept.logprobs > -torch.inf).all(1)
    return full if settings.early_stopping else torch.zeros_like(full)


def _hopeless(live: Beams, finished: Beams, *, length: int, settings: DecodingSettings) -> Tensor:
    """(U,) true where no continuation of a live beam can still enter `finished`."""
    best = live.logprobs.max(1).values
    # A log-probability only falls, so its best score has the length that divides it most kindly.
    lengths = torch.tensor([length + 1.0, float(settings.max_length)], device=best.device)
    attainable = (best.unsqueeze(1) / lengths**settings.length_penalty).max(1).values
    worst = finished.scores(settings.length_penalty).min(1).values
    return attainable <= worst  # also where both are -inf: nothing lives and nothing can come
