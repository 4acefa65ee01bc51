"""Posteriors and leave-one-out gains: worked values, identities, and removing a passage for real."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ragx.errors import ShapeError
from ragx.losses import posterior, rag_sequence, rag_token
from ragx.losses.prior import doc_logprobs


def logs(values: list) -> Tensor:
    """Natural logarithms of one query's probabilities, with a batch axis."""
    return torch.tensor(values, dtype=torch.float64).log().unsqueeze(0)


TOKENS, PRIOR = logs([[0.9, 0.1], [0.2, 0.8]]), logs([0.6, 0.4])


def test_hand_values_of_the_posteriors() -> None:
    assert posterior.rag_sequence_posterior(TOKENS, PRIOR)[0].tolist() == pytest.approx([0.054 / 0.118, 0.064 / 0.118])
    per_token = posterior.rag_token_posterior(TOKENS, PRIOR)[0]
    assert per_token[:, 0].tolist() == pytest.approx([0.54 / 0.62, 0.08 / 0.62])
    assert per_token[:, 1].tolist() == pytest.approx([0.06 / 0.38, 0.32 / 0.38])
    # The mean over tokens names another top passage than the span's posterior does.
    assert per_token.mean(1).tolist() == pytest.approx([0.514431, 0.485569], abs=1e-6)


def test_hand_values_of_three_passages() -> None:
    result = posterior.rag_sequence_posterior(logs([[0.8], [0.7], [0.2]]), logs([0.5, 0.35, 0.15]))
    assert result[0].tolist() == pytest.approx([0.592593, 0.362963, 0.044444], abs=1e-6)


def test_hand_values_of_the_gains() -> None:
    sequence = posterior.rag_sequence_gain(TOKENS, PRIOR)[0].tolist()
    assert sequence == pytest.approx([-0.304489, 0.270875], abs=1e-6)
    assert posterior.rag_token_gain(TOKENS, PRIOR)[0].tolist() == pytest.approx([0.386962, 0.962326], abs=1e-6)


def test_hand_value_where_the_likeliest_passage_hurts() -> None:
    # Prior .9/.1, likelihood .1/.8: passage 1 keeps the larger posterior, and yet the answer is likelier without it.
    tokens, prior = logs([[0.1], [0.8]]), logs([0.9, 0.1])
    assert posterior.rag_sequence_posterior(tokens, prior)[0].tolist() == pytest.approx([9 / 17, 8 / 17])
    assert posterior.rag_sequence_gain(tokens, prior)[0].tolist() == pytest.approx([-1.549, 0.531], abs=1e-3)


def test_span_posterior_of_rag_token_is_the_sequence_posterior_of_the_span(world) -> None:
    span = world.token_logprobs[:, :, 1:]
    per_token = posterior.rag_token_posterior(span, world.doc_logprobs)
    ratio = per_token.log() - world.doc_logprobs.unsqueeze(2)
    expected = (world.doc_logprobs + ratio.sum(2)).softmax(1)  # prior times the product of posterior / prior
    torch.testing.assert_close(posterior.rag_sequence_posterior(span, world.doc_logprobs), expected)


def test_posteriors_sum_to_one_and_stay_the_prior_at_padding(world) -> None:
    sequence = posterior.rag_sequence_posterior(world.token_logprobs, world.doc_logprobs)
    token = posterior.rag_token_posterior(world.token_logprobs, world.doc_logprobs)
    torch.testing.assert_close(sequence.sum(1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(token.sum(1), torch.ones_like(token[:, 0]))
    padded = (world.labels == -100).unsqueeze(1).expand_as(token)
    prior = world.doc_logprobs.exp().unsqueeze(2).expand_as(token)
    torch.testing.assert_close(token[padded], prior[padded])


def test_one_token_makes_both_posteriors_equal(world) -> None:
    tokens = world.token_logprobs[:, :, :1]
    torch.testing.assert_close(
        posterior.rag_token_posterior(tokens, world.doc_logprobs).squeeze(2),
        posterior.rag_sequence_posterior(tokens, world.doc_logprobs),
    )


def test_running_posterior_starts_at_the_prior_and_rebuilds_the_likelihood(world) -> None:
    running = posterior.rag_sequence_running_logposterior(world.token_logprobs, world.doc_logprobs)
    torch.testing.assert_close(running[:, :, 0], world.doc_logprobs)
    per_token = (running + world.token_logprobs).logsumexp(1)
    torch.testing.assert_close(
        per_token.sum(1), rag_sequence.marginalize(world.token_logprobs, world.doc_logprobs), atol=1e-10, rtol=1e-7
    )


def test_running_posterior_of_an_empty_target_is_empty() -> None:
    assert posterior.rag_sequence_running_logposterior(torch.zeros(2, 3, 0), torch.zeros(2, 3)).shape == (2, 3, 0)


GAINS = pytest.mark.parametrize(
    ("gain", "marginalize"),
    [
        (posterior.rag_sequence_gain, rag_sequence.marginalize),
        (posterior.rag_token_gain, rag_token.marginalize),
    ],
    ids=["seq", "tok"],
)
Function = Callable[[Tensor, Tensor], Tensor]


@GAINS
def test_gain_equals_removing_the_passage(world, gain: Function, marginalize: Function) -> None:
    n_docs = world.doc_scores.shape[1]
    result = gain(world.token_logprobs, world.doc_logprobs)
    for z in range(n_docs if n_docs > 1 else 0):
        rest = [other for other in range(n_docs) if other != z]
        without = marginalize(world.token_logprobs[:, rest], doc_logprobs(world.doc_scores[:, rest]))
        expected = marginalize(world.token_logprobs, world.doc_logprobs) - without
        torch.testing.assert_close(result[:, z], expected, atol=1e-10, rtol=1e-7)


def test_gain_equals_the_closed_form_and_has_the_sign_of_posterior_minus_prior(world) -> None:
    prior = world.doc_logprobs.exp()
    sequence = posterior.rag_sequence_posterior(world.token_logprobs, world.doc_logprobs)
    gain = posterior.rag_sequence_gain(world.token_logprobs, world.doc_logprobs)
    if world.doc_scores.shape[1] == 1:
        assert gain.isnan().all()
        return
    torch.testing.assert_close(gain, ((1 - prior) / (1 - sequence)).log(), atol=1e-9, rtol=1e-6)
    clear = (sequence - prior).abs() > 1e-9
    assert (gain > 0)[clear].equal((sequence > prior)[clear])
    token = posterior.rag_token_posterior(world.token_logprobs, world.doc_logprobs)
    expected = ((1 - prior.unsqueeze(2)) / (1 - token)).log().sum(2)
    torch.testing.assert_close(
        posterior.rag_token_gain(world.token_logprobs, world.doc_logprobs), expected, atol=1e-9, rtol=1e-6
    )


@GAINS
def test_gain_keeps_its_digits_where_the_posterior_rounds_to_one(gain: Function, marginalize: Function) -> None:
    # In float32 the posterior of passage 0 is exactly 1, and log((1 - prior) / (1 - posterior)) would be infinite.
    tokens, prior = torch.tensor([[[-1.0], [-41.0]]]), torch.tensor([[0.5, 0.5]]).log()
    assert posterior.rag_sequence_posterior(tokens, prior)[0, 0] == 1
    assert gain(tokens, prior)[0, 0].item() == pytest.approx(-1.0 - 0.693147 + 41.0, abs=1e-4)


@GAINS
def test_gain_is_undefined_with_one_passage_and_zero_for_a_masked_one(gain: Function, marginalize: Function) -> None:
    assert gain(torch.tensor([[[-1.0]]]), torch.zeros(1, 1)).isnan().all()
    mask = torch.tensor([[True, True, False]])
    prior = doc_logprobs(torch.tensor([[1.0, 2.0, 3.0]]), mask=mask)
    result = gain(torch.tensor([[[-1.0, -2.0], [-3.0, -0.5], [-1.0, -1.0]]]), prior)
    assert torch.isfinite(result).all() and result[0, 2].abs() < 1e-6 and result[0, 0].abs() > 0.1


def test_shapes_that_disagree_are_refused() -> None:
    for function in (
        posterior.rag_sequence_posterior,
        posterior.rag_token_posterior,
        posterior.rag_sequence_running_logposterior,
        posterior.rag_sequence_gain,
        posterior.rag_token_gain,
    ):
        with pytest.raises(ShapeError, match=r"must agree on \(batch, n_docs\), got \(2, 3, 4\) and \(3, 2\)"):
            function(torch.zeros(2, 3, 4), torch.zeros(3, 2))
