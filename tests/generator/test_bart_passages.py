"""Passages read from encoder states, then from keys and values: the same numbers, and keys only where they pay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ragx.generator.bart_layers import attention, split_heads
from ragx.generator.bart_passages import Passages, passage_keys, passage_mask
from tests.generator.tiny_models import tiny_model

N_ROWS, LENGTH, WIDTH, HEAD_DIM = 5, 7, 16, 8


class Twice(nn.Linear):
    """A projection that is no plain `nn.Linear`: what it computes is not what its weight says."""

    def forward(self, states: Tensor) -> Tensor:
        return 2 * super().forward(states)


@pytest.fixture(params=["bart", "mbart"])
def decoder(request: pytest.FixtureRequest) -> Any:
    """Two layers of two heads; random biases, for those of a new model are zero."""
    found = tiny_model(request.param, 40).get_decoder()
    for name, parameter in found.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return found


def states(n_rows: int, n_tokens: int, seed: int) -> Tensor:
    return torch.randn(n_rows, n_tokens, WIDTH, generator=torch.Generator().manual_seed(seed))


def lengths_mask(lengths: Sequence[int]) -> Tensor:
    return (torch.arange(LENGTH) < torch.tensor(lengths).unsqueeze(1)).long()


def expected(module: Any, hidden: Tensor, mask: Tensor, queries: Tensor) -> Tensor:
    """By the formula: keys and values of all tokens, those of padding left out."""
    query, seen = split_heads(module.q_proj(queries), module.num_heads), mask.bool()[:, None, None, :]
    return attention(query, *passage_keys(module, hidden), seen)


@torch.no_grad()
@pytest.mark.parametrize("lengths", [[7] * 5, [3, 7, 1, 5, 4], [2, 3, 1, 2, 3]])
def test_both_ways_give_what_the_formula_gives_and_the_keys_come_after_as_many_queries_as_a_head_is_wide(
    decoder: Any, lengths: list[int]
) -> None:
    """One query, three, four: eight, a head's width. The ninth is worth keys; nobody then holds the states."""
    hidden, mask = states(N_ROWS, LENGTH, 0), lengths_mask(lengths)
    passages = Passages(decoder, hidden, mask)
    for step, (width, with_keys) in enumerate([(1, False), (3, False), (4, False), (1, True), (2, True)]):
        passages.expect(width)
        assert bool(passages._keys) == with_keys and bool(len(passages._hidden)) != with_keys
        for place, layer in enumerate(decoder.layers):
            queries, module = states(N_ROWS, width, 10 + step), layer.encoder_attn
            found = passages.read(place, module, queries)
            torch.testing.assert_close(found, expected(module, hidden, mask, queries), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("queries_before", [1, 9])
def test_passages_that_leave_take_nothing_along(decoder: Any, queries_before: int) -> None:
    """Before there are keys and after: the rows that stay are read as before, and keys are computed for them alone."""
    hidden, mask = states(N_ROWS, LENGTH, 0), lengths_mask([3, 7, 1, 5, 4])
    passages, rows = Passages(decoder, hidden, mask), torch.tensor([1, 2, 4])
    passages.expect(queries_before)
    passages.keep(rows)
    module = decoder.layers[1].encoder_attn
    for width in (2, HEAD_DIM):
        passages.expect(width)
        queries = states(3, width, 3)
        found = passages.read(1, module, queries)
        torch.testing.assert_close(found, expected(module, hidden[rows], mask[rows], queries), atol=1e-5, rtol=1e-5)
    assert [len(keys) for keys, _ in passages._keys] == [3, 3]


@torch.no_grad()
def test_a_projection_that_was_replaced_is_called(decoder: Any) -> None:
    hidden, mask = states(N_ROWS, LENGTH, 0), torch.ones(N_ROWS, LENGTH, dtype=torch.long)
    for layer in decoder.layers:
        twice, plain = Twice(WIDTH, WIDTH), layer.encoder_attn.v_proj
        twice.load_state_dict(plain.state_dict())
        layer.encoder_attn.v_proj = twice
    passages, queries = Passages(decoder, hidden, mask), states(N_ROWS, 1, 1)
    passages.expect(1)
    module = decoder.layers[0].encoder_attn
    torch.testing.assert_close(passages.read(0, module, queries), expected(module, hidden, mask, queries))


def test_only_padding_behind_the_longest_passage_is_cut_off() -> None:
    """Rows of 2 and 0 tokens, the first behind a gap: nothing before its last token goes; the empty row sees all."""
    mask = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    found = passage_mask(mask)
    assert found is not None
    assert found[:, 0, 0].tolist() == [[False, True, True, False, False], [True] * 5]
    shorter = passage_mask(mask[:1])
    assert shorter is not None and shorter[:, 0, 0].tolist() == [[False, True, True]]
    assert passage_mask(torch.ones(2, 3)) is None
