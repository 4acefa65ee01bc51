"""The order in which examples are read: a pure function of (seed, step).

    stream   =  epoch 0 shuffled, epoch 1 shuffled, ...
    batch s  =  stream[s * batch_size : (s + 1) * batch_size]

Nothing about the order is stored in a checkpoint. A run that resumes at step s asks for batch s and gets the batch
that the uninterrupted run got. Batches run across the end of an epoch, so each has `batch_size` examples and every
example is read once an epoch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

WINDOW = 32  # batches that are sorted by length together; more saves padding, fewer keeps the order random


def epoch_order(n: int, *, seed: int, epoch: int) -> list[int]:
    """The numbers 0..n-1 in the order of one epoch; another seed or epoch gives another order.

    The generator is Python's, seeded by a string: its sequence is the same on every platform and version.
    """
    order = list(range(n))
    random.Random(f"epoch order {seed} {epoch}").shuffle(order)
    return order


def batches(
    n: int, *, batch_size: int, seed: int, start_step: int = 0, lengths: Sequence[int] | None = None
) -> Iterator[list[int]]:
    """Batches of example numbers from step `start_step` on, without end.

    Args:
        n: how many examples there are.
        batch_size: numbers in each batch.
        seed: of the order.
        start_step: how many batches were read before; 0-based number of the first batch to come.
        lengths: one length per example. Examples of alike length then share a batch (sorted within windows of `WINDOW`
            batches, whose batches are shuffled again), which saves padding and changes which examples meet.

    Raises:
        ValueError: nothing to read, a batch size below 1, or as many lengths as there are not examples.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}. There is no example to read.")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}. Give the number of examples in a batch.")
    if start_step < 0:
        raise ValueError(f"start_step must be at least 0, got {start_step}. It counts the batches read before.")
    if lengths is not None and len(lengths) != n:
        raise ValueError(f"lengths must hold one length for each of {n} examples, got {len(lengths)}. Give all.")
    return _batches(n, batch_size, seed, start_step, lengths)


def split(batch: Sequence[int], parts: int) -> list[list[int]]:
    """Cuts a batch in `parts` runs whose sizes differ by one at most, in order; no run is empty.

    Raises:
        ValueError: fewer numbers than parts.
    """
    if not 1 <= parts <= len(batch):
        raise ValueError(f"parts must be between 1 and the batch's {len(batch)} examples, got {parts}. Split it less.")
    cuts = [len(batch) * part // parts for part in range(parts + 1)]
    return [list(batch[start:end]) for start, end in pairwise(cuts)]


def _batches(n: int, batch_size: int, seed: int, start_step: int, lengths: Sequence[int] | None) -> Iterator[list[int]]:
    order = lru_cache(maxsize=2)(lambda epoch: epoch_order(n, seed=seed, epoch=epoch))

    def read(start: int, count: int) -> list[int]:
        return [order(position // n)[position % n] for position in range(start, start + count)]

    if lengths is None:
        step = start_step
        while True:
            yield read(step * batch_size, batch_size)
            step += 1
    number, skip = divmod(start_step, WINDOW)
    while True:
        window = read(number * WINDOW * batch_size, WINDOW * batch_size)
        window.sort(key=lambda index: lengths[index])  # stable: equal lengths stay in shuffled order
        cut = [window[start : start + batch_size] for start in range(0, len(window), batch_size)]
        random.Random(f"window {seed} {number}").shuffle(cut)
        yield from cut[skip:]
        number, skip = number + 1, 0
