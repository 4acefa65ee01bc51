"""The two likelihoods: by hand, by enumeration, by properties, by their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ragx.errors import ShapeError
from ragx.losses import rag_sequence, rag_token
from ragx.losses.posterior import rag_sequence_posterior, rag_token_posterior
from ragx.losses.prior import doc_logprobs
from ragx.losses.token_logprobs import token_logprobs

Likelihood = Callable[[Tensor, Tensor], Tensor]
BOTH = pytest.mark.parametrize("marginalize", [rag_sequence.marginalize, rag_token.marginalize], ids=["seq", "tok"])


def logs(values: list) -> Tensor:
    """Natural logarithms of one query's probabilities, with a batch axis."""
    return torch.tensor(values, dtype=torch.float64).log().unsqueeze(0)


# ------------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("prior", "tokens", "sequence", "token"),
    [
        ([0.6, 0.4], [[0.9, 0.1], [0.2, 0.8]], 0.6 * 0.9 * 0.1 + 0.4 * 0.2 * 0.8, (0.54 + 0.08) * (0.06 + 0.32)),
        ([0.6, 0.4], [[0.9], [0.2]], 0.62, 0.62),
        ([0.5, 0.35, 0.15], [[0.8], [0.7], [0.2]], 0.675, 0.675),
        ([0.45, 0.40, 0.15], [[0.90], [0.85], [0.80]], 0.865, 0.865),
        ([0.25, 0.75], [[0.1, 0.2], [0.5, 0.4]], 0.25 * 0.02 + 0.75 * 0.2, 0.4 * 0.35),
    ],
)
def test_hand_values(prior: list, tokens: list, sequence: float, token: float) -> None:
    assert rag_sequence.marginalize(logs(tokens), logs(prior)).exp().item() == pytest.approx(sequence, abs=1e-12)
    assert rag_token.marginalize(logs(tokens), logs(prior)).exp().item() == pytest.approx(token, abs=1e-12)


def test_hand_values_of_the_losses() -> None:
    tokens, prior = logs([[0.1, 0.2], [0.5, 0.4]]), logs([0.25, 0.75])
    assert rag_sequence.nll(tokens, prior).item() == pytest.approx(1.8643, abs=5e-5)
    assert rag_token.nll(tokens, prior).item() == pytest.approx(1.9661, abs=5e-5)


def test_hand_value_per_token() -> None:
    per_token = rag_token.per_token(logs([[0.9, 0.1], [0.2, 0.8]]), logs([0.6, 0.4]))
    assert per_token.exp()[0].tolist() == pytest.approx([0.62, 0.38])


# ------------------------------------------------------------------------------------- by enumeration, V=4, T=3


def all_strings(n_docs: int, seed: int) -> tuple[Tensor, Tensor]:
    """A lookup-table language model per passage, prefix by prefix; token log-probabilities of all 64 strings."""
    generator = torch.Generator().manual_seed(seed)
    tables = [
        torch.randn(n_docs, *[4] * depth, generator=generator, dtype=torch.float64).mul(2).log_softmax(-1)
        for depth in (1, 2, 3)
    ]
    rows = [
        [[float(table[(z, *string[: depth + 1])]) for depth, table in enumerate(tables)] for z in range(n_docs)]
        for string in itertools.product(range(4), repeat=3)
    ]
    scores = torch.randn(n_docs, generator=generator, dtype=torch.float64).mul(2)
    return torch.tensor(rows, dtype=torch.float64), doc_logprobs(scores.expand(64, n_docs))


@BOTH
@pytest.mark.parametrize("n_docs", [1, 2, 3, 5])
def test_all_answers_sum_to_one(marginalize: Likelihood, n_docs: int) -> None:
    for seed in range(5):
        assert marginalize(*all_strings(n_docs, seed)).exp().sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("n_docs", [2, 3, 5])
def test_posterior_averaged_over_all_answers_is_the_prior(n_docs: int) -> None:
    tokens, prior = all_strings(n_docs, seed=0)
    likelihood = rag_sequence.marginalize(tokens, prior).exp()
    averaged = (likelihood.unsqueeze(1) * rag_sequence_posterior(tokens, prior)).sum(0)
    torch.testing.assert_close(averaged, prior[0].exp(), atol=1e-12, rtol=0)


# --------------------------------------------------------------------------------------------- by properties


def brute_force(world, token_wise: bool) -> list[float]:
    """p(y|x) in plain Python floats, straight from the two formulas of the paper."""
    prior, tokens = world.doc_logprobs.exp().tolist(), world.token_logprobs.exp().tolist()
    lengths = (world.labels != -100).sum(1).tolist()
    result = []
    for b, length in enumerate(lengths):
        pairs = list(zip(prior[b], tokens[b], strict=True))
        if token_wise:
            result.append(math.prod(math.fsum(p * row[i] for p, row in pairs) for i in range(length)))
        else:
            result.append(math.fsum(p * math.prod(row[:length]) for p, row in pairs))
    return result


def test_equals_brute_force(world) -> None:
    sequence = rag_sequence.marginalize(world.token_logprobs, world.doc_logprobs).exp().tolist()
    token = rag_token.marginalize(world.token_logprobs, world.doc_logprobs).exp().tolist()
    assert sequence == pytest.approx(brute_force(world, token_wise=False), rel=1e-10)
    assert token == pytest.approx(brute_force(world, token_wise=True), rel=1e-10)


@BOTH
def test_one_passage_is_cross_entropy(world, marginalize: Likelihood) -> None:
    tokens = world.token_logprobs[:, :1]
    expected = F.cross_entropy(world.logits[:, 0].transpose(1, 2), world.labels, reduction="none").sum(1)
    torch.testing.assert_close(-marginalize(tokens, tokens.new_zeros(3, 1)), expected)


def test_one_token_makes_both_models_equal(world) -> None:
    tokens, prior = world.token_logprobs[:, :, :1], world.doc_logprobs
    torch.testing.assert_close(rag_sequence.marginalize(tokens, prior), rag_token.marginalize(tokens, prior))


@BOTH
def test_permuting_the_passages_changes_nothing(world, marginalize: Likelihood) -> None:
    order = torch.randperm(world.doc_scores.shape[1], generator=torch.Generator().manual_seed(1))
    permuted = marginalize(world.token_logprobs[:, order], doc_logprobs(world.doc_scores[:, order]))
    torch.testing.assert_close(permuted, marginalize(world.token_logprobs, world.doc_logprobs))


@BOTH
def test_a_constant_on_the_scores_changes_nothing(world, marginalize: Likelihood) -> None:
    shifted = marginalize(world.token_logprobs, doc_logprobs(world.doc_scores + 17.0))
    torch.testing.assert_close(shifted, marginalize(world.token_logprobs, world.doc_logprobs))


@BOTH
@pytest.mark.parametrize("columns", [1, 10])
def test_more_padding_changes_no_loss_and_no_gradient(world, marginalize: Likelihood, columns: int) -> None:
    losses, gradients = [], []
    for extra in (0, columns):
        scores = world.doc_scores.clone().requires_grad_()
        logits = F.pad(world.logits, (0, 0, 0, extra), value=float("nan")).requires_grad_()
        labels = F.pad(world.labels, (0, extra), value=-100).unsqueeze(1).expand(logits.shape[:3])
        loss = -marginalize(token_logprobs(logits, labels), doc_logprobs(scores))
        loss.sum().backward()
        losses.append(loss.detach())
        assert scores.grad is not None and logits.grad is not None
        gradients.append((scores.grad, logits.grad[:, :, : world.logits.shape[2]]))
        assert logits.grad[:, :, world.logits.shape[2] :].eq(0).all()
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(gradients[1], gradients[0])


@BOTH
def test_a_masked_passage_is_as_good_as_absent(world, marginalize: Likelihood) -> None:
    extra = torch.full_like(world.doc_scores[:, :1], 50.0)
    scores = torch.cat([world.doc_scores, extra], 1)
    tokens = torch.cat([world.token_logprobs, torch.full_like(world.token_logprobs[:, :1], -1.0)], 1)
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[:, -1] = False
    padded = (world.labels == -100).unsqueeze(1)
    masked = marginalize(tokens.masked_fill(padded, 0.0), doc_logprobs(scores, mask=mask))
    torch.testing.assert_close(masked, marginalize(world.token_logprobs, world.doc_logprobs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rag_token_is_exactly_zero_at_padding(dtype: torch.dtype) -> None:
    prior = doc_logprobs(torch.randn(8, 5, dtype=dtype, generator=torch.Generator().manual_seed(0)) * 4)
    assert not prior.logsumexp(1).eq(0).all()  # the rounding that padding must not pick up
    assert rag_token.marginalize(torch.zeros(8, 5, 100, dtype=dtype), prior).eq(0).all()


@BOTH
@pytest.mark.parametrize("length", [0, 4])
def test_empty_and_fully_padded_targets_cost_nothing(marginalize: Likelihood, length: int) -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    loss = -marginalize(torch.zeros(1, 3, length), doc_logprobs(scores))
    loss.sum().backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert scores.grad is not None and scores.grad.abs().max() < 1e-6


@BOTH
def test_long_answers_do_not_underflow(marginalize: Likelihood) -> None:
    # exp(-20000) is 0 in any dtype.
    logprob = marginalize(torch.full((1, 2, 1000), -20.0), doc_logprobs(torch.zeros(1, 2)))
    assert logprob.item() == pytest.approx(-20_000)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(marginalize: Likelihood, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = -torch.rand(2, 3, 30, generator=generator).to(dtype)
    prior = torch.randn(2, 3, generator=generator).log_softmax(1).to(dtype)
    result = marginalize(tokens, prior)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, marginalize(tokens.double(), prior.double()).float(), atol=1e-5, rtol=0)


# --------------------------------------------------------------------------------------------- by gradients


def test_gradient_is_prior_minus_posterior_rag_sequence(world) -> None:
    scores = world.doc_scores.clone().requires_grad_()
    rag_sequence.nll(world.token_logprobs, doc_logprobs(scores)).sum().backward()
    expected = world.doc_logprobs.exp() - rag_sequence_posterior(world.token_logprobs, world.doc_logprobs)
    torch.testing.assert_close(scores.grad, expected, atol=1e-12, rtol=1e-9)


def test_gradient_is_prior_minus_posterior_summed_over_tokens_rag_token(world) -> None:
    scores = world.doc_scores.clone().requires_grad_()
    rag_token.nll(world.token_logprobs, doc_logprobs(scores)).sum().backward()
    posterior = rag_token_posterior(world.token_logprobs, world.doc_logprobs)
    difference = world.doc_logprobs.exp().unsqueeze(2) - posterior
    real = (world.labels != -100).unsqueeze(1)
    torch.testing.assert_close(scores.grad, (difference * real).sum(2), atol=1e-12, rtol=1e-9)


@BOTH
def test_gradient_of_the_token_logprobs_is_the_posterior(world, marginalize: Likelihood) -> None:
    tokens = world.token_logprobs.clone().requires_grad_()
    marginalize(tokens, world.doc_logprobs).sum().backward()
    if marginalize is rag_sequence.marginalize:
        posterior = rag_sequence_posterior(world.token_logprobs, world.doc_logprobs).unsqueeze(2)
    else:
        posterior = rag_token_posterior(world.token_logprobs, world.doc_logprobs)
    real = (world.labels != -100).unsqueeze(1)
    assert tokens.grad is not None
    torch.testing.assert_close(tokens.grad * real, posterior * real)


@BOTH
def test_finite_differences(world, marginalize: Likelihood) -> None:
    def loss(scores: Tensor, logits: Tensor) -> Tensor:
        return -marginalize(token_logprobs(logits, world.labels_per_passage), doc_logprobs(scores))

    inputs = (world.doc_scores.clone().requires_grad_(), world.logits.clone().requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


# ------------------------------------------------------------------------------------------------- bad input


@BOTH
def test_shapes_that_disagree_are_refused(marginalize: Likelihood) -> None:
    with pytest.raises(ShapeError, match=r"must agree on \(batch, n_docs\), got \(2, 3, 4\) and \(2, 4\)"):
        marginalize(torch.zeros(2, 3, 4), torch.zeros(2, 4))
    with pytest.raises(ShapeError, match=r"token_logprobs must have shape \(B, K, T\), got \(6, 4\)"):
        marginalize(torch.zeros(6, 4), torch.zeros(2, 3))
    with pytest.raises(ShapeError, match=r"doc_logprobs must have shape \(B, K\) with K >= 1, got \(2, 0\)"):
        marginalize(torch.zeros(2, 0, 4), torch.zeros(2, 0))
    with pytest.raises(ShapeError, match=r"token_logprobs must be floating point, got torch.int64"):
        marginalize(torch.zeros(2, 3, 4, dtype=torch.long), torch.zeros(2, 3))
