"""Every decoder against the list of all 40 answers (V = 4, T = 3) and against a beam search in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from ragx.decoding.beam import DecodingSettings
from ragx.losses import rag_sequence, rag_token
from ragx.records import Hypothesis
from tests.decoding.worlds import ALL_DECODERS, DECODERS, World, mixture, naive_beam
from tests.toy.table_lm import Answer

SEEDS = range(12)
WIDE = DecodingSettings(num_beams=4**3, num_return_sequences=40, max_length=3)


def decode(name: str, world: World, settings: DecodingSettings) -> list[list[Hypothesis]]:
    return ALL_DECODERS[name](world.lm, world.encoded(), world.doc_logprobs, settings=settings)


def truth(name: str, world: World, question: int) -> dict[Answer, float]:
    model = "rag_token" if name == "token_beam" else "rag_sequence"
    return getattr(world.lm, model)(world.passages[question], world.prior(question), max_length=3)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_beam_of_all_answers_finds_every_one_with_its_probability(name: str, seed: int) -> None:
    world = World.random(seed)
    for question, hypotheses in enumerate(decode(name, world, WIDE)):
        expected = truth(name, world, question)
        assert {h.token_ids for h in hypotheses} == set(expected)
        assert hypotheses[0].token_ids == max(expected, key=expected.__getitem__)
        assert [h.logprob for h in hypotheses] == sorted((h.logprob for h in hypotheses), reverse=True)
        for h in hypotheses:
            assert h.logprob == pytest.approx(math.log(expected[h.token_ids]), abs=1e-5)


@pytest.mark.parametrize("num_beams", [1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_token_beam_is_beam_search_over_the_mixture(seed: int, num_beams: int) -> None:
    world = World.random(seed)
    settings = DecodingSettings(num_beams=num_beams, num_return_sequences=num_beams, max_length=3)
    for question, hypotheses in enumerate(decode("token_beam", world, settings)):
        expected = naive_beam(mixture(world, question), num_beams=num_beams, max_length=3, eos=1)
        assert [h.token_ids for h in hypotheses] == list(expected)
        assert [h.logprob for h in hypotheses] == pytest.approx([math.log(p) for p in expected.values()], abs=1e-5)


@pytest.mark.parametrize("num_beams", [1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_thorough_and_fast_score_the_union_of_the_passages_beams(seed: int, num_beams: int) -> None:
    world = World.random(seed)
    settings = DecodingSettings(num_beams=num_beams, num_return_sequences=40, max_length=3)
    both = zip(decode("thorough", world, settings), decode("fast", world, settings), strict=True)
    for question, (complete, partial) in enumerate(both):
        members, prior = world.passages[question], world.prior(question)
        beams = [naive_beam(mixture(world, question, [p]), num_beams=num_beams, max_length=3, eos=1) for p in members]
        found = {y for beam in beams for y in beam}
        bound = {y: sum(w * beam.get(y, 0.0) for w, beam in zip(prior, beams, strict=True)) for y in found}
        expected = truth("thorough", world, question)
        assert {h.token_ids for h in complete} == {h.token_ids for h in partial} == found
        assert {h.token_ids: math.exp(h.logprob) for h in partial} == pytest.approx(bound, rel=1e-4)
        assert {h.token_ids: math.exp(h.logprob) for h in complete} == pytest.approx(
            {y: expected[y] for y in found}, rel=1e-4
        )
        for h in (*complete, *partial):
            assert h.produced_by == tuple(k for k, beam in enumerate(beams) if h.token_ids in beam)


@pytest.mark.parametrize("seed", SEEDS)
def test_fast_never_exceeds_thorough(seed: int) -> None:
    """Per answer, and for the best one; over the seeds some answer must be strictly lower, or nothing was compared."""
    world = World.random(seed, n_questions=4)
    settings = DecodingSettings(num_beams=2, num_return_sequences=40, max_length=3)
    strictly = 0
    for complete, partial in zip(decode("thorough", world, settings), decode("fast", world, settings), strict=True):
        values = {h.token_ids: h.logprob for h in complete}
        assert all(h.logprob <= values[h.token_ids] + 1e-6 for h in partial)
        assert partial[0].logprob <= complete[0].logprob + 1e-6
        strictly += sum(h.logprob < values[h.token_ids] - 1e-3 for h in partial)
    assert strictly > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_every_field_agrees_with_the_loss_module(seed: int) -> None:
    """log p(y|x), per passage and posterior: what the loss says of the same tokens, teacher forced, to 1e-5."""
    world = World.random(seed)
    settings = DecodingSettings(num_beams=2, num_return_sequences=3, max_length=3)
    n_docs = world.doc_logprobs.shape[1]
    for name, loss in (("thorough", rag_sequence), ("token_beam", rag_token)):
        for question, hypotheses in enumerate(decode(name, world, settings)):
            for h in hypotheses:
                rows = torch.arange(n_docs) + question * n_docs
                labels = torch.tensor([h.token_ids]).expand(n_docs, -1)
                tokens = world.lm.token_logprobs(world.encoded(), labels, rows).detach().unsqueeze(0)
                prior = world.doc_logprobs[question : question + 1]
                assert h.logprob == pytest.approx(float(loss.marginalize(tokens, prior)), abs=1e-5)
                assert h.passage_logprobs == pytest.approx(tokens.sum(2)[0].tolist(), abs=1e-5)
                if name == "thorough":
                    posterior = (prior + tokens.sum(2)).softmax(1)
                else:
                    posterior = (prior.unsqueeze(2) + tokens).softmax(1).mean(2)
                assert h.doc_posterior == pytest.approx(posterior[0].tolist(), abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_takes_the_best_token_each_time(seed: int) -> None:
    world = World.random(seed)
    for question, (h,) in enumerate(decode("greedy", world, DecodingSettings(max_length=3, length_penalty=2.0))):
        next_token = mixture(world, question)
        prefix: Answer = ()
        while len(prefix) < 3 and 1 not in prefix:
            probabilities = next_token(prefix)
            prefix = (*prefix, probabilities.index(max(probabilities)))
        assert h.token_ids == prefix


def test_a_larger_vocabulary_is_searched_exactly_too() -> None:
    world = World.random(7, vocab_size=9, n_questions=2)
    for name in DECODERS:
        for question, hypotheses in enumerate(decode(name, world, DecodingSettings(num_beams=9**3, max_length=3))):
            expected = truth(name, world, question)
            assert hypotheses[0].token_ids == max(expected, key=expected.__getitem__)
            assert math.exp(hypotheses[0].logprob) == pytest.approx(max(expected.values()), rel=1e-5)
