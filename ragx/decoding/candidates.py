"""The best of many, by a rule that no batch can change: of equal values the lower column comes first.

`torch.topk` leaves open which of several equal values it returns, and its choice may change with the shape of the
batch.

Shapes: U rows, n columns, C candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragx.errors import RagxError

BLOCK = 128
"""Columns whose maximum stands for them all in the first look."""


def check_numbers(logprobs: Tensor) -> None:
    """Raises RagxError where a generator gave nan, which every later comparison would hide."""
    if bool(logprobs.isnan().any()):
        raise RagxError("generator log-probabilities must be numbers, got nan. Check the weights and the inputs.")


def still_going(done: Tensor, logprobs: Tensor) -> Tensor:
    """The places (U',) where `done` (U,) is false; the one wait for the device that a step of a search needs.

    Raises:
        RagxError: `logprobs` holds nan.
    """
    *over, broken = torch.cat([done, logprobs.isnan().any().unsqueeze(0)]).tolist()
    if broken:
        check_numbers(logprobs)
    places = [place for place, finished in enumerate(over) if not finished]
    return torch.tensor(places, device=done.device, dtype=torch.long)


def top_candidates(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row of `scores` (U, n) float32 and their columns (U, C), best first.

    A vocabulary is too long to look at closely. Its `count` best lie in the `count` blocks with the largest maxima, the
    earlier of equal ones first: a value outside has `count` others before it, larger, or equal and to the left.
    """
    n_rows, n_columns = scores.shape
    n_blocks = n_columns // BLOCK
    if n_blocks <= count:
        columns = _first(scores, count)
        return scores.gather(1, columns), columns
    whole = scores[:, : n_blocks * BLOCK].unflatten(1, (n_blocks, BLOCK))
    blocks = _first(whole.amax(2), count).sort(dim=1).values
    columns = blocks.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=scores.device)
    # The last columns make up no block. They are few, and are looked at in any case.
    rest = torch.arange(n_blocks * BLOCK, n_columns, device=scores.device).expand(n_rows, -1)
    columns = torch.cat([columns.flatten(1), rest], 1)
    columns = columns.gather(1, _first(scores.gather(1, columns), count))
    return scores.gather(1, columns), columns


def _first(values: Tensor, count: int) -> Tensor:
    """Columns (U, C) of the largest values, best first, then leftmost; nan counts as largest.

    Value and column make up one whole number, and no two of these are equal. A float's bits, read as a whole number,
    have the float's order where it is positive and the opposite order where it is negative; -0.0 + 0.0 is 0.0.
    """
    bits = (values.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf) + 0.0).view(torch.int32)
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    last = values.shape[1] - 1
    keys = (bits << 32) + torch.arange(last, -1, -1, device=values.device)
    return last - (keys.topk(count, dim=1).values & 0xFFFFFFFF)
