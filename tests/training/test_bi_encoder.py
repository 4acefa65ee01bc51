"""DPR's in-batch-negative loss: hand values, masked false negatives, refused shapes (FAULTS D5 in spirit)."""

from __future__ import annotations

import math

import pytest
import torch

from ragx.errors import ShapeError
from ragx.training.bi_encoder import average_rank, gold_ranks, in_batch_nll


def test_uniform_scores_give_the_log_of_the_number_of_passages() -> None:
    queries = torch.zeros(4, 3)
    assert in_batch_nll(queries, torch.randn(4, 3)).item() == pytest.approx(math.log(4))
    assert in_batch_nll(queries, torch.randn(8, 3)).item() == pytest.approx(math.log(8))


def test_by_hand_with_one_hard_negative() -> None:
    queries = torch.tensor([[1.0, 0.0]])
    passages = torch.tensor([[math.log(3.0), 5.0], [math.log(2.0), -5.0]])
    # scores log 3 and log 2: p(own) = 3 / 5
    assert in_batch_nll(queries, passages).item() == pytest.approx(-math.log(3 / 5))


def test_the_positive_of_query_i_is_passage_i() -> None:
    queries = torch.eye(3) * 10
    right, turned = torch.eye(3), torch.eye(3).roll(1, 0)
    assert in_batch_nll(queries, right).item() < 0.001
    assert in_batch_nll(queries, turned).item() > 9


def test_a_false_negative_does_not_count_and_gets_no_gradient() -> None:
    queries = torch.tensor([[1.0], [1.0]])
    passages = torch.tensor([[0.0], [0.0], [50.0]], requires_grad=True)
    mask = torch.tensor([[False, False, True], [False, False, True]])
    loss = in_batch_nll(queries, passages, false_negatives=mask)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert passages.grad is not None and passages.grad[2].item() == 0
    everything = torch.ones(2, 3, dtype=torch.bool)
    assert in_batch_nll(queries, passages, false_negatives=everything).item() == pytest.approx(0)


def test_scores_are_in_float32() -> None:
    queries, passages = torch.randn(4, 64), torch.randn(6, 64)
    half = in_batch_nll(queries.half(), passages.half())
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(in_batch_nll(queries, passages).item(), rel=0.01)


def test_average_rank_by_hand() -> None:
    queries, passages = torch.eye(2), torch.tensor([[1.0, 0.0], [5.0, 3.0], [2.0, 4.0]])
    # query 0: scores 1, 5, 2, own is third; query 1: scores 0, 3, 4, own is second
    assert average_rank(queries, passages).item() == 2.5


def test_shapes_are_checked() -> None:
    with pytest.raises(ShapeError, match="a positive for each of 3 queries, got 2 passages"):
        in_batch_nll(torch.zeros(3, 2), torch.zeros(2, 2))
    with pytest.raises(ShapeError, match=r"false_negatives must have shape \(2, 3\), got \(2, 2\)"):
        in_batch_nll(torch.zeros(2, 2), torch.zeros(3, 2), false_negatives=torch.zeros(2, 2, dtype=torch.bool))


def test_ranks_are_those_of_the_best_gold_among_what_is_not_gold() -> None:
    queries = torch.eye(2)
    pool = torch.tensor([[3.0, 0.0], [9.0, 5.0], [2.0, 7.0], [1.0, 6.0]])
    gold = torch.tensor([[True, False, True, False], [False, True, False, False]])
    # query 0: golds 3 and 2, beaten by 9 alone; query 1: gold 5, beaten by 7 and 6
    assert gold_ranks(queries, pool, gold).tolist() == [2.0, 3.0]


def test_one_vector_for_all_texts_gets_the_middle_rank_and_not_the_first() -> None:
    ranks = gold_ranks(torch.ones(1, 2), torch.ones(9, 2), torch.eye(1, 9, dtype=torch.bool))
    assert ranks.tolist() == [5.0]


def test_ranks_do_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, pool = torch.randn(7, 3), torch.randn(11, 3)
    gold = torch.eye(7, 11, dtype=torch.bool)
    whole = gold_ranks(queries, pool, gold)
    monkeypatch.setattr("ragx.training.bi_encoder._BLOCK", 2)
    assert torch.equal(gold_ranks(queries, pool, gold), whole)


def test_a_gold_mask_must_fit_and_name_something() -> None:
    with pytest.raises(ShapeError, match=r"gold must have shape \(2, 3\), got \(3, 2\)"):
        gold_ranks(torch.zeros(2, 2), torch.zeros(3, 2), torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ShapeError, match="gold must name a passage of the pool for each query, got a query without"):
        gold_ranks(torch.zeros(2, 2), torch.zeros(3, 2), torch.tensor([[True, False, False], [False] * 3]))
