"""The prior: softmax over what was retrieved."""

from __future__ import annotations

import math

import pytest
import torch

from ragx.errors import ShapeError
from ragx.losses.prior import doc_logprobs


def test_hand_value() -> None:
    # exp(ln 6) : exp(ln 3) : exp(ln 1) = 6 : 3 : 1
    scores = torch.tensor([[math.log(6), math.log(3), 0.0]])
    assert doc_logprobs(scores).exp()[0].tolist() == pytest.approx([0.6, 0.3, 0.1])


def test_a_constant_changes_nothing_even_where_exp_overflows() -> None:
    scores = torch.tensor([[1.0, 2.0, 4.0]])
    torch.testing.assert_close(doc_logprobs(scores + 1000.0), doc_logprobs(scores), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    scores = torch.tensor([[70.0, 70.5, 71.0]], dtype=dtype)
    expected = scores.double().log_softmax(1).float()
    assert doc_logprobs(scores).dtype == torch.float32
    torch.testing.assert_close(doc_logprobs(scores), expected, atol=1e-6, rtol=0)


def test_float64_stays_float64() -> None:
    assert doc_logprobs(torch.zeros(1, 2, dtype=torch.float64)).dtype == torch.float64


def test_masked_passages_get_no_mass_and_no_gradient() -> None:
    scores = torch.tensor([[1.0, 9.0, 2.0]], requires_grad=True)
    mask = torch.tensor([[True, False, True]])
    logprobs = doc_logprobs(scores, mask=mask)
    assert logprobs[0, 1] == float("-inf")
    expected = torch.tensor([1.0, 2.0]).log_softmax(0)
    torch.testing.assert_close(logprobs.detach()[0, [0, 2]], expected)
    logprobs.logsumexp(1).sum().backward()
    assert scores.grad is not None and torch.isfinite(scores.grad).all() and scores.grad[0, 1] == 0


def test_one_passage_has_probability_one() -> None:
    assert doc_logprobs(torch.tensor([[-7.3]])).tolist() == [[0.0]]


def test_a_row_without_passages_is_named() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    with pytest.raises(ShapeError, match=r"mask must keep at least one passage per query, got none in row 1\."):
        doc_logprobs(torch.zeros(2, 2), mask=mask)


@pytest.mark.parametrize("shape", [(2,), (2, 0), (2, 3, 1)])
def test_wrong_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"doc_scores must have shape \(B, K\) with K >= 1, got"):
        doc_logprobs(torch.zeros(shape))


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"mask must have the shape of doc_scores \(2, 2\), got \(2, 1\)"):
        doc_logprobs(torch.zeros(2, 2), mask=torch.ones(2, 1, dtype=torch.bool))
