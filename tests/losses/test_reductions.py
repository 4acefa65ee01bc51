"""Reductions by name: against plain arithmetic, and under accumulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, ShapeError
from ragx.losses.reductions import REDUCTIONS, count_tokens, denominator, reduce

NLL, N_TOKENS = torch.tensor([2.0, 9.0, 4.0]), torch.tensor([1, 9, 2])


def test_each_name_against_numpy() -> None:
    nll, n_tokens = NLL.numpy(), N_TOKENS.numpy()
    expected = {
        "none": nll,
        "sum": np.sum(nll),
        "mean_sequence": np.mean(nll),
        "mean_token": np.sum(nll) / np.sum(n_tokens),
    }
    assert set(expected) == set(REDUCTIONS)
    for name, value in expected.items():
        assert reduce(NLL, N_TOKENS, reduction=name).numpy() == pytest.approx(value)


@pytest.mark.parametrize("reduction", ["mean_sequence", "mean_token"])
def test_the_batch_twice_has_the_same_mean(reduction: str) -> None:
    twice = reduce(NLL.repeat(2), N_TOKENS.repeat(2), reduction=reduction)
    assert twice.item() == pytest.approx(reduce(NLL, N_TOKENS, reduction=reduction).item())


def test_accumulation_weighs_by_what_is_averaged() -> None:
    # One token that costs 2 and nine that cost 9 together: 1.1 a token, where the mean of the two means is 1.5.
    parts = [(torch.tensor([2.0]), torch.tensor([1])), (torch.tensor([9.0]), torch.tensor([9]))]
    total = sum(denominator(n, reduction="mean_token") for _, n in parts)
    assert sum(reduce(nll, n, reduction="sum") / total for nll, n in parts).item() == pytest.approx(1.1)


def test_count_tokens_counts_the_real_labels_whatever_their_id() -> None:
    assert count_tokens(torch.tensor([[0, 1, 2], [5, -100, -100], [-100, -100, -100]])).tolist() == [3, 1, 0]


def test_a_batch_without_tokens_is_zero_and_trains_nothing() -> None:
    nll = torch.zeros(2, requires_grad=True)
    loss = reduce(nll, torch.tensor([0, 0]), reduction="mean_token")
    loss.backward()
    assert loss.item() == 0 and nll.grad is not None and torch.isfinite(nll.grad).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reduction must be one of none, sum, .*, got 'mean'\. Name what"):
        reduce(NLL, N_TOKENS, reduction="mean")
    with pytest.raises(ShapeError, match=r"nll and n_tokens must both have shape \(B,\) with B >= 1, got \(3,\) and"):
        reduce(NLL, N_TOKENS[:2], reduction="sum")
    with pytest.raises(ShapeError, match=r"with B >= 1, got \(0,\) and \(0,\)"):
        reduce(NLL[:0], N_TOKENS[:0], reduction="mean_sequence")
