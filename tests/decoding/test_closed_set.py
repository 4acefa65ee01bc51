"""A closed set of answers: every one scored, none searched."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest

from ragx.decoding import closed_set, thorough
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from tests.decoding.worlds import World

SETTINGS = DecodingSettings(num_return_sequences=9, max_length=3)


@pytest.mark.parametrize("likelihood", closed_set.LIKELIHOODS)
@pytest.mark.parametrize("bound", [None, 2])
@pytest.mark.parametrize("seed", range(4))
def test_every_answer_gets_its_probability_in_one_call(likelihood: str, bound: int | None, seed: int) -> None:
    """Answers of one to three tokens, with EOS and cut; nothing is searched. A bound changes the calls alone."""
    world = World.random(seed)
    answers = [(2, 1), (3, 0, 2), (1,), (0, 1)]
    settings = DecodingSettings(num_return_sequences=9, max_length=3, max_sequences_in_flight=bound)
    found = closed_set.among(answers, likelihood=likelihood)(
        world.lm, world.encoded(), world.doc_logprobs, settings=settings
    )
    for question, hypotheses in enumerate(found):
        everything = getattr(world.lm, likelihood)(world.passages[question], world.prior(question), max_length=3)
        assert {h.token_ids: math.exp(h.logprob) for h in hypotheses} == pytest.approx(
            {y: everything[y] for y in answers}, rel=1e-4
        )
        assert [h.logprob for h in hypotheses] == sorted((h.logprob for h in hypotheses), reverse=True)
        for h in hypotheses:
            assert sum(h.doc_posterior) == pytest.approx(1.0, abs=1e-5)
            assert h.produced_by == (0, 1, 2)
    assert world.lm.calls.steps == 0
    assert bound is not None or world.lm.calls.scoring_calls == 1


def test_it_agrees_with_thorough_decoding_on_what_both_know() -> None:
    world = World.random(6)
    for question, hypotheses in enumerate(
        thorough.decode(world.lm, world.encoded(), world.doc_logprobs, settings=SETTINGS)
    ):
        alone = world.question(question)
        answers = [h.token_ids for h in hypotheses]
        (found,) = closed_set.among(answers, likelihood="rag_sequence")(
            alone.lm, alone.encoded(), alone.doc_logprobs, settings=SETTINGS
        )
        for ours, theirs in zip(found, hypotheses, strict=True):
            assert ours.token_ids == theirs.token_ids
            for name in ("logprob", "passage_logprobs", "doc_posterior"):
                assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-5)


@pytest.mark.parametrize(
    ("answers", "likelihood", "message"),
    [
        ([], "rag_token", "answers must be one or more, none of them empty or doubled, got []"),
        ([[1], []], "rag_token", "answers must be one or more, none of them empty or doubled, got [(1,), ()]"),
        (
            [[1], [1]],
            "closed_book",
            "likelihood must be one of rag_sequence, rag_token, got 'closed_book'.\nanswers must be one or more",
        ),
    ],
)
def test_an_impossible_set_is_refused(answers: Sequence[Sequence[int]], likelihood: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        closed_set.among(answers, likelihood=likelihood)
