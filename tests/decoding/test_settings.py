"""Lengths, length penalty, number of answers, ties, stopping, and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import pytest
import torch

from ragx.decoding.batch import check_doc_logprobs
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError, RagxError, ShapeError
from tests.decoding.worlds import ALL_DECODERS, DECODERS, World
from tests.toy.table_lm import Answer, TableLM

every_decoder = pytest.mark.parametrize("name", ALL_DECODERS)


@every_decoder
@pytest.mark.parametrize(("min_length", "max_length"), [(0, 1), (2, 3), (3, 3), (2, 2)])
def test_lengths_count_eos_and_leave_probabilities_alone(name: str, min_length: int, max_length: int) -> None:
    world = World.random(4)
    settings = DecodingSettings(64, num_return_sequences=40, min_length=min_length, max_length=max_length)
    model = "rag_token" if name in ("token_beam", "greedy") else "rag_sequence"
    for question, found in enumerate(
        ALL_DECODERS[name](world.lm, world.encoded(), world.doc_logprobs, settings=settings)
    ):
        expected = getattr(world.lm, model)(world.passages[question], world.prior(question), max_length=max_length)
        allowed = {y: p for y, p in expected.items() if len(y) >= min_length}
        assert {h.token_ids for h in found} <= set(allowed)
        assert len(found) == (1 if name == "greedy" else len(allowed))
        for h in found:
            assert h.logprob == pytest.approx(math.log(allowed[h.token_ids]), abs=1e-5)


def test_a_cut_answer_has_no_eos_and_the_probability_of_its_prefix() -> None:
    """p(2) = .9, then 2 again with .9: cut at two tokens the answer is (2, 2) with .81, though EOS never came."""
    lm = TableLM.from_distributions([{(): [0, 0.1, 0.9], (2,): [0, 0.1, 0.9]}], vocab_size=3, max_length=2)
    for decode in ALL_DECODERS.values():
        ((best,),) = decode(
            lm, lm.encode(*lm.inputs([[0]])), torch.zeros(1, 1), settings=DecodingSettings(max_length=2)
        )
        assert best.token_ids == (2, 2)
        assert math.exp(best.logprob) == pytest.approx(0.81, abs=1e-6)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.5, 1.0, 3.0])
def test_length_penalty_ranks_by_name_and_keeps_logprob(name: str, penalty: float) -> None:
    world = World.random(8)
    settings = DecodingSettings(64, num_return_sequences=40, max_length=3, length_penalty=penalty)
    model = "rag_token" if name == "token_beam" else "rag_sequence"
    for question, found in enumerate(DECODERS[name](world.lm, world.encoded(), world.doc_logprobs, settings=settings)):
        expected = getattr(world.lm, model)(world.passages[question], world.prior(question), max_length=3)
        assert {h.token_ids: math.exp(h.logprob) for h in found} == pytest.approx(expected, rel=1e-4)
        scores = [math.log(expected[h.token_ids]) / len(h.token_ids) ** penalty for h in found]
        assert scores == sorted(scores, reverse=True)


def test_length_penalty_does_not_reach_the_beams_of_single_passages() -> None:
    """With beam 1 the answers pooled are the same for any penalty; only their order may change."""
    world = World.random(9)
    pooled = []
    for penalty in (0.0, 5.0):
        settings = DecodingSettings(1, num_return_sequences=9, max_length=3, length_penalty=penalty)
        found = DECODERS["fast"](world.lm, world.encoded(), world.doc_logprobs, settings=settings)
        pooled.append([{h.token_ids: h.logprob for h in hypotheses} for hypotheses in found])
    assert pooled[0] == pooled[1]


@pytest.mark.parametrize("penalty", [-1.0, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(10))
def test_stopping_early_by_the_bound_loses_nothing(seed: int, penalty: float) -> None:
    """Narrow beams with a penalty equal a search that goes on to the end, because the bound on live beams is exact."""
    world = World.random(seed)
    settings = DecodingSettings(2, num_return_sequences=2, max_length=3, length_penalty=penalty)
    found = DECODERS["token_beam"](world.lm, world.encoded(), world.doc_logprobs, settings=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ragx.decoding.beam._hopeless", lambda live, *_, **__: torch.zeros(len(live.logprobs), dtype=torch.bool)
        )
        to_the_end = DECODERS["token_beam"](world.lm, world.encoded(), world.doc_logprobs, settings=settings)
    assert found == to_the_end


def test_a_penalty_that_favors_length_waits_for_the_longest_answer() -> None:
    """Penalty 1.5: EOS at once has log .7 = -.357. (2, ...) has log .2 = -1.609, which loses at two tokens
    (/ 2.83 = -.569) and wins at three (/ 5.20 = -.310)."""
    lm = TableLM.from_distributions(
        [{(): [0.1, 0.7, 0.2], (2,): [0, 0, 1], (2, 2): [0, 1, 0]}], vocab_size=3, max_length=3
    )
    settings = DecodingSettings(1, max_length=3, length_penalty=1.5)
    ((best,),) = DECODERS["token_beam"](lm, lm.encode(*lm.inputs([[0]])), torch.zeros(1, 1), settings=settings)
    assert best.token_ids == (2, 2, 1)
    assert math.exp(best.logprob) == pytest.approx(0.2, abs=1e-6)


def test_a_penalty_that_favors_brevity_waits_for_the_next_token() -> None:
    """Penalty -1, two beams: after two tokens (1,) and (2, 1) are finished, the latter with 2 log .17 = -3.544.
    (2, 2) has .33 and still enters with EOS as third token (3 log .33 = -3.326), not as fourth (-4.435)."""
    distributions: Mapping[Answer, list[float]] = {
        (): [0.1, 0.3, 0.6],
        (2,): [0.1 / 0.6, 0.17 / 0.6, 0.33 / 0.6],
        (2, 2): [0, 1, 0],
    }
    lm = TableLM.from_distributions([distributions], vocab_size=3, max_length=4)
    settings = DecodingSettings(2, num_return_sequences=2, max_length=4, length_penalty=-1.0)
    (found,) = DECODERS["token_beam"](lm, lm.encode(*lm.inputs([[0]])), torch.zeros(1, 1), settings=settings)
    assert [h.token_ids for h in found] == [(1,), (2, 2, 1)]


def test_a_search_without_live_beams_stops() -> None:
    """Only EOS is possible: four beams are asked for, one answer exists, and no second step is taken."""
    lm = TableLM.from_distributions([{(): [0, 1, 0]}], vocab_size=3, max_length=3)
    for decode in ALL_DECODERS.values():
        lm.calls.steps = 0
        settings = DecodingSettings(4, num_return_sequences=4, max_length=3)
        ((only,),) = decode(lm, lm.encode(*lm.inputs([[0]])), torch.zeros(1, 1), settings=settings)
        assert (only.token_ids, only.logprob, lm.calls.steps) == ((1,), 0.0, 1)


def test_finished_questions_leave_the_batch_and_the_search_stops() -> None:
    """EOS has .9 at once, so after one step nothing live can win: one step of three, and no second one is asked for."""
    lm = TableLM.from_distributions([{(): [0, 0.9, 0.1]}], vocab_size=3, max_length=3)
    settings = DecodingSettings(num_beams=1, max_length=3)
    ((best,),) = DECODERS["token_beam"](lm, lm.encode(*lm.inputs([[0]])), torch.zeros(1, 1), settings=settings)
    assert best.token_ids == (1,)
    assert lm.calls.steps == 1


def test_early_stopping_ends_with_the_first_full_set() -> None:
    """(1,) has .6 and comes first; (2, 1) has .4 * .9 = .36, but the penalty ranks it higher for its length."""
    lm = TableLM.from_distributions([{(): [0, 0.6, 0.4], (2,): [0.1, 0.9, 0.0]}], vocab_size=3, max_length=2)
    steps = []
    for early_stopping in (True, False):
        settings = DecodingSettings(1, max_length=2, early_stopping=early_stopping, length_penalty=9.0)
        ((best,),) = DECODERS["token_beam"](lm, lm.encode(*lm.inputs([[0]])), torch.zeros(1, 1), settings=settings)
        steps.append((best.token_ids, lm.calls.steps))
    assert steps == [((1,), 1), ((2, 1), 3)]


@every_decoder
def test_fewer_distinct_answers_give_a_shorter_list(name: str) -> None:
    """One passage twice, beam 1: both find the same answer, and ten are asked for."""
    lm = TableLM.random(0)
    settings = DecodingSettings(num_beams=1, num_return_sequences=10, max_length=3)
    (found,) = ALL_DECODERS[name](
        lm, lm.encode(*lm.inputs([[2, 2]])), torch.tensor([[0.5, 0.5]]).log(), settings=settings
    )
    assert len(found) == 1
    assert found[0].produced_by == (0, 1)


@every_decoder
def test_equal_answers_come_in_the_order_of_their_tokens(name: str) -> None:
    lm = TableLM.from_distributions([{}, {}], vocab_size=6, max_length=1)
    settings = DecodingSettings(num_beams=3, num_return_sequences=3, max_length=1)
    (found,) = ALL_DECODERS[name](
        lm, lm.encode(*lm.inputs([[0, 1]])), torch.tensor([[0.5, 0.5]]).log(), settings=settings
    )
    assert [h.token_ids for h in found] == [(0,), (1,), (2,)][: len(found)]


@pytest.mark.parametrize("name", DECODERS)
def test_the_order_of_tokens_also_beats_the_order_of_finishing(name: str) -> None:
    """(1,) and (0, 1) both have .25; the second ends later and comes first."""
    lm = TableLM.from_distributions([{(): [0.25, 0.25, 0.5], (0,): [0, 1, 0]}], vocab_size=3, max_length=2)
    settings = DecodingSettings(6, num_return_sequences=2, max_length=2)
    (found,) = DECODERS[name](lm, lm.encode(*lm.inputs([[0]])), torch.zeros(1, 1), settings=settings)
    assert found[0].logprob == found[1].logprob
    assert [h.token_ids for h in found] == [(0, 1), (1,)]


def test_impossible_answers_are_not_returned() -> None:
    """Only EOS is possible and it may not come first: no answer of two tokens exists."""
    lm = TableLM.from_distributions([{(): [0, 1, 0]}], vocab_size=3, max_length=2)
    settings = DecodingSettings(min_length=2, max_length=2)
    for decode in ALL_DECODERS.values():
        assert decode(lm, lm.encode(*lm.inputs([[0]])), torch.zeros(1, 1), settings=settings) == [[]]


@every_decoder
def test_a_generator_that_gives_nan_is_refused(name: str) -> None:
    lm = TableLM.random(0)
    lm.logits.data[1] = torch.nan
    with pytest.raises(RagxError, match="log-probabilities must be numbers, got nan"):
        ALL_DECODERS[name](
            lm,
            lm.encode(*lm.inputs([[0, 1]])),
            torch.zeros(1, 2).log_softmax(1),
            settings=DecodingSettings(max_length=3),
        )


def test_settings_report_all_problems_at_once() -> None:
    """Each of the fields that have a limit, in one error."""
    wrong = {
        "num_beams": (0, ">= 1"),
        "num_return_sequences": (-1, ">= 1"),
        "max_length": (1.5, ">= 1"),
        "min_length": (-3, "between 0 and max_length (1.5)"),
        "length_penalty": (math.inf, "finite"),
        "no_repeat_ngram_size": (True, ">= 0"),
        "forced_bos_token_id": ("0", ">= 0 or None"),
        "bad_token_ids": ((3, -1), "a tuple of numbers >= 0"),
        "temperature": (0.0, "> 0"),
        "top_p": (0.0, "above 0 and at most 1"),
        "top_k": (0, ">= 1 or None"),
        "max_sequences_in_flight": (0, ">= 1 or None"),
    }
    with pytest.raises(ConfigError, match="num_beams must be >= 1, got 0") as raised:
        DecodingSettings(**{name: value for name, (value, _) in wrong.items()})
    assert list(raised.value.problems) == [
        f"{name} must be {rule}, got {value}" for name, (value, rule) in wrong.items()
    ]


def test_min_length_may_not_exceed_max_length() -> None:
    with pytest.raises(ConfigError, match=re.escape("min_length must be between 0 and max_length (2), got 3")):
        DecodingSettings(min_length=3, max_length=2)


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_new_tokens'"):
        DecodingSettings(max_new_tokens=9)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("doc_logprobs", "message"),
    [
        (torch.zeros(3), "must be (B, K) with B and K >= 1, got (3,)"),
        (torch.zeros(0, 2), "must be (B, K) with B and K >= 1, got (0, 2)"),
        (torch.tensor([[0.0, 0.0]]), "must sum to one in probability over the passages, got [2.0]"),
        (torch.full((1, 2), -torch.inf), "must sum to one in probability over the passages, got [0.0]"),
        (torch.tensor([[0.0, torch.nan]]), "must sum to one in probability over the passages, got [nan]"),
    ],
)
def test_a_prior_that_is_no_distribution_is_refused(doc_logprobs: torch.Tensor, message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)):
        check_doc_logprobs(doc_logprobs)


def test_thorough_refuses_nan_met_only_in_rescoring() -> None:
    """Passage 1 is sound along its own beam and broken along the answer of passage 0."""
    lm = TableLM.from_distributions(
        [{(): [0, 0, 1, 0], (2,): [0, 1, 0, 0]}, {(): [0, 0, 0, 1], (3,): [0, 1, 0, 0]}], vocab_size=4, max_length=2
    )
    lm.logits.data[1, 3] = torch.nan  # the prefix (2,)
    encoded, prior = lm.encode(*lm.inputs([[0, 1]])), torch.zeros(1, 2).log_softmax(1)
    settings = DecodingSettings(num_beams=1, max_length=2)
    assert len(DECODERS["fast"](lm, encoded, prior, settings=settings)[0]) == 1
    with pytest.raises(RagxError, match="log-probabilities must be numbers, got nan"):
        DECODERS["thorough"](lm, encoded, prior, settings=settings)
