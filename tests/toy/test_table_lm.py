"""The toy world must itself be a probability distribution, and agree with itself, before it may judge a decoder."""

from __future__ import annotations

import math

import pytest
import torch

from ragx.protocols import Generator
from tests.toy.table_lm import TableLM


def test_is_a_generator() -> None:
    assert isinstance(TableLM.random(0), Generator)


@pytest.mark.parametrize("model", ["rag_sequence", "rag_token"])
@pytest.mark.parametrize("max_length", [1, 2, 3])
def test_answers_are_a_distribution(model: str, max_length: int) -> None:
    """Both likelihoods sum to one over all 1 + 3 + 36 answers of V = 4, T = 3, the cut ones included."""
    answers = getattr(TableLM.random(1), model)([0, 1, 2], [0.5, 0.3, 0.2], max_length=max_length)
    assert len(answers) == {1: 4, 2: 13, 3: 40}[max_length]
    assert sum(answers.values()) == pytest.approx(1.0, abs=1e-12)


def test_teacher_forcing_and_stepping_agree_with_the_enumeration() -> None:
    lm = TableLM.random(2, n_passages=2)
    encoded = lm.encode(*lm.inputs([[1, 0]], padding=3))
    for answer, probabilities in lm.answers(1, max_length=3).items():
        labels = torch.tensor([[*answer, *[-100] * (4 - len(answer))]])
        forced = lm.token_logprobs(encoded, labels, torch.tensor([0]))
        assert forced[0].exp().tolist() == pytest.approx([*probabilities, *[1.0] * (4 - len(answer))], abs=1e-6)
        state, token, stepped = lm.begin(encoded, torch.tensor([0])), lm.decoder_start_token_id, []
        for following in answer:
            logprobs, state = lm.next_logprobs(state, torch.tensor([token]))
            stepped.append(logprobs[0, following].exp().item())
            token = following
        assert stepped == pytest.approx(probabilities, abs=1e-6)


def test_distributions_are_kept_as_given() -> None:
    lm = TableLM.from_distributions([{(): [0.0, 0.5, 0.5], (2,): [0.2, 0.8, 0.0]}], vocab_size=3, max_length=2)
    answers = {y: math.prod(p) for y, p in lm.answers(0, max_length=2).items()}
    assert answers[(1,)] == pytest.approx(0.5)
    assert answers[(2, 1)] == pytest.approx(0.4)
    assert answers[(2, 2)] == 0.0


def test_refuses_a_decoder_that_forgets_the_start_token() -> None:
    lm = TableLM.random(0)
    state = lm.begin(lm.encode(*lm.inputs([[0]])), torch.tensor([0]))
    with pytest.raises(ValueError, match="must open with the start token"):
        lm.next_logprobs(state, torch.tensor([2]))
