"""Whether two passages take turns in a text, by hand."""

from __future__ import annotations

import math

import pytest

from ragx.evaluation.columns import columns
from ragx.evaluation.mixture import two_passages
from ragx.records import AnswerTokens, Example, PassageKey, Prediction, RetrievedPassage

PRIOR = (0.6, 0.4)


def logs(*rows: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(math.log, row)) for row in rows)


@pytest.mark.parametrize(
    ("prior", "probabilities", "expected"),
    [
        (PRIOR, ((0.9, 0.1), (0.3, 0.9)), 1.0),  # .54 : .12, then .06 : .36
        ((0.5, 0.5), ((0.9, 0.6), (0.3, 0.6)), 0.0),  # .45 : .15, then .30 : .30
        (PRIOR, ((0.9, 0.5), (0.3, 0.7)), 0.0),  # .30 : .28
        ((0.4, 0.3, 0.3), ((0.5, 0.1), (0.5, 0.2), (0.5, 0.2)), 0.0),  # .2 : .15 : .15 is no half, nor .04 : .06 : .06
        ((1.0, 0.0), ((0.1, 0.1), (0.9, 0.9)), 0.0),  # a passage without prior
    ],
)
def test_two_passages(prior: tuple[float, ...], probabilities: tuple[tuple[float, ...], ...], expected: float) -> None:
    assert two_passages(prior, logs(*probabilities)) == expected


def test_a_text_without_tokens_comes_from_no_two() -> None:
    assert two_passages(PRIOR, ((), ())) == 0.0


def prediction(number: int, kind: str, *, tokens: bool = True) -> Prediction:
    passages = tuple(
        RetrievedPassage(PassageKey(f"p{z}", "1", "0"), "t", "x y", "0" * 64, -float(z), prior, prior, (0, 3))
        for z, prior in enumerate(PRIOR)
    )
    answer_tokens = AnswerTokens(((0, 1), (2, 3)), logs((0.9, 0.1), (0.3, 0.9)))
    return Prediction(
        str(number), "q", "x y", -1.0, (("x y", -1.0),), passages, (), 0, {"kind": kind},
        answer_tokens if tokens else None,
    )  # fmt: skip


def test_only_rag_token_is_counted() -> None:
    predictions = [prediction(0, "rag_token"), prediction(1, "rag_sequence"), prediction(2, "rag_token", tokens=False)]
    pairs = [(p, Example(p.id, "q", ("x y",))) for p in predictions]
    found = columns(pairs, task="question_generation", ks=[1])
    assert found["two_passages"].rows == [1.0, None, None]
