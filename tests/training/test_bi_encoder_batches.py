"""Who is whose negative (FAULTS D5): the positive's place, other golds, duplicates, the same draws on all processes."""

from __future__ import annotations

import torch

from ragx.data.retriever_examples import Context, RetrieverExample
from ragx.training.bi_encoder_batches import ContrastiveBatch, Golds, draw

A, B, C, D, E = (Context(name, f"text {name}", f"id-{name}") for name in "ABCDE")
COUNTS = {"hard_negatives": 1, "negatives": 1}


def example(
    query: str, *positives: Context, hard: tuple[Context, ...] = (), easy: tuple[Context, ...] = ()
) -> RetrieverExample:
    return RetrieverExample(query, query, positives, hard, easy)


def masked(batch: ContrastiveBatch, golds: Golds) -> list[tuple[int, int]]:
    return [(int(row), int(column)) for row, column in batch.false_negatives(golds).nonzero()]


def test_columns_are_all_positives_and_then_the_negatives_of_each_question() -> None:
    batch = ContrastiveBatch(["q0", "q1"], [A, B], [[C, D], [E]])
    assert batch.passages == [A, B, C, D, E]
    first, second = batch.shares(2)
    assert (first.queries, first.passages, second.queries, second.passages) == (["q0"], [A, C, D], ["q1"], [B, E])


def test_another_gold_of_the_question_is_no_negative() -> None:
    golds = Golds([example("q0", A, C), example("q1", B)])
    # C is gold for q0 although q1 brought it along as a hard negative
    assert masked(ContrastiveBatch(["q0", "q1"], [A, B], [[], [C]]), golds) == [(0, 2)]


def test_the_same_passage_twice_in_a_batch_is_no_negative() -> None:
    golds = Golds([example("q0", A), example("q1", A), example("q2", B)])
    batch = ContrastiveBatch(["q0", "q1", "q2"], [A, A, B], [[], [], []])
    assert masked(batch, golds) == [(0, 1), (1, 0)]


def test_the_same_text_under_another_id_is_no_negative() -> None:
    again = Context(A.title, A.text, "id-copy")
    golds = Golds([example("q0", A), example("q1", B)])
    assert masked(ContrastiveBatch(["q0", "q1"], [A, B], [[], [again]]), golds) == [(0, 2)]


def test_the_same_id_with_another_text_is_no_negative() -> None:
    newer = Context(A.title, "a later revision", A.id)
    golds = Golds([example("q0", A), example("q1", B)])
    assert masked(ContrastiveBatch(["q0", "q1"], [A, B], [[], [newer]]), golds) == [(0, 2)]


def test_passages_without_id_are_not_taken_for_one_another() -> None:
    first, second = Context("A", "a"), Context("B", "b")
    golds = Golds([example("q0", first), example("q1", second)])
    assert masked(ContrastiveBatch(["q0", "q1"], [first, second], [[], []]), golds) == []


def test_a_question_asked_in_two_rows_has_the_golds_of_both() -> None:
    golds = Golds([example("q", A), example("q", B), example("other", C)])
    batch = ContrastiveBatch(["q", "other"], [A, C], [[], [B]])
    assert masked(batch, golds) == [(0, 2)]


def test_draws_follow_from_seed_and_step() -> None:
    many = tuple(Context(str(n), f"negative {n}") for n in range(50))
    examples = [example("q0", A, B, C, hard=many), example("q1", D, hard=many, easy=(E,)), example("q2", E)]

    def drawn(seed: int, step: int, *, random_positive: bool = True) -> ContrastiveBatch:
        return draw(examples, seed=seed, step=step, counts=COUNTS, random_positive=random_positive)

    assert drawn(0, 1) == drawn(0, 1)
    assert len({str(drawn(0, step)) for step in range(20)}) > 10
    assert drawn(0, 1).negatives != drawn(1, 1).negatives
    assert {drawn(0, step).positives[0] for step in range(40)} == {A, B, C}
    assert {drawn(0, step, random_positive=False).positives[0] for step in range(40)} == {A}
    assert [len(row) for row in drawn(0, 3).negatives] == [1, 2, 0]  # where there are so many


def test_the_shares_of_two_processes_make_the_mask_of_one() -> None:
    golds = Golds([example("q0", A, C), example("q1", B)])
    batch = ContrastiveBatch(["q0", "q1"], [A, B], [[D], [C]])
    mask = batch.false_negatives(golds)
    assert mask.shape == (2, 4) and torch.equal(mask.nonzero(), torch.tensor([[0, 3]]))
