"""Label smoothing from decoder states: equal to the form over logits in value and gradient, and without logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ragx.errors import ShapeError
from ragx.losses import label_smoothing, rag_sequence, rag_token
from ragx.losses.label_smoothing import linear_uniform_nll
from ragx.losses.posterior import rag_sequence_running_logposterior
from ragx.losses.prior import doc_logprobs
from ragx.losses.token_logprobs import linear_logprobs_and_normalizers
from tests.losses.conftest import World
from tests.losses.test_linear_token_logprobs import LargestTensor

SIZE, VOCAB = 3, 7
Head = tuple[Tensor, Tensor, Tensor, Tensor]  # decoder states (B, K, T, D), weight, bias, doc_scores
Weights = Callable[[Tensor, Tensor], Tensor]
KINDS: dict[str, tuple[Any, Any, Weights]] = {
    "rag_sequence": (rag_sequence.nll, label_smoothing.rag_sequence_nll, rag_sequence_running_logposterior),
    "rag_token": (
        rag_token.nll,
        label_smoothing.rag_token_nll,
        lambda tokens, prior: prior.unsqueeze(2).expand_as(tokens),
    ),
}


def head(world: World, dtype: torch.dtype = torch.float64) -> Head:
    generator = torch.Generator().manual_seed(7)
    shapes = ((*world.logits.shape[:3], SIZE), (VOCAB, SIZE), (VOCAB,))
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)
    states, weight, bias, scores = (tensor.requires_grad_() for tensor in (*drawn, world.doc_scores.clone()))
    return states, weight, bias, scores


def from_states(kind: str, parts: Head, labels: Tensor, *, epsilon: float, block_size: int = 3) -> Tensor:
    """The loss as training puts it together."""
    states, weight, bias, scores = parts
    nll, _, log_weights = KINDS[kind]
    flat = labels.unsqueeze(1).expand(states.shape[:3]).reshape(-1)
    both = linear_logprobs_and_normalizers(states.flatten(0, 2), weight, bias, flat, block_size=block_size)
    tokens, normalizers = (tensor.view(states.shape[:3]) for tensor in both)
    prior = doc_logprobs(scores)
    offsets = log_weights(tokens, prior) - normalizers
    uniform = linear_uniform_nll(states, weight, bias, labels, offsets, block_size=block_size)
    return (1 - epsilon) * nll(tokens, prior) + epsilon * uniform


def value_and_gradients(loss: Tensor, parts: Head) -> tuple[Tensor, ...]:
    weights = torch.linspace(0.5, 2, len(loss), dtype=loss.dtype)
    return (loss.detach(), *torch.autograd.grad((loss * weights).sum(), parts))


@pytest.mark.parametrize("block_size", [1, 3, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_form_over_logits(world: World, kind: str, block_size: int) -> None:
    parts = head(world)
    states, weight, bias, scores = parts
    result = from_states(kind, parts, world.labels, epsilon=0.3, block_size=block_size)
    plain = KINDS[kind][1](states @ weight.t() + bias, world.labels, doc_logprobs(scores), epsilon=0.3)
    torch.testing.assert_close(value_and_gradients(result, parts), value_and_gradients(plain, parts))


@pytest.mark.parametrize("kind", KINDS)
def test_float32_and_states_at_padding(world: World, kind: str) -> None:
    parts = head(world)
    expected = value_and_gradients(from_states(kind, parts, world.labels, epsilon=0.1), parts)
    single = head(world, torch.float32)
    with torch.no_grad():
        single[0].masked_fill_((world.labels == -100)[:, None, :, None], float("nan"))
    result = from_states(kind, single, world.labels, epsilon=0.1)
    assert result.dtype == torch.float64  # as the scores are; the rest is float32
    for mine, wanted in zip(value_and_gradients(result, single), expected, strict=True):
        torch.testing.assert_close(mine.double(), wanted, atol=2e-5, rtol=1e-4)


def test_one_passage_needs_no_second_look_at_the_vocabulary(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragx.losses.vocabulary_mixture.blocks", lambda *_: pytest.fail("looked again"))
    one = world._replace(logits=world.logits[:, :1], doc_scores=world.doc_scores[:, :1])
    parts = head(one)
    states, weight, bias, scores = parts
    result = from_states("rag_token", parts, world.labels, epsilon=0.2)
    logits = states @ weight.t() + bias
    plain = label_smoothing.rag_token_nll(logits, world.labels, doc_logprobs(scores), epsilon=0.2)
    torch.testing.assert_close(value_and_gradients(result, parts), value_and_gradients(plain, parts))


def test_a_token_that_no_passage_allows_is_infinitely_improbable_and_no_nan_reaches_the_others() -> None:
    states = torch.randn(1, 2, 1, SIZE, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.randn(VOCAB, SIZE, dtype=torch.float64), torch.zeros(VOCAB, dtype=torch.float64)
    bias[2] = float("-inf")
    uniform = linear_uniform_nll(states, weight, bias, torch.tensor([[1]]), torch.zeros(1, 2, 1), block_size=2)
    assert uniform.item() == float("inf")
    (gradient,) = torch.autograd.grad(uniform.sum(), states)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0


def test_no_logits_are_held() -> None:
    shape, vocab_size, block_size = (2, 3, 5), 1000, 20
    states, weight = torch.randn(*shape, 4, requires_grad=True), torch.randn(vocab_size, 4, requires_grad=True)
    labels = torch.randint(0, vocab_size, (2, 5))
    with LargestTensor() as largest:
        linear_uniform_nll(states, weight, None, labels, torch.zeros(shape), block_size=block_size).sum().backward()
    assert largest.numel == vocab_size * 4  # the weight itself; the logits have 30 rows of 1000


def test_bad_shapes_are_refused() -> None:
    states, weight, labels = torch.zeros(2, 3, 4, SIZE), torch.zeros(VOCAB, SIZE), torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(ShapeError, match=r"states, labels and offsets must have shapes .* got \(6, 4, 3\), \(2, 4\)"):
        linear_uniform_nll(states.flatten(0, 1), weight, None, labels, torch.zeros(2, 3, 4))
    with pytest.raises(ShapeError, match=r"got \(2, 3, 4, 3\), \(2, 4\) and \(2, 3\)\. Unfold"):
        linear_uniform_nll(states, weight, None, labels, torch.zeros(2, 3))
