"""Attribution by hand (CITATIONS D01-D04, D31) and by definition: leave a passage out and score again."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ragx.citations.attribution import EmissionRule, attribute, emit
from ragx.errors import ShapeError
from ragx.losses import rag_sequence, rag_token

PRIOR = torch.tensor([0.6, 0.4]).double().log()
ROWS = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).double().log()


def approx(*values: float) -> object:
    return pytest.approx(values, abs=1e-6)


def test_d01_sequence() -> None:
    result = attribute(ROWS, PRIOR, kind="rag_sequence")
    assert result.doc_posterior == approx(0.457627, 0.542373)
    assert result.gain == approx(-0.304489, 0.270875)
    assert result.cited == (1,)
    assert result.token_posterior == ()


def test_d01_token() -> None:
    result = attribute(ROWS, PRIOR, kind="rag_token")
    assert result.token_posterior[0] == approx(0.870968, 0.129032)
    assert result.token_posterior[1] == approx(0.157895, 0.842105)
    assert result.doc_posterior == approx(0.457627, 0.542373)
    assert result.gain == approx(0.386962, 0.962326)
    assert result.cited == (1, 0)


def test_d01_token_with_one_claim_per_token() -> None:
    assert attribute(ROWS, PRIOR, kind="rag_token", content=[True, False]).cited == (0,)
    assert attribute(ROWS, PRIOR, kind="rag_token", content=[False, True]).cited == (1,)


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
def test_d02_one_token(kind: str) -> None:
    result = attribute(ROWS[:, :1], PRIOR, kind=kind)
    assert result.doc_posterior == approx(0.870968, 0.129032)


def test_d04_thorough_and_a_passage_that_was_never_scored() -> None:
    prior = torch.tensor([0.5, 0.35, 0.15]).double().log()
    tokens = torch.tensor([[0.8], [0.7], [0.2]]).double().log()
    assert attribute(tokens, prior, kind="rag_sequence").doc_posterior == approx(0.592593, 0.362963, 0.044444)
    tokens[2] = float("nan")
    missing = attribute(tokens, prior, kind="rag_sequence")
    assert (missing.status, missing.cited, missing.doc_posterior) == ("incomplete", (), ())


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
def test_d31_one_passage_is_trivial(kind: str) -> None:
    tokens, prior = torch.tensor([[-1.0, -2.0]]), torch.zeros(1)
    result = attribute(tokens, prior, kind=kind)
    assert (result.doc_posterior, result.gain, result.status) == ((1.0,), None, "trivial_attribution")
    assert result.cited == ()
    assert attribute(tokens, prior, kind=kind, rule=EmissionRule(allow_trivial=True)).cited == (0,)
    masked = attribute(tokens.expand(2, 2), torch.tensor([-math.inf, 0.0]), kind=kind)
    assert (masked.doc_posterior, masked.gain, masked.status) == ((0.0, 1.0), None, "trivial_attribution")


def random_world(seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(4, 5).double().mul(2).sub(3).clamp(max=0), torch.randn(4).double().log_softmax(0)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
def test_gain_is_what_is_lost_without_the_passage(kind: str, seed: int) -> None:
    tokens, prior = random_world(seed)
    marginalize = (rag_sequence if kind == "rag_sequence" else rag_token).marginalize
    whole = marginalize(tokens[None], prior[None])
    result = attribute(tokens, prior, kind=kind)
    assert result.gain is not None
    for z in range(4):
        kept = [i for i in range(4) if i != z]
        without = marginalize(tokens[kept][None], prior[kept].log_softmax(0)[None])
        assert result.gain[z] == pytest.approx((whole - without).item(), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_span_posterior_is_the_product_of_token_posteriors_over_the_prior(seed: int) -> None:
    tokens, prior = random_world(seed)
    result = attribute(tokens, prior, kind="rag_token", content=[False, True, True, True, False])
    ratio = torch.tensor(result.token_posterior[1:4]).double() / prior.exp()
    product = prior.exp() * ratio.prod(0)
    assert result.doc_posterior == approx(*(product / product.sum()).tolist())
    assert result.token_posterior[0] == approx(*prior.exp().tolist())


def test_the_largest_posterior_is_not_cited_when_it_does_harm() -> None:
    prior, tokens = torch.tensor([0.9, 0.1]).double().log(), torch.tensor([[0.1], [0.8]]).double().log()
    result = attribute(tokens, prior, kind="rag_sequence")
    assert result.doc_posterior == approx(9 / 17, 8 / 17)
    assert result.gain == pytest.approx((-1.549, 0.531), abs=1e-3)
    assert result.cited == (1,)


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
def test_passages_that_say_the_same_are_not_cited(kind: str) -> None:
    noise = torch.tensor([[0.0, 1e-7, 0.0], [1e-7, 0.0, 0.0], [0.0, 0.0, 0.0]])
    result = attribute(torch.full((3, 3), -1.0) + noise, torch.zeros(3).log_softmax(0), kind=kind)
    assert (result.cited, result.status) == ((), "diffuse_posterior")
    empty = attribute(ROWS, PRIOR, kind=kind, content=[False, False])
    assert (empty.cited, empty.doc_posterior) == ((), approx(0.6, 0.4))


@pytest.mark.parametrize(
    ("doc_posterior", "gain", "expected"),
    [
        ([0.5, 0.3, 0.2], [1.0, 1.0, 1.0], (0, 1)),
        ([0.3, 0.3, 0.4], [1.0, 1.0, 1.0], (2, 0, 1)),
        ([0.28, 0.26, 0.24, 0.22], [1.0, 1.0, 1.0, 1.0], (0, 1, 2)),
        ([0.91, 0.09], [-1.0, 1.0], ()),
        ([0.9, 0.1], [0.0, 1.0], (1,)),
    ],
)
def test_emission_rule(doc_posterior: list[float], gain: list[float], expected: tuple[int, ...]) -> None:
    assert emit(doc_posterior, gain, rule=EmissionRule()) == expected


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="kind must be one of"):
        attribute(ROWS, PRIOR, kind="closed_book")
    with pytest.raises(ShapeError, match=r"shapes \(K, T\) and \(K,\)"):
        attribute(ROWS[None], PRIOR, kind="rag_token")
    with pytest.raises(ShapeError, match="doc_logprobs must sum to 1 as probabilities, got 0.8"):
        attribute(ROWS, torch.tensor([0.5, 0.3]).log(), kind="rag_token")
    with pytest.raises(ShapeError, match="one flag for each of 2 tokens, got 1"):
        attribute(ROWS, PRIOR, kind="rag_token", content=[True])
