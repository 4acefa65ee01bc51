"""Samples follow the mixture of passages, cut and flattened as asked, and depend on seed and question alone."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from ragx.decoding import fast, greedy, thorough, token_beam
from ragx.decoding.batch import Batch
from ragx.decoding.beams import END
from ragx.decoding.sampling import draw
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError, ShapeError
from tests.decoding.worlds import World
from tests.toy.table_lm import Answer, TableLM

N = 4000


def samples(world: World, *, seed: int = 0, max_length: int = 3, **settings: Any) -> list[Counter[Answer]]:
    """How often each answer was drawn, per question."""
    chosen = DecodingSettings(do_sample=True, num_return_sequences=N, max_length=max_length, seed=seed, **settings)
    batch = Batch(world.lm, world.encoded(), world.doc_logprobs, chosen)
    rows = torch.arange(batch.doc_logprobs.numel()).view_as(batch.doc_logprobs)
    sources = [(question, None) for question in range(len(rows))]
    with torch.no_grad():
        beams = draw(batch, rows, batch.doc_logprobs, sources=sources, settings=chosen)
    return [Counter(tuple(t for t in row if t != END) for row in of.tolist()) for of in beams.token_ids]


def assert_distributed(counts: Counter[Answer], expected: dict[Answer, float]) -> None:
    """No count is further than five standard deviations from what is expected, and nothing else was drawn."""
    assert set(counts) <= {y for y, p in expected.items() if p > 0}
    total = counts.total()
    for answer, p in expected.items():
        assert abs(counts[answer] - total * p) <= 5 * math.sqrt(total * p * (1 - p)) + 1e-6, answer


@pytest.mark.parametrize("seed", range(3))
def test_samples_follow_rag_token(seed: int) -> None:
    world = World.random(seed)
    for question, counts in enumerate(samples(world, seed=seed)):
        assert_distributed(counts, world.lm.rag_token(world.passages[question], world.prior(question), max_length=3))


def one_step(*probabilities: float) -> World:
    """One question, one passage, one token."""
    lm = TableLM.from_distributions([{(): [*probabilities]}], vocab_size=len(probabilities), max_length=1)
    return World(lm, [[0]], torch.zeros(1, 1))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"temperature": 0.5}, [p**2 / 0.3 for p in (0.4, 0.1, 0.3, 0.2)]),
        ({"top_k": 2}, [4 / 7, 0, 3 / 7, 0]),
        ({"top_p": 0.65}, [4 / 7, 0, 3 / 7, 0]),  # .4 is not enough, .7 is
        ({"top_p": 0.75}, [4 / 9, 0, 3 / 9, 2 / 9]),
        ({"top_k": 3, "top_p": 0.7}, [4 / 7, 0, 3 / 7, 0]),  # of the three that are left .4 + .3 are 7/9
        ({"top_p": 1e-6}, [1, 0, 0, 0]),
        ({"bad_token_ids": (0,)}, [0, 1 / 6, 3 / 6, 2 / 6]),
    ],
)
def test_temperature_and_cuts(settings: dict[str, Any], expected: list[float]) -> None:
    """Probabilities .4 .1 .3 .2; squared they sum to .3."""
    (counts,) = samples(one_step(0.4, 0.1, 0.3, 0.2), max_length=1, **settings)
    assert_distributed(counts, {(token,): p for token, p in enumerate(expected)})


def test_a_rule_of_the_caller_is_followed() -> None:
    world = one_step(0.4, 0.1, 0.3, 0.2)
    settings = DecodingSettings(do_sample=True, num_return_sequences=50, max_length=1)
    (found,) = token_beam.decode(
        world.lm, world.encoded(), world.doc_logprobs, settings=settings, allowed=lambda *_: [3, 1]
    )
    assert {h.token_ids: math.exp(h.logprob) for h in found} == pytest.approx({(3,): 0.2, (1,): 0.1})


def test_what_is_reported_is_the_models_own_and_distinct_best_first() -> None:
    """Ten samples at a high temperature: equal ones are listed once, with log p(y|x) under temperature 1."""
    world = World.random(3)
    settings = DecodingSettings(do_sample=True, num_return_sequences=10, max_length=3, temperature=3.0)
    found = token_beam.decode(world.lm, world.encoded(), world.doc_logprobs, settings=settings)
    for question, hypotheses in enumerate(found):
        expected = world.lm.rag_token(world.passages[question], world.prior(question), max_length=3)
        answers = [h.token_ids for h in hypotheses]
        assert 1 < len(answers) == len(set(answers)) <= 10
        assert [h.logprob for h in hypotheses] == sorted((h.logprob for h in hypotheses), reverse=True)
        for h in hypotheses:
            assert h.logprob == pytest.approx(math.log(expected[h.token_ids]), abs=1e-5)
            assert sum(h.doc_posterior) == pytest.approx(1.0, abs=1e-5)


def test_a_sample_depends_on_seed_and_question_alone() -> None:
    world = World.random(5, n_questions=5)
    settings = DecodingSettings(do_sample=True, num_return_sequences=3, max_length=3, seed=7)

    def drawn(of: World, chosen: DecodingSettings, **more: Any) -> list[list[Answer]]:
        found = token_beam.decode(of.lm, of.encoded(), of.doc_logprobs, settings=chosen, **more)
        return [[h.token_ids for h in hypotheses] for hypotheses in found]

    together = drawn(world, settings)
    assert together == drawn(world, settings)
    for question in range(5):
        assert drawn(world.question(question), settings) == [together[question]]
    bounded = DecodingSettings(do_sample=True, num_return_sequences=3, max_length=3, seed=7, max_sequences_in_flight=10)
    assert drawn(world, bounded) == together
    assert drawn(world, settings, seeds=[7] * 5) == together
    other = drawn(world, settings, seeds=[7, 1, 2, 3, 4])
    assert other[0] == together[0] and other[1:] != together[1:]
    with pytest.raises(ShapeError, match=r"seeds must be one a question \(5\) or none, got 2"):
        drawn(world, settings, seeds=[1, 2])


def test_finished_questions_leave_the_batch() -> None:
    """Question 0 ends at once, question 1 goes on for three tokens with two samples: 4 sequences read, then 2, 2."""
    lm = TableLM.from_distributions(
        [{(): [0, 1, 0]}, {(): [0, 0, 1], (2,): [0, 0, 1], (2, 2): [0, 0, 1]}], vocab_size=3, max_length=3
    )
    settings = DecodingSettings(do_sample=True, num_return_sequences=2, max_length=3)
    found = token_beam.decode(lm, lm.encode(*lm.inputs([[0], [1]])), torch.zeros(2, 1), settings=settings)
    assert [[h.token_ids for h in hypotheses] for hypotheses in found] == [[(1,)], [(2, 2, 2)]]
    assert (lm.calls.steps, lm.calls.widest_batch) == (3, 2)


@pytest.mark.parametrize("module", [fast, thorough, greedy])
def test_decoders_that_cannot_sample_say_so(module: Any) -> None:
    world = World.random(0)
    name = module.__name__.rpartition(".")[2]
    with pytest.raises(ConfigError, match=f"do_sample must be false with {name}, got true. Use token_beam to sample."):
        module.decode(world.lm, world.encoded(), world.doc_logprobs, settings=DecodingSettings(do_sample=True))
