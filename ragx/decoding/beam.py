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

from typing import Any

import torch
from torch import Tensor

from ragx.decoding.beams import Beams, check_numbers, top_candidates
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ShapeError
from ragx.protocols import Generator

__all__ = ["DecodingSettings", "check_doc_logprobs", "search"]


def check_doc_logprobs(doc_logprobs: Tensor) -> Tensor:
    """`doc_logprobs` (B, K) as float32, after checking that every row is a distribution over passages.

    A masked passage is -inf and is never read.

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


@torch.no_grad()
def search(
    generator: Generator, encoded: Any, rows: Tensor, *, doc_logprobs: Tensor, settings: DecodingSettings
) -> Beams:
    """The best hypotheses of each unit, best first by score / length ** length_penalty.

    Args:
        encoded: what `generator.encode` returned.
        rows: (U, G) rows of `encoded` that each unit reads.
        doc_logprobs: (U, G) log p(g), the weights of the mixture; zeros for G = 1.
        settings: at most `max_sequences_in_flight` sequences are decoded at a time; the result does not depend on it.

    Returns:
        `Beams` of shape (U, num_beams); entries with logprob -inf are empty.

    Raises:
        RagxError: the generator gave a log-probability that is not a number.
    """
    at_once = settings.units_at_once(sequences_per_unit=settings.num_beams * rows.shape[1])
    parts = [
        _search(generator, encoded, part, weights, settings)
        for part, weights in zip(rows.split(at_once), doc_logprobs.split(at_once), strict=True)
    ]
    return Beams.cat(parts, dim=0)


def _search(
    generator: Generator, encoded: Any, rows: Tensor, doc_logprobs: Tensor, settings: DecodingSettings
) -> Beams:
    """`search` without the bound on memory."""
    n_units, n_rows = rows.shape
    finished = Beams.empty(n_units, settings.num_beams, n_rows, settings.max_length, device=rows.device)
    live = Beams.start(n_units, n_rows, settings.max_length, device=rows.device)
    active = torch.arange(n_units, device=rows.device)
    state = generator.begin(encoded, rows.flatten())
    fed = torch.full_like(rows.flatten(), generator.decoder_start_token_id)
    for length in range(1, settings.max_length + 1):
        logprobs, state = generator.next_logprobs(state, fed)
        logprobs = logprobs.float().view(len(active), live.width, n_rows, -1)
        banned = generator.eos_token_id if length < settings.min_length else None
        candidates, parents = _continue(
            live, logprobs, doc_logprobs[active], length=length, banned=banned, settings=settings
        )
        ended = candidates.token_ids[:, :, length - 1] == generator.eos_token_id
        done = _finish(finished, active, candidates, ended | (length == settings.max_length), settings=settings)
        if length == settings.max_length:
            break
        # Among num_beams + M candidates at most M are EOS, so the first `width` others exist.
        width = min(settings.num_beams, live.width * (logprobs.shape[3] - 1))
        going = ended.long().argsort(dim=1, stable=True)[:, :width]
        previous_width, live, parents = live.width, candidates.pick(going), parents.gather(1, going)
        done |= _hopeless(live, finished.units(active), length=length, settings=settings)
        keep = (~done).nonzero().squeeze(1)
        if len(keep) == 0:
            break
        sequences = (keep.unsqueeze(1) * previous_width + parents[keep]).unsqueeze(2) * n_rows
        sequences = sequences + torch.arange(n_rows, device=rows.device)
        state = generator.reorder(state, sequences.flatten())
        active, live = active[keep], live.units(keep)
        fed = live.token_ids[:, :, length - 1].unsqueeze(2).expand(-1, -1, n_rows).flatten()
    return finished


def _continue(
    live: Beams, logprobs: Tensor, doc_logprobs: Tensor, *, length: int, banned: int | None, settings: DecodingSettings
) -> tuple[Beams, Tensor]:
    """The best continuations (U, C) of the live beams by one token, and the beam (U, C) each one continues."""
    n_units, width, n_rows, vocab_size = logprobs.shape
    mixed = logprobs.squeeze(2) if n_rows == 1 else (doc_logprobs[:, None, :, None] + logprobs).logsumexp(2)
    total = live.logprobs.unsqueeze(2) + mixed
    if banned is not None:
        total[:, :, banned] = -torch.inf
    # One EOS per live beam may rank ahead of the num_beams continuations that are wanted.
    values, flat = top_candidates(total.flatten(1), min(settings.num_beams + width, width * vocab_size))
    check_numbers(values)
    parents, tokens = flat // vocab_size, flat % vocab_size
    units = torch.arange(n_units, device=flat.device)[:, None, None]
    passages = torch.arange(n_rows, device=flat.device)[None, None, :]
    by_passage = logprobs[units, parents.unsqueeze(2), passages, tokens.unsqueeze(2)]
    posterior = (doc_logprobs.unsqueeze(1) + by_passage).softmax(2)
    return live.pick(parents).extend(tokens, values, by_passage, posterior, length=length), parents


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
