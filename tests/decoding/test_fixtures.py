"""Worlds small enough to do by hand, in which fast and thorough decoding must differ."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch

from ragx.decoding import fast, thorough, token_beam
from ragx.decoding.beam import DecodingSettings
from ragx.records import Hypothesis
from tests.toy.table_lm import Answer, TableLM

EOS, A, B, C, D = 1, 2, 3, 4, 5


def one_token_world(*passages: tuple[float, float, float, float]) -> TableLM:
    """p(A), p(B), p(C), p(D) per passage; padding and EOS are impossible."""
    return TableLM.from_distributions([{(): [0.0, 0.0, *p]} for p in passages], vocab_size=6, max_length=1)


def probabilities(hypotheses: list[Hypothesis]) -> dict[tuple[int, ...], float]:
    return {h.token_ids: math.exp(h.logprob) for h in hypotheses}


def test_fast_and_thorough_prefer_different_answers() -> None:
    """Beam 1: z1 finds A, z2 finds B. Fast: A .55*.40 = .220, B .45*.60 = .270. Thorough: A .220 + .45*.39 = .3955,
    B .270 + .55*.10 = .325. A fast decoder that quietly rescored would pick A."""
    lm = one_token_world((0.40, 0.10, 0.25, 0.25), (0.39, 0.60, 0.005, 0.005))
    encoded, prior = lm.encode(*lm.inputs([[0, 1]])), torch.tensor([[0.55, 0.45]]).log()
    settings = DecodingSettings(num_beams=1, num_return_sequences=2, max_length=1)
    (partial,), (complete,) = (m.decode(lm, encoded, prior, settings=settings) for m in (fast, thorough))
    assert [h.token_ids for h in partial] == [(B,), (A,)]
    assert probabilities(partial) == pytest.approx({(B,): 0.270, (A,): 0.220}, abs=1e-6)
    assert [h.token_ids for h in complete] == [(A,), (B,)]
    assert probabilities(complete) == pytest.approx({(A,): 0.3955, (B,): 0.325}, abs=1e-6)
    assert [h.produced_by for h in partial] == [(1,), (0,)]
    assert partial[0].passage_logprobs == pytest.approx((-math.inf, math.log(0.60)), abs=1e-6)
    assert partial[0].doc_posterior == (0.0, 1.0)
    assert complete[0].doc_posterior == pytest.approx((0.220 / 0.3955, 0.1755 / 0.3955), abs=1e-6)


def test_a_missing_pair_flips_the_order() -> None:
    """Beam 2, prior .5/.5: z1 finds A .40 and B .25; z2 finds B .33 and C .32, not A .30.
    Thorough A .35 > B .29; fast B .29 > A .20."""
    lm = one_token_world((0.40, 0.25, 0.20, 0.15), (0.30, 0.33, 0.32, 0.05))
    encoded, prior = lm.encode(*lm.inputs([[0, 1]])), torch.tensor([[0.5, 0.5]]).log()
    settings = DecodingSettings(num_beams=2, num_return_sequences=3, max_length=1)
    (partial,), (complete,) = (m.decode(lm, encoded, prior, settings=settings) for m in (fast, thorough))
    assert probabilities(partial) == pytest.approx({(B,): 0.29, (A,): 0.20, (C,): 0.16}, abs=1e-6)
    assert probabilities(complete) == pytest.approx({(A,): 0.35, (B,): 0.29, (C,): 0.26}, abs=1e-6)
    assert (partial[0].token_ids, complete[0].token_ids) == ((B,), (A,))


def test_dante() -> None:
    """Prior .5/.35/.15; "Dante Alighieri" has .8/.7/.2. Thorough .4 + .245 + .03 = .675, posterior
    (.4, .245, .03) / .675; z3's own beam finds something else, so fast has .645."""
    dante, alighieri, petrarch = 2, 3, 4
    passages: list[Mapping[Answer, list[float]]] = [
        {
            (): [0, 0, p, 0, 1 - p],
            (dante,): [0, 0, 0, 1, 0],
            (petrarch,): [0, 1, 0, 0, 0],
            (dante, alighieri): [0, 1, 0, 0, 0],
        }
        for p in (0.8, 0.7, 0.2)
    ]
    lm = TableLM.from_distributions(passages, vocab_size=5, max_length=3)
    encoded, prior = lm.encode(*lm.inputs([[0, 1, 2]])), torch.tensor([[0.5, 0.35, 0.15]]).log()
    settings = DecodingSettings(num_beams=1, max_length=3)
    ((complete,),), ((partial,),) = (m.decode(lm, encoded, prior, settings=settings) for m in (thorough, fast))
    assert complete.token_ids == partial.token_ids == (dante, alighieri, EOS)
    assert math.exp(complete.logprob) == pytest.approx(0.675, abs=1e-6)
    assert complete.doc_posterior == pytest.approx((0.592593, 0.362963, 0.044444), abs=1e-6)
    assert complete.produced_by == partial.produced_by == (0, 1)
    assert math.exp(partial.logprob) == pytest.approx(0.645, abs=1e-6)
    assert partial.passage_logprobs[2] == -math.inf
    assert partial.doc_posterior == pytest.approx((0.4 / 0.645, 0.245 / 0.645, 0.0), abs=1e-6)


def test_token_beam_mixes_before_every_token() -> None:
    """Prior .6/.4, tokens (.9, .1) and (.2, .8): (.54 + .08) * (.06 + .32) = .2356, while RAG-Sequence has .118.
    Per-token posteriors of z1 are .54/.62 and .06/.38; `doc_posterior` is their mean."""
    passages = [{(): [0, 0, p, 1 - p], (2,): [0, 0, q, 1 - q]} for p, q in ((0.9, 0.1), (0.2, 0.8))]
    lm = TableLM.from_distributions(passages, vocab_size=4, max_length=2)
    encoded, prior = lm.encode(*lm.inputs([[0, 1]])), torch.tensor([[0.6, 0.4]]).log()
    settings = DecodingSettings(num_beams=4, num_return_sequences=4, max_length=2)
    by_model = {m: m.decode(lm, encoded, prior, settings=settings)[0] for m in (token_beam, thorough)}
    token, sequence = (next(h for h in by_model[m] if h.token_ids == (2, 2)) for m in (token_beam, thorough))
    assert math.exp(token.logprob) == pytest.approx(0.2356, abs=1e-6)
    assert token.passage_logprobs == pytest.approx((math.log(0.09), math.log(0.16)), abs=1e-6)
    assert token.doc_posterior == pytest.approx((0.514431, 0.485569), abs=1e-6)
    assert token.produced_by == (0, 1)
    assert math.exp(sequence.logprob) == pytest.approx(0.118, abs=1e-6)
    assert sequence.doc_posterior == pytest.approx((0.457627, 0.542373), abs=1e-6)
