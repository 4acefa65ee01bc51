"""Target log-probabilities from logits, and the checks on labels."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from ragx.errors import ShapeError
from ragx.losses.token_logprobs import check_labels, token_logprobs


def test_hand_value() -> None:
    logits = torch.tensor([[[math.log(3), 0.0], [0.0, math.log(9)]]])  # .75/.25 and .1/.9
    assert token_logprobs(logits, torch.tensor([[0, 1]])).exp()[0].tolist() == pytest.approx([0.75, 0.9])


def test_equals_cross_entropy(world) -> None:
    flat = (world.logits.flatten(0, 2), world.labels_per_passage.flatten())
    expected = -F.cross_entropy(*flat, reduction="none").view(world.logits.shape[:3])
    torch.testing.assert_close(world.token_logprobs, expected)


def test_ignored_labels_give_zero_and_no_gradient_even_from_nan() -> None:
    logits = torch.zeros(1, 2, 3)
    logits[0, 1] = float("nan")
    logits.requires_grad_()
    result = token_logprobs(logits, torch.tensor([[1, -100]]))
    result.sum().backward()
    assert result[0, 1] == 0 and result[0, 0].item() == pytest.approx(-math.log(3))
    assert logits.grad is not None and logits.grad[0, 1].tolist() == [0, 0, 0]


def test_log_probabilities_are_logits_too(world) -> None:
    normalised = world._replace(logits=world.logits.log_softmax(3))
    torch.testing.assert_close(normalised.token_logprobs, world.token_logprobs)


def test_forbidden_tokens_have_no_mass() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0]])
    assert token_logprobs(logits, torch.tensor([2])).exp().tolist() == pytest.approx([0.5])
    assert token_logprobs(logits, torch.tensor([1])).tolist() == [float("-inf")]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    logits = torch.randn(2, 5, 400, generator=torch.Generator().manual_seed(0)).mul(8).to(dtype)
    labels = torch.arange(10).view(2, 5)
    result = token_logprobs(logits, labels)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, token_logprobs(logits.double(), labels).float(), atol=1e-5, rtol=0)


def test_empty_targets() -> None:
    assert token_logprobs(torch.zeros(2, 3, 0, 5), torch.zeros(2, 3, 0, dtype=torch.long)).shape == (2, 3, 0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_small_integer_labels(dtype: torch.dtype) -> None:
    labels = torch.tensor([[2]], dtype=dtype)
    assert token_logprobs(torch.zeros(1, 1, 4), labels).item() == pytest.approx(-math.log(4))


@pytest.mark.parametrize("label", [7, 50_000, -1, -101])
def test_a_label_outside_the_vocabulary_is_named_with_its_position(label: int) -> None:
    labels = torch.tensor([[1, 2, -100], [3, label, 0]])
    expected = rf"labels must be -100 or in \[0, 7\), got {label} at position \(1, 1\)\. Check that the tokenizer"
    with pytest.raises(ShapeError, match=expected):
        check_labels(labels, 7)
    with pytest.raises(ShapeError, match=expected):
        token_logprobs(torch.zeros(2, 3, 7), labels)


def test_bad_shapes_and_dtypes_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"logits must have the shape of labels \(2, 3\) and a last axis V, got \(2, 4"
    ):
        token_logprobs(torch.zeros(2, 4, 7), torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ShapeError, match=r"labels must be integers, got torch.float32"):
        token_logprobs(torch.zeros(2, 3, 7), torch.zeros(2, 3))
