"""Exact match and F1, against SQuAD's script written out and against hand values."""

from __future__ import annotations

import random
import re
import string
from collections import Counter

import pytest

from ragx.errors import RagxError
from ragx.evaluation import answers


def squad_normalize(s: str) -> str:
    """The function of SQuAD's evaluate-v1.1.py, line by line."""
    s = "".join(ch for ch in s.lower() if ch not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())


def squad_f1(prediction: str, truth: str) -> float:
    ours, theirs = squad_normalize(prediction).split(), squad_normalize(truth).split()
    same = sum((Counter(ours) & Counter(theirs)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(ours), same / len(theirs)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel Tower!", "eiffel tower"),
        ("U.S.A.", "usa"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),
        ("a\tb\nc", "b c"),
        ("The", ""),
        ("ÉTE\u0301", "\u00e9t\u00e9"),
    ],
)
def test_normal_form(text: str, expected: str) -> None:
    assert answers.normalize_answer(text) == expected


def test_agrees_with_squad_on_random_texts() -> None:
    words = ["the", "a", "An", "Paris", "paris,", "U.S.", "42", "forty-two", "(x)", "theme", "é"]
    chosen = random.Random(0)
    for _ in range(200):
        prediction, truth = (" ".join(chosen.choices(words, k=chosen.randint(1, 5))) for _ in range(2))
        if not squad_normalize(truth):
            continue
        assert answers.exact_match(prediction=prediction, answers=[truth]) == (
            squad_normalize(prediction) == squad_normalize(truth)
        )
        assert answers.f1(prediction=prediction, answers=[truth]) == pytest.approx(squad_f1(prediction, truth))


def test_the_best_accepted_answer_counts() -> None:
    assert answers.exact_match(prediction="ollanta humala", answers=["Humala", "Ollanta Humala"]) == 1.0
    assert answers.f1(prediction="ollanta humala", answers=["Peru", "Humala"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("", "The", 0.0),
        ("The", "The", 1.0),
        ("!!!", "!!!", 1.0),
        ("???", "!!!", 0.0),
        ("", "!!!", 0.0),
        ("a", "The", 0.0),
        ("The", "x", 0.0),
    ],
)
def test_an_answer_without_normal_form_is_compared_as_written(prediction: str, answer: str, expected: float) -> None:
    assert answers.exact_match(prediction=prediction, answers=[answer]) == expected
    assert answers.f1(prediction=prediction, answers=[answer]) == expected


def test_precision_and_recall_are_not_swapped() -> None:
    # FAULTS E4, with words that are no articles.
    result = answers.overlap(prediction="x y", answer="x y z w")
    assert result == pytest.approx((1.0, 0.5, 2 / 3))
    assert answers.overlap(prediction="x x x", answer="x") == pytest.approx((1 / 3, 1.0, 0.5))


def test_two_spellings_of_one_letter_are_equal() -> None:
    assert answers.exact_match(prediction="Jose\u0301", answers=["Jos\u00e9"]) == 1.0


def test_swapped_arguments_are_refused() -> None:
    with pytest.raises(RagxError, match="answers must be a list of at least one accepted answer, got 'Paris'"):
        answers.exact_match(prediction="Paris", answers="Paris")
    with pytest.raises(RagxError, match="prediction must be text"):
        answers.f1(prediction=["Paris"], answers=["Paris"])  # type: ignore[arg-type]
    with pytest.raises(RagxError, match=r"got \[\]"):
        answers.exact_match(prediction="Paris", answers=[])


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("Annual report", "Ann", False),
        ("by Ann, annually", "ann", True),
        ("in 19760 cases", "1976", False),
        ("from 2016-12 on", "2016", True),
        ("Jose\u0301 won", "Jos\u00e9", True),
        ("new\nyork city", "New York", True),
        ("anything", " ", False),
    ],
)
def test_has_answer_takes_whole_tokens(text: str, answer: str, expected: bool) -> None:
    assert answers.has_answer(text, [answer]) is expected
