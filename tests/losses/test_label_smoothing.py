"""Label smoothing: the plain loss at 0, cross-entropy's with one passage, padding and prior left out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ragx.errors import ConfigError, ShapeError
from ragx.losses import label_smoothing, rag_sequence, rag_token
from ragx.losses.prior import doc_logprobs

BOTH = pytest.mark.parametrize(
    ("smoothed", "nll"),
    [(label_smoothing.rag_sequence_nll, rag_sequence.nll), (label_smoothing.rag_token_nll, rag_token.nll)],
    ids=["seq", "tok"],
)


def test_hand_value_of_one_token() -> None:
    # Prior .5/.5 over (.9, .1) and (.3, .7): mixture (.6, .4), target 0, e = .2.
    logits = torch.tensor([[[[0.9, 0.1]], [[0.3, 0.7]]]]).log()
    prior, labels = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0]])
    expected = -0.8 * math.log(0.6) - 0.2 * (math.log(0.6) + math.log(0.4)) / 2
    for smoothed in (label_smoothing.rag_sequence_nll, label_smoothing.rag_token_nll):
        assert smoothed(logits, labels, prior, epsilon=0.2).item() == pytest.approx(expected)


def test_hand_value_of_the_second_token_of_rag_sequence() -> None:
    # After token 0 the prior .5/.5 has become .9/.12 ~ .75/.25, so the mixture over token 1 is (.55, .45).
    logits = torch.tensor([[[[0.9, 0.1], [0.6, 0.4]], [[0.3, 0.7], [0.4, 0.6]]]]).log()
    labels, prior = torch.tensor([[0, 0]]), torch.tensor([[0.5, 0.5]]).log()
    first = -0.8 * math.log(0.6) - 0.1 * (math.log(0.6) + math.log(0.4))
    second = -0.8 * math.log(0.55) - 0.1 * (math.log(0.55) + math.log(0.45))
    value = label_smoothing.rag_sequence_nll(logits, labels, prior, epsilon=0.2)
    assert value.item() == pytest.approx(first + second)


@BOTH
def test_zero_is_the_plain_loss_with_its_gradients(world, smoothed, nll) -> None:
    gradients = []
    for loss in (
        lambda logits, scores: smoothed(logits, world.labels, doc_logprobs(scores), epsilon=0.0),
        lambda logits, scores: nll(world._replace(logits=logits).token_logprobs, doc_logprobs(scores)),
    ):
        logits, scores = world.logits.clone().requires_grad_(), world.doc_scores.clone().requires_grad_()
        value = loss(logits, scores)
        value.sum().backward()
        gradients.append((value.detach(), logits.grad, scores.grad))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-7)


@BOTH
def test_one_passage_is_smoothed_cross_entropy(world, smoothed, nll) -> None:
    logits = world.logits[:, :1]
    value = smoothed(logits, world.labels, logits.new_zeros(3, 1), epsilon=0.1)
    flat = (logits[:, 0].transpose(1, 2), world.labels)
    expected = F.cross_entropy(*flat, reduction="none", label_smoothing=0.1).sum(1)
    torch.testing.assert_close(value, expected)


@BOTH
def test_uniform_outputs_have_the_plain_loss_for_any_prior(world, smoothed, nll) -> None:
    value = smoothed(torch.zeros_like(world.logits), world.labels, world.doc_logprobs, epsilon=0.1)
    expected = (world.labels != -100).sum(1) * math.log(7)
    torch.testing.assert_close(value, expected.double())


@BOTH
def test_uniform_outputs_do_not_pull_on_the_retriever(world, smoothed, nll) -> None:
    scores = world.doc_scores.clone().requires_grad_()
    smoothed(torch.zeros_like(world.logits), world.labels, doc_logprobs(scores), epsilon=0.5).sum().backward()
    assert scores.grad is not None and scores.grad.abs().max() < 1e-12


def test_gradient_of_the_scores_is_the_stated_formula(world) -> None:
    scores = world.doc_scores.clone().requires_grad_()
    label_smoothing.rag_token_nll(world.logits, world.labels, doc_logprobs(scores), epsilon=0.3).sum().backward()
    prior = world.doc_logprobs.exp()[:, :, None, None]
    posterior = (world.doc_logprobs[:, :, None, None] + world.logits.log_softmax(3)).softmax(1)  # p(z|x,v), (B,K,T,V)
    index = world.labels.clamp(min=0)[:, None, :, None].expand(*posterior.shape[:3], 1)
    target = (prior - posterior.gather(3, index)).squeeze(3)
    uniform = (prior - posterior).mean(3)
    real = (world.labels != -100).unsqueeze(1)
    torch.testing.assert_close(scores.grad, ((0.7 * target + 0.3 * uniform) * real).sum(2), atol=1e-10, rtol=1e-7)


@BOTH
def test_more_padding_changes_nothing(world, smoothed, nll) -> None:
    logits = F.pad(world.logits, (0, 0, 0, 3), value=float("nan")).requires_grad_()
    labels = F.pad(world.labels, (0, 3), value=-100)
    value = smoothed(logits, labels, world.doc_logprobs, epsilon=0.1)
    value.sum().backward()
    torch.testing.assert_close(value.detach(), smoothed(world.logits, world.labels, world.doc_logprobs, epsilon=0.1))
    assert logits.grad is not None and torch.isfinite(logits.grad).all()


@BOTH
def test_finite_differences(smoothed, nll) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    scores = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 3, 1], [2, -100, -100]])

    def loss(logits: Tensor, scores: Tensor) -> Tensor:
        return smoothed(logits, labels, doc_logprobs(scores), epsilon=0.2)

    assert torch.autograd.gradcheck(loss, (logits, scores))


@BOTH
def test_half_precision_is_computed_in_float32(world, smoothed, nll) -> None:
    logits = world.logits.bfloat16()
    value = smoothed(logits, world.labels, world.doc_logprobs.float(), epsilon=0.1)
    assert value.dtype == torch.float32
    expected = smoothed(logits.double(), world.labels, world.doc_logprobs, epsilon=0.1)
    torch.testing.assert_close(value, expected.float(), atol=1e-4, rtol=1e-5)


@BOTH
def test_bad_input_is_refused(smoothed, nll) -> None:
    logits, labels, prior = torch.zeros(2, 3, 4, 5), torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 3)
    with pytest.raises(ConfigError, match=r"epsilon must be in \[0, 1\), got 1\.0\. Use 0"):
        smoothed(logits, labels, prior, epsilon=1.0)
    with pytest.raises(ShapeError, match=r"must have shapes \(B, K, T, V\), \(B, T\) and \(B, K\), got \(6, 4, 5\)"):
        smoothed(logits.flatten(0, 1), labels, prior, epsilon=0.1)
    with pytest.raises(ShapeError, match=r"labels must be -100 or in \[0, 5\), got 5 at position"):
        smoothed(logits, labels + 5, prior, epsilon=0.1)
