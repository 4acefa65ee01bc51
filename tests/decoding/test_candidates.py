"""The choice among a long row of values, as a full stable sort would make it."""

from __future__ import annotations

import pytest
import torch

from ragx.decoding.candidates import BLOCK, top_candidates


@pytest.mark.parametrize("n_columns", [30, 9 * BLOCK, 40 * BLOCK + 77])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_head_of_a_stable_sort(n_columns: int, seed: int) -> None:
    """Nine different values, so that ties are everywhere, zeros of both signs among them; a fifth is -inf."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-4, 5, (40, n_columns), generator=generator).float()
    scores[:, ::5] = -torch.inf
    scores[:, 1::7] *= -1.0
    scores[0] = -torch.inf
    values, columns = top_candidates(scores, 7)
    expected, order = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected[:, :7])
    assert torch.equal(columns, order[:, :7])


def test_distinct_values_of_any_size_are_ordered() -> None:
    scores = torch.cat([-torch.logspace(-40, 38, 600), torch.logspace(-40, 38, 600), torch.tensor([torch.inf])])
    scores = scores[torch.randperm(len(scores), generator=torch.Generator().manual_seed(0))].unsqueeze(0)
    values, columns = top_candidates(scores, 5)
    assert torch.equal(values, scores.sort(dim=1, descending=True).values[:, :5])
    assert torch.equal(scores.gather(1, columns), values)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nan_is_never_lost(sign: float) -> None:
    """Of either sign bit; whoever asked for the best must see that there is none."""
    scores = torch.zeros(2, 20 * BLOCK)
    scores[1, 17 * BLOCK + 3] = sign * torch.tensor(torch.nan)
    values, _ = top_candidates(scores, 4)
    assert values.isnan().sum(1).tolist() == [0, 1]
