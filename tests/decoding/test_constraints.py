"""Forced, bad and repeated tokens and the caller's own rule: what is left keeps its probability."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ragx.decoding.settings import DecodingSettings
from ragx.errors import ShapeError
from ragx.records import Hypothesis
from tests.decoding.worlds import ALL_DECODERS, DECODERS, World
from tests.toy.table_lm import Answer, TableLM

EOS = 1
SEEDS = range(4)
some_seeds = pytest.mark.parametrize("seed", SEEDS)
every_beam = pytest.mark.parametrize("name", DECODERS)


def decode(name: str, world: World, *, allowed: Any = None, **settings: Any) -> list[list[Hypothesis]]:
    """All that a beam as wide as the world finds."""
    wide = DecodingSettings(num_beams=64, num_return_sequences=99, max_length=3, **settings)
    return ALL_DECODERS[name](world.lm, world.encoded(), world.doc_logprobs, settings=wide, allowed=allowed)


def assert_exactly(name: str, world: World, found: list[list[Hypothesis]], holds: Callable[[Answer], bool]) -> None:
    """Those answers for which `holds`, each with its own probability, and some were left out."""
    model = "rag_token" if name == "token_beam" else "rag_sequence"
    for question, hypotheses in enumerate(found):
        everything = getattr(world.lm, model)(world.passages[question], world.prior(question), max_length=3)
        expected = {y: p for y, p in everything.items() if holds(y)}
        assert 0 < len(expected) < len(everything)
        assert {h.token_ids: math.exp(h.logprob) for h in hypotheses} == pytest.approx(expected, rel=1e-4)


@every_beam
@some_seeds
def test_bad_tokens_never_occur(name: str, seed: int) -> None:
    world = World.random(seed)
    found = decode(name, world, bad_token_ids=(0, 3))
    assert_exactly(name, world, found, lambda y: not {0, 3} & set(y))


@every_beam
@some_seeds
def test_a_forced_first_token_overrides_every_other_rule(name: str, seed: int) -> None:
    world = World.random(seed)
    found = decode(name, world, forced_bos_token_id=2, bad_token_ids=(2,), allowed=lambda *_: [0, EOS])
    assert_exactly(name, world, found, lambda y: y[0] == 2 and set(y[1:]) <= {0, EOS})


@every_beam
@some_seeds
def test_forced_eos_leaves_no_answer_cut(name: str, seed: int) -> None:
    world = World.random(seed)
    assert_exactly(name, world, decode(name, world, force_eos=True), lambda y: y[-1] == EOS)


@every_beam
@pytest.mark.parametrize("size", [1, 2])
@some_seeds
def test_no_ngram_occurs_twice(name: str, size: int, seed: int) -> None:
    """With bigrams and three tokens only (a, a, a) is left out."""
    world = World.random(seed)

    def holds(y: Answer) -> bool:
        ngrams = [y[i : i + size] for i in range(len(y) - size + 1)]
        return len(ngrams) == len(set(ngrams))

    assert_exactly(name, world, decode(name, world, no_repeat_ngram_size=size), holds)


@every_beam
@some_seeds
def test_rules_hold_together(name: str, seed: int) -> None:
    """Length, bad token, repeats and the caller's list: an answer has to pass all of them."""
    world = World.random(seed)
    found = decode(
        name, world, min_length=2, bad_token_ids=(3,), no_repeat_ngram_size=1, allowed=lambda *_: [3, 2, EOS, 2]
    )
    assert_exactly(name, world, found, lambda y: len(y) >= 2 and set(y) <= {2, EOS} and len(set(y)) == len(y))


@every_beam
def test_the_callers_rule_is_asked_about_the_question_its_passage_and_the_prefix(name: str) -> None:
    """A batch of three with beams of three: question b may say token b + 2 mod 4 or EOS, and nothing else. Searched
    passage by passage the rule sees which passage it is, mixed ones have none; each live prefix is asked about once."""
    world, asked = World.random(2), []

    def allowed(question: int, passage: int | None, prefix: Answer) -> list[int]:
        asked.append((question, passage, prefix))
        return [(question + 2) % 4, EOS]

    settings = DecodingSettings(num_beams=3, num_return_sequences=9, max_length=3)
    found = DECODERS[name](world.lm, world.encoded(), world.doc_logprobs, settings=settings, allowed=allowed)
    for question, hypotheses in enumerate(found):
        assert len(hypotheses) > 1
        assert all(set(h.token_ids) <= {(question + 2) % 4, EOS} for h in hypotheses)
    passages = {None} if name == "token_beam" else {0, 1, 2}
    assert {(question, passage) for question, passage, _ in asked} == {(b, k) for b in range(3) for k in passages}
    assert all(EOS not in prefix for _, _, prefix in asked), "an ended answer has no next token"
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("name", ["thorough", "fast"])
def test_a_rule_may_differ_from_passage_to_passage(name: str) -> None:
    """Passage 0 may only say 2, passage 1 only 3: thorough scores both answers under both passages all the same."""
    world = World.random(1, n_docs=2)
    settings = DecodingSettings(num_beams=2, num_return_sequences=9, max_length=1)
    found = DECODERS[name](
        world.lm, world.encoded(), world.doc_logprobs, settings=settings, allowed=lambda _, passage, __: [passage + 2]
    )
    for question, hypotheses in enumerate(found):
        assert {h.token_ids: h.produced_by for h in hypotheses} == {(2,): (0,), (3,): (1,)}
        everything = world.lm.rag_sequence(world.passages[question], world.prior(question), max_length=1)
        for h in hypotheses:
            bound = math.exp(h.logprob) - everything[h.token_ids]
            assert bound == pytest.approx(0, abs=1e-6) if name == "thorough" else bound < 0


@pytest.mark.parametrize("name", ALL_DECODERS)
def test_a_rule_that_allows_nothing_gives_no_answer(name: str) -> None:
    world = World.random(0)

    def allowed(question: int, _: int | None, prefix: Answer) -> list[int]:
        return [] if question == 1 else [2, EOS]

    settings = DecodingSettings(num_beams=2, max_length=3)
    found = ALL_DECODERS[name](world.lm, world.encoded(), world.doc_logprobs, settings=settings, allowed=allowed)
    assert [len(hypotheses) for hypotheses in found] == [1, 0, 1]


def test_allowed_tokens_that_are_all_but_impossible_keep_their_order() -> None:
    """Probabilities of e^-150 and e^-140 beside 1: a float32 holds neither, and the second is still the better one."""
    lm = TableLM(torch.tensor([[[-150.0, -200.0, 0.0, -140.0]]] * 2))
    settings = DecodingSettings(num_beams=2, num_return_sequences=2, max_length=1)
    for decoder in DECODERS.values():
        (found,) = decoder(
            lm,
            lm.encode(*lm.inputs([[0, 1]])),
            torch.tensor([[0.5, 0.5]]).log(),
            settings=settings,
            allowed=lambda *_: [0, 3],
        )
        assert [h.token_ids for h in found] == [(3,), (0,)]
        assert [h.logprob for h in found] == pytest.approx([-140.0, -150.0], abs=1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bad_token_ids": (2, 4)}, "bad_token_ids must be below the vocabulary's size 4, got 4"),
        ({"forced_bos_token_id": 9}, "forced_bos_token_id must be below the vocabulary's size 4, got 9"),
        ({"allowed": lambda *_: [2, 4]}, "allowed must give ids in [0, 4), got 2 to 4"),
        ({"allowed": lambda *_: [-1]}, "allowed must give ids in [0, 4), got -1 to -1"),
    ],
)
def test_tokens_of_another_vocabulary_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)):
        decode("token_beam", World.random(0), **given)
