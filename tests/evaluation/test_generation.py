"""BLEU-1 against sacrebleu, ROUGE against rouge-score, and the ways in which others got them wrong."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU

from ragx.errors import RagxError
from ragx.evaluation.generation import bleu_1, bleu_counts, rouge_l, rouge_lsum, sentences

PEER = BLEU(lowercase=True, max_ngram_order=1)
WORDS = ["the", "The", "cat", "sat", "on", "mat,", "mat", "dog's", "U.S.", "3.5", "well-known", "a", "(x)", "end."]


def drawn(chosen: random.Random, least: int = 1) -> str:
    return " ".join(chosen.choices(WORDS, k=chosen.randint(least, 9)))


def corpus(predictions: list[str], references: list[list[str]]) -> float:
    counts = [bleu_counts(prediction=p, references=r) for p, r in zip(predictions, references, strict=True)]
    return float(bleu_1(np.sum(counts, axis=0)))


def test_bleu_1_is_sacrebleus_corpus_figure_on_random_corpora() -> None:
    chosen = random.Random(0)
    for _ in range(200):
        n = chosen.randint(1, 5)
        predictions = [drawn(chosen, 0) for _ in range(n)]
        references = [[drawn(chosen), drawn(chosen)] for _ in range(n)]
        expected = PEER.corpus_score(predictions, list(map(list, zip(*references, strict=True))))
        assert corpus(predictions, references) == pytest.approx(expected.score / 100, abs=1e-12)


def test_bleu_1_by_hand() -> None:
    # Papineni 2002, section 2.1: "the" seven times against a reference that has it twice.
    counts = bleu_counts(prediction="the the the the the the the", references=["The cat is on the mat"])
    assert tuple(counts) == (2, 7, 6)
    assert float(bleu_1(np.array(counts))) == pytest.approx(2 / 7)


def test_the_nearest_length_counts() -> None:
    assert bleu_counts(prediction="a b c", references=["a", "a b c d", "x x x x x x x"]).reference_words == 4


def test_faults_e6_references_are_not_transposed() -> None:
    predictions, references = ["a good answer", "wrong"], [["a good answer"], ["something else entirely"]]
    expected = PEER.corpus_score(predictions, [[r[0] for r in references]])
    found = corpus(predictions, references)
    assert found == pytest.approx(expected.score / 100) and found < 1.0
    assert corpus(predictions[::-1], references[::-1]) == found
    with pytest.raises(RagxError, match="references must be a list of at least one text, got 'a good answer'"):
        bleu_counts(prediction="a good answer", references="a good answer")


def test_bleu_of_nothing_is_zero() -> None:
    assert tuple(bleu_counts(prediction="", references=["a b"])) == (0, 0, 2)
    assert bleu_1(np.zeros((2, 3))).tolist() == [0.0, 0.0]


def test_rouge_is_rouge_scores_own_where_texts_are_ascii() -> None:
    chosen = random.Random(1)
    peer = RougeScorer(["rougeL", "rougeLsum"])
    for _ in range(200):
        prediction, reference = drawn(chosen, 0), drawn(chosen)
        expected = peer.score(reference, prediction)
        assert rouge_l(prediction=prediction, references=[reference]) == pytest.approx(expected["rougeL"].fmeasure)
        lines = [sentences(text) for text in (reference, prediction)]
        summed = peer.score(*lines)["rougeLsum"].fmeasure
        assert rouge_lsum(prediction=prediction, references=[reference]) == pytest.approx(summed)


def test_rouge_by_hand() -> None:
    # Lin 2004, section 3: S1 police killed the gunman, S2 police kill the gunman, S3 the gunman kill police.
    truth = ["police killed the gunman"]
    assert rouge_l(prediction="police kill the gunman", references=truth) == pytest.approx(3 / 4)
    assert rouge_l(prediction="the gunman kill police", references=truth) == pytest.approx(2 / 4)
    assert rouge_l(prediction="the gunman kill police", references=[*truth, "the gunman kill police"]) == 1.0


def test_rouge_keeps_letters_outside_ascii() -> None:
    assert rouge_l(prediction="Müller Łódź", references=["muller lodz"]) == 0.0
    assert rouge_l(prediction="Mu\u0308ller", references=["M\u00fcller"]) == 1.0
    assert rouge_l(prediction="東京", references=["東京"]) == 1.0
    assert rouge_l(prediction="", references=["x"]) == rouge_l(prediction="x", references=["?"]) == 0.0


def test_faults_e5_sentences_are_split_before_they_are_united() -> None:
    prediction, reference = "d e f.\na b c.", "a b c.\nd e f."
    assert rouge_lsum(prediction=prediction, references=[reference]) == 1.0
    assert rouge_l(prediction=prediction, references=[reference]) == 0.5
    flat = rouge_lsum(prediction="d e f. a b c.", references=["a b c. d e f."])
    assert flat == 1.0
    assert RougeScorer(["rougeLsum"]).score("a b c. d e f.", "d e f. a b c.")["rougeLsum"].fmeasure == 0.5


def test_faults_e4_prediction_and_reference_are_not_swapped() -> None:
    short, long = "x y", "x y z w"
    assert float(bleu_1(np.array(bleu_counts(prediction=short, references=[long])))) == pytest.approx(
        math.exp(1 - 4 / 2)
    )
    assert float(bleu_1(np.array(bleu_counts(prediction=long, references=[short])))) == pytest.approx(0.5)
    metrics: list[Any] = [bleu_counts, rouge_l, rouge_lsum]
    for metric in metrics:
        with pytest.raises(TypeError, match="positional"):
            metric(short, [long])
