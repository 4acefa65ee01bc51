"""DPR's in-batch-negative loss: hand values, masked false negatives, refused shapes (FAULTS D5 in spirit)."""

from __future__ import annotations

import math

import pytest
import torch

from ragx.errors import ShapeError
from ragx.training.bi_encoder import average_rank, in_batch_nll


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
