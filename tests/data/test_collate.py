from __future__ import annotations

from itertools import islice

import pytest

from ragx.data.collate import WINDOW, batches, epoch_order, split


def take(count: int, n: int, **options: object) -> list[list[int]]:
    return list(islice(batches(n, **options), count))  # type: ignore[arg-type]


def test_an_epoch_reads_every_example_once() -> None:
    assert sorted(epoch_order(50, seed=3, epoch=2)) == list(range(50))


def test_seed_and_epoch_change_the_order_and_nothing_else_does() -> None:
    order = epoch_order(50, seed=0, epoch=0)
    assert order == epoch_order(50, seed=0, epoch=0)
    assert order != list(range(50))
    assert order != epoch_order(50, seed=1, epoch=0)
    assert order != epoch_order(50, seed=0, epoch=1)


def test_the_order_is_the_same_on_every_machine() -> None:
    assert epoch_order(8, seed=0, epoch=0) == [5, 4, 3, 6, 1, 7, 2, 0]


@pytest.mark.parametrize(("n", "batch_size"), [(7, 3), (8, 4), (3, 5), (1, 2)])
def test_batches_are_full_and_cut_from_one_stream_of_epochs(n: int, batch_size: int) -> None:
    read = take(4 * n, n, batch_size=batch_size, seed=5)
    assert {len(batch) for batch in read} == {batch_size}
    stream = [index for batch in read for index in batch]
    for epoch in range(len(stream) // n):
        assert stream[epoch * n : (epoch + 1) * n] == epoch_order(n, seed=5, epoch=epoch)


@pytest.mark.parametrize("bucketed", [False, True])
@pytest.mark.parametrize("start", [0, 1, WINDOW - 1, WINDOW, 2 * WINDOW + 3])
def test_starting_at_a_step_continues_the_same_sequence(bucketed: bool, start: int) -> None:
    lengths = [index * 7 % 13 for index in range(19)] if bucketed else None
    whole = take(start + 5, 19, batch_size=4, seed=1, lengths=lengths)
    assert take(5, 19, batch_size=4, seed=1, lengths=lengths, start_step=start) == whole[start:]


def test_buckets_hold_alike_lengths_and_read_everything() -> None:
    n, size = 4 * WINDOW, 4
    lengths = [index % 40 for index in range(n)]
    read = take(WINDOW, n, batch_size=size, seed=0, lengths=lengths)
    assert sorted(index for batch in read for index in batch) == list(range(n))
    spread = [max(lengths[i] for i in batch) - min(lengths[i] for i in batch) for batch in read]
    assert max(spread) <= 2
    firsts = [lengths[batch[0]] for batch in read]
    assert firsts != sorted(firsts)


def test_split_keeps_order_and_differs_by_one_at_most() -> None:
    assert split([5, 1, 4, 2, 3], 3) == [[5], [1, 4], [2, 3]]
    assert split([7, 8], 2) == [[7], [8]]


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (0, {"batch_size": 2}, "n must be at least 1, got 0"),
        (3, {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (3, {"batch_size": 1, "start_step": -1}, "start_step must be at least 0, got -1"),
        (3, {"batch_size": 1, "lengths": [1, 2]}, "one length for each of 3 examples, got 2"),
    ],
)
def test_impossible_orders_are_refused_at_once(n: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batches(n, seed=0, **options)  # type: ignore[arg-type]


def test_a_batch_is_never_split_in_empty_parts() -> None:
    with pytest.raises(ValueError, match="between 1 and the batch's 2 examples, got 3"):
        split([1, 2], 3)
