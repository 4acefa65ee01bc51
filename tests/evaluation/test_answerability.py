"""Q-BLEU-1 against the authors' own test values and by hand."""

from __future__ import annotations

import math

import pytest

from ragx.errors import RagxError
from ragx.evaluation.answerability import SQUAD, Weights, answerability, q_bleu_1
from ragx.evaluation.generation import rouge_l

OURS, THEIRS = "Is this a great question?", "Is this a good question?"
# The weights of the test in the authors' repository.
THEIR_TEST = Weights(named_entities=0.6, content_words=0.1, question_words=0.2, delta=0.7)


def test_the_authors_test_values() -> None:
    answerable = answerability(prediction=OURS, reference=THEIRS, weights=THEIR_TEST)
    bleu_3 = (4 / 5 * 2 / 4 * 1 / 3) ** (1 / 3)
    assert bleu_3 == pytest.approx(0.511, abs=5e-4)
    assert 0.7 * answerable + 0.3 * bleu_3 == pytest.approx(0.678, abs=5e-4)
    rouge = rouge_l(prediction=OURS, references=[THEIRS])
    assert rouge == pytest.approx(0.8)
    assert 0.7 * answerable + 0.3 * rouge == pytest.approx(0.765, abs=5e-4)


def test_the_weights_tuned_on_squad() -> None:
    assert (SQUAD.named_entities, SQUAD.content_words, SQUAD.question_words, SQUAD.delta) == (0.41, 0.36, 0.20, 0.66)
    # Entity "Is" 1, content words "great question" 1/2, no question word 0, function words "is this a" 1.
    expected = 0.66 * (0.41 + 0.36 * 0.5 + 0.03) + 0.34 * 4 / 5
    assert q_bleu_1(prediction=OURS, references=[THEIRS]) == pytest.approx(expected)


def test_what_takes_the_next_word_along() -> None:
    # Question words "what country", entity "Lima", content "lies", function word "in" against "is" (case aside).
    found = answerability(prediction="what country is Lima in", reference="what country lies Lima in")
    function = 2 * (1 / 2 * 1 * math.exp(1 - 1 / 1)) * (1 / 1 * math.exp(1 - 2)) / (1 / 2 + math.exp(-1))
    assert found == pytest.approx(0.41 * 1 + 0.20 * 1 + 0.03 * function)


def test_only_a_question_with_all_four_classes_reaches_one() -> None:
    full = "Who led the army of Peru"
    assert q_bleu_1(prediction=full, references=[full]) == pytest.approx(1.0)
    assert q_bleu_1(prediction="x", references=["x"]) == pytest.approx(0.66 * 0.36 + 0.34)


def test_the_best_reference_counts_and_nothing_scores_nothing() -> None:
    assert q_bleu_1(prediction=OURS, references=["y", OURS]) == q_bleu_1(prediction=OURS, references=[OURS])
    assert q_bleu_1(prediction="", references=[THEIRS]) == q_bleu_1(prediction="?!", references=[THEIRS]) == 0.0
    with pytest.raises(RagxError, match="references must be a list of at least one question"):
        q_bleu_1(prediction=OURS, references=THEIRS)


def test_faults_e4_arguments_are_named() -> None:
    assert q_bleu_1(prediction="x y", references=["x y z w"]) < q_bleu_1(prediction="x y z w", references=["x y"])
    with pytest.raises(TypeError, match="positional"):
        q_bleu_1(OURS, [THEIRS])  # type: ignore[call-arg]
