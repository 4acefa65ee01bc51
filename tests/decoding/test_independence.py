"""An answer depends on its question and passages alone: not on company, padding, order of passages or memory bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ragx.decoding.batch import Batch
from ragx.decoding.beam import DecodingSettings, search
from ragx.decoding.beams import END
from ragx.records import Hypothesis
from tests.decoding.worlds import ALL_DECODERS, DECODERS, World

SETTINGS = DecodingSettings(num_beams=2, num_return_sequences=4, max_length=3)
every_decoder = pytest.mark.parametrize("name", ALL_DECODERS)
some_seeds = pytest.mark.parametrize("seed", range(6))


def assert_same(left: list[Hypothesis], right: list[Hypothesis]) -> None:
    assert [h.token_ids for h in left] == [h.token_ids for h in right]
    for a, b in zip(left, right, strict=True):
        assert a.produced_by == b.produced_by
        for name in ("logprob", "passage_logprobs", "doc_posterior"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-6)


@every_decoder
@some_seeds
def test_of_batch_mates_and_padding(name: str, seed: int) -> None:
    world, decode = World.random(seed, n_questions=5), ALL_DECODERS[name]
    together = decode(world.lm, world.encoded(padding=4), world.doc_logprobs, settings=SETTINGS)
    assert len({h[0] for h in together}) == 5, "equal questions would prove nothing"
    for index, hypotheses in enumerate(together):
        alone = world.question(index)
        assert_same(hypotheses, decode(alone.lm, alone.encoded(), alone.doc_logprobs, settings=SETTINGS)[0])


@every_decoder
@some_seeds
def test_of_masked_passages(name: str, seed: int) -> None:
    """Three passages and a masked fourth give what three give; the masked one is never read."""
    world, decode = World.random(seed), ALL_DECODERS[name]
    masked = World(
        world.lm,
        [[row[0], 10**6, *row[1:]] for row in world.passages],  # a passage the table does not have: reading it fails
        torch.cat([world.doc_logprobs[:, :1], torch.full((3, 1), -torch.inf), world.doc_logprobs[:, 1:]], 1),
    )
    plain = decode(world.lm, world.encoded(), world.doc_logprobs, settings=SETTINGS)
    padded = decode(masked.lm, masked.encoded(), masked.doc_logprobs, settings=SETTINGS)
    for expected, hypotheses in zip(plain, padded, strict=True):
        assert {h.passage_logprobs[1] for h in hypotheses} == {-torch.inf}
        assert {h.doc_posterior[1] for h in hypotheses} == {0.0}
        without = [
            replace(
                h,
                passage_logprobs=h.passage_logprobs[:1] + h.passage_logprobs[2:],
                doc_posterior=h.doc_posterior[:1] + h.doc_posterior[2:],
                produced_by=tuple(k - (k > 1) for k in h.produced_by if k != 1),
            )
            for h in hypotheses
        ]
        assert all(1 not in h.produced_by for h in hypotheses)
        assert_same(expected, without)


@every_decoder
@some_seeds
def test_of_the_order_of_passages(name: str, seed: int) -> None:
    world, decode, order = World.random(seed), ALL_DECODERS[name], [2, 0, 1]
    turned = World(world.lm, [[row[k] for k in order] for row in world.passages], world.doc_logprobs[:, order])
    plain = decode(world.lm, world.encoded(), world.doc_logprobs, settings=SETTINGS)
    for left, right in zip(
        plain, decode(world.lm, turned.encoded(), turned.doc_logprobs, settings=SETTINGS), strict=True
    ):
        for a, b in zip(left, right, strict=True):
            assert a.token_ids == b.token_ids
            assert a.logprob == pytest.approx(b.logprob, abs=1e-6)
            assert [a.doc_posterior[k] for k in order] == pytest.approx(b.doc_posterior, abs=1e-6)
            assert {order.index(k) for k in a.produced_by} == set(b.produced_by)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("bound", [1, 6, 13, None])
def test_of_the_bound_on_memory(name: str, bound: int | None) -> None:
    world, decode = World.random(3, n_questions=5), DECODERS[name]
    free = decode(world.lm, world.encoded(), world.doc_logprobs, settings=SETTINGS)
    world.lm.calls.widest_batch = 0
    bounded = decode(
        world.lm, world.encoded(), world.doc_logprobs, settings=replace(SETTINGS, max_sequences_in_flight=bound)
    )
    for left, right in zip(free, bounded, strict=True):
        assert_same(left, right)
    one_search = SETTINGS.num_beams * (3 if name == "token_beam" else 1)
    if bound is not None:
        assert world.lm.calls.widest_batch <= max(bound, one_search)


@pytest.mark.parametrize(
    ("name", "n_docs", "bound"),
    [("thorough", 50, 16), ("thorough", 50, 90), ("fast", 50, 16), ("token_beam", 15, 30), ("token_beam", 15, 61)],
)
def test_as_many_passages_as_in_the_paper_fit_any_bound(name: str, n_docs: int, bound: int) -> None:
    """Section 3.1 and figure 3: thorough decoding over 50 passages, RAG-Token over 15."""
    world, decode = World.random(4, n_questions=3, n_docs=n_docs), DECODERS[name]
    free = replace(SETTINGS, max_sequences_in_flight=None)
    expected = decode(world.lm, world.encoded(), world.doc_logprobs, settings=free)
    world.lm.calls.widest_batch = 0
    bounded = replace(SETTINGS, max_sequences_in_flight=bound)
    found = decode(world.lm, world.encoded(), world.doc_logprobs, settings=bounded)
    assert world.lm.calls.widest_batch <= bound
    for left, right in zip(expected, found, strict=True):
        assert len(left) >= 2 and len(left[0].passage_logprobs) == n_docs
        assert_same(left, right)


@some_seeds
def test_with_one_passage_all_decoders_are_plain_beam_search(seed: int) -> None:
    """K = 1: no sum over passages is left, and the values are those of the beam itself, bit for bit."""
    world = World.random(seed, n_docs=1)
    batch = Batch(world.lm, world.encoded(), torch.zeros(3, 1), SETTINGS)
    sources = [(question, 0) for question in range(3)]
    beams = search(batch, torch.arange(3).unsqueeze(1), torch.zeros(3, 1), sources=sources, settings=SETTINGS)
    for decode in DECODERS.values():
        for question, hypotheses in enumerate(decode(world.lm, world.encoded(), torch.zeros(3, 1), settings=SETTINGS)):
            expected = [tuple(t for t in row if t != END) for row in beams.token_ids[question].tolist()]
            assert [h.token_ids for h in hypotheses] == expected
            assert [h.logprob for h in hypotheses] == beams.logprobs[question].tolist()
            assert {h.doc_posterior for h in hypotheses} == {(1.0,)}


def test_thorough_reads_each_missing_pair_once_and_together() -> None:
    world = World.random(5, n_questions=4)
    hypotheses = DECODERS["thorough"](
        world.lm, world.encoded(), world.doc_logprobs, settings=replace(SETTINGS, num_return_sequences=99)
    )
    missing = {
        (question * 3 + k, h.token_ids)
        for question, found in enumerate(hypotheses)
        for h in found
        for k in set(range(3)) - set(h.produced_by)
    }
    assert len(missing) > 4
    assert sorted(world.lm.calls.scored_pairs) == sorted(missing)
    assert world.lm.calls.scoring_calls == 1
