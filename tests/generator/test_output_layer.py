"""The vocabulary in slices against log_softmax over all of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ragx.generator.output_layer import OutputLayer, Scratch, Sizes

VOCAB = 37
ALL_SIZES = [Sizes(5, 150), Sizes(16, 10**6), Sizes(1000, 10**6), Sizes(1000, 1)]


def layer(sizes: Sizes | None = None, *, dtype: torch.dtype = torch.float32) -> OutputLayer:
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(VOCAB, 8, generator=generator), torch.randn(VOCAB, generator=generator)
    return OutputLayer(weight.to(dtype), bias.to(dtype), scale=0.7, sizes=sizes)


def logprobs_of(output: OutputLayer, hidden: Tensor) -> Tensor:
    assert output.bias is not None
    return (hidden.float() * 0.7 @ output.weight.float().t() + output.bias.float()).log_softmax(-1)


def states(*shape: int) -> Tensor:
    return torch.randn(*shape, 8, generator=torch.Generator().manual_seed(1))


def mixed(output: OutputLayer, hidden: Tensor, log_weights: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
    """All parts together, copied before the next part overwrites them; every unit must come once and in order."""
    scratch, parts, at = Scratch(), [], 0
    for units, values, lse in output.mixtures(hidden, log_weights, logprobs, scratch):
        assert units.start == at and units.stop == at + len(values)
        at = units.stop
        parts.append((values.clone(), lse))
    values, lse = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return values, lse


@pytest.mark.parametrize("sizes", ALL_SIZES)
@pytest.mark.parametrize("n_rows", [1, 3])
def test_mixtures_are_the_logarithm_of_the_mixed_softmax(sizes: Sizes, n_rows: int) -> None:
    output, hidden = layer(sizes), states(5, 2, n_rows)
    log_weights = states(5)[:, :n_rows].log_softmax(1)
    logprobs = -states(5)[:, :2].abs()
    by_row = logprobs_of(output, hidden)
    expected = logprobs.unsqueeze(2) + (log_weights[:, None, :, None] + by_row).logsumexp(2)
    values, lse = mixed(output, hidden, log_weights, logprobs)
    torch.testing.assert_close(values, expected, atol=2e-6, rtol=2e-6)
    assert output.bias is not None
    logits = hidden * 0.7 @ output.weight.t() + output.bias
    torch.testing.assert_close(lse, logits.logsumexp(3), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("n_rows", [1, 3])
def test_impossible_tokens_and_sequences_and_masked_rows(n_rows: int) -> None:
    """A bias of -inf over a whole slice, a beam that is dead, a passage without weight: no nan, and no probability."""
    output, hidden = layer(Sizes(5, 10**6)), states(2, 2, n_rows)
    assert output.bias is not None
    output.bias[5:10] = -torch.inf
    log_weights = torch.full((2, n_rows), -torch.inf)
    log_weights[:, 0] = 0.0
    logprobs = torch.tensor([[0.0, -torch.inf], [-1.0, -2.0]])
    values, _ = mixed(output, hidden, log_weights, logprobs)
    expected = logprobs_of(output, hidden)[:, :, 0]
    possible = [v for v in range(VOCAB) if not 5 <= v < 10]
    torch.testing.assert_close(values[:, :, possible], (logprobs.unsqueeze(2) + expected)[:, :, possible])
    assert not values.isnan().any()
    assert values[0, 1].max() == -torch.inf
    assert values[:, :, 5:10].max() < -75  # ranked far below everything; `logits_at` says that they are impossible
    assert (output.logits_at(hidden.flatten(0, 1), torch.full((4,), 7)) == -torch.inf).all()


def test_what_a_float_cannot_hold_ranks_below_the_rest() -> None:
    """Probabilities of e^-200 and e^-300 beside 1: both far below what a float32 tells from 0, and none is -inf."""
    weight = torch.zeros(3, 1)
    weight[1], weight[2] = -200.0, -300.0
    output = OutputLayer(weight, None)
    hidden = torch.ones(1, 1, 2, 1)
    values, _ = mixed(output, hidden, torch.tensor([[0.5, 0.5]]).log(), torch.zeros(1, 1))
    assert values[0, 0, 0].item() == pytest.approx(0.0, abs=1e-6)
    assert (values[0, 0, 1:] < -80).all() and (values > -torch.inf).all()
    torch.testing.assert_close(output.logits_at(hidden[0], torch.tensor([2])), torch.tensor([[-300.0, -300.0]]))


@pytest.mark.parametrize("sizes", ALL_SIZES)
def test_the_normalizer_and_single_logits(sizes: Sizes) -> None:
    output, hidden = layer(sizes), states(11)
    expected = logprobs_of(output, hidden)
    tokens = torch.arange(11) * 3
    found = output.logits_at(hidden.unsqueeze(1), tokens).squeeze(1) - output.logsumexp(hidden)
    torch.testing.assert_close(found, expected[torch.arange(11), tokens], atol=2e-6, rtol=2e-6)
    assert output.logsumexp(hidden[:0]).shape == (0,)


def test_half_precision_weights_are_multiplied_in_float32_on_the_cpu() -> None:
    output, hidden = layer(Sizes(5, 10**6), dtype=torch.bfloat16), states(4).bfloat16()
    found = output.logits_at(hidden.unsqueeze(1), torch.tensor([3] * 4)).squeeze(1) - output.logsumexp(hidden)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, logprobs_of(output, hidden)[:, 3], atol=2e-2, rtol=0)


def test_a_bias_of_zeros_is_left_out() -> None:
    assert OutputLayer(torch.ones(3, 2), torch.zeros(3)).bias is None
