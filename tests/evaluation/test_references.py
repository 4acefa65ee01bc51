"""The metrics of our own on 200 random cases each, against a package or their definition written out another way."""

from __future__ import annotations

import random
import re
import unicodedata

import pytest
from sacrebleu.metrics.bleu import BLEU

from ragx.evaluation.answerability import SQUAD, answerability, q_bleu_1
from ragx.evaluation.answers import has_answer
from ragx.evaluation.columns import columns
from ragx.evaluation.patterns import found_in, regex_match
from ragx.evaluation.significance import aggregate
from ragx.records import Example, Prediction

CASES = 200
# By the class that Nema and Khapra put a word in; `what` and `which` are left to a test of their own.
CLASSES = (
    ["Lima", "Peru", "Alan", "Santiago"],
    ["leads", "river", "capital", "old", "1999"],
    ["who", "when", "where", "how"],
    ["the", "of", "in", "is", "was"],
)
SENTENCE_BLEU = BLEU(max_ngram_order=1, effective_order=True, tokenize="none", smooth_method="none")


def bleu_of(words: list[str], reference: list[str]) -> float:
    if not words or not reference:
        return 0.0
    return float(SENTENCE_BLEU.sentence_score(" ".join(words).lower(), [" ".join(reference).lower()]).score) / 100


def f1_of(words: list[str], reference: list[str]) -> float:
    there, back = bleu_of(words, reference), bleu_of(reference, words)
    return 2 * there * back / (there + back) if there + back else 0.0


def drawn_question(chosen: random.Random) -> list[list[str]]:
    return [chosen.choices(words, k=chosen.randint(0, 3)) for words in CLASSES]


def test_q_bleu_1_is_made_of_sacrebleus_bleu_1_of_each_class() -> None:
    chosen = random.Random(0)
    shares, different = (0.41, 0.36, 0.20, 0.03), set()
    for _ in range(CASES):
        ours, theirs = drawn_question(chosen), drawn_question(chosen)
        if not any(ours) or not any(theirs):
            continue
        asked, wanted = ([word for words in question for word in words] for question in (ours, theirs))
        chosen.shuffle(asked)  # order within a question moves neither its classes nor a unigram
        answerable = sum(share * f1_of(a, b) for share, a, b in zip(shares, ours, theirs, strict=True))
        found = answerability(prediction=" ".join(asked), reference=" ".join(wanted))
        assert found == pytest.approx(answerable, abs=1e-9)
        expected = 0.66 * answerable + 0.34 * bleu_of(asked, wanted)
        assert q_bleu_1(prediction=" ".join(asked), references=[" ".join(wanted)]) == pytest.approx(expected, abs=1e-9)
        different.add(round(found, 6))
    assert len(different) > 100
    assert SQUAD.function_words == pytest.approx(0.03)


def test_patterns_are_found_as_pythons_own_module_finds_them() -> None:
    chosen = random.Random(1)
    parts = [r"19\d\d", "Sept?(ember)?", r"New\s?York", r"\b42\b", "^lima", "peru$", "(a|e)+", "[A-C]x", "x{2}", r"\."]
    words = ["1999", "September", "new york", "NewYork", "42", "142", "Lima", "Peru", "bx", "xx", "U.S.", "\n"]
    seen = []
    for _ in range(CASES):
        patterns = chosen.sample(parts, chosen.randint(1, 3))
        if chosen.random() < 0.5:
            patterns = ["|".join(patterns)]
        text = " ".join(chosen.choices(words, k=chosen.randint(0, 4)))
        expected = any(re.search(pattern, text, re.IGNORECASE | re.MULTILINE) for pattern in patterns)
        assert regex_match(prediction=text, patterns=patterns) == float(expected)
        assert found_in(text=text, patterns=patterns) is expected
        seen.append(expected)
    assert 40 < sum(seen) < 160


def test_has_answer_is_dprs_test_of_tokens_in_a_row() -> None:
    """DPR's `has_answer`: both in tokens of letters and digits or single signs, lower case, one inside the other."""
    chosen = random.Random(2)
    words = ["Lima", "lima,", "(Lima)", "1976", "19760", "New York", "new", "York.", "Jos\u00e9", "Jose\u0301", "U.S."]
    seen = []
    for _ in range(CASES):
        text = " ".join(chosen.choices(words, k=chosen.randint(0, 6)))
        wanted = [" ".join(chosen.choices(words, k=chosen.randint(1, 2))) for _ in range(chosen.randint(1, 2))]

        def row(value: str) -> str:
            letters = unicodedata.normalize("NFC", value).lower()
            return "\0" + "\0".join(re.findall(r"\w+|[^\w\s]", letters)) + "\0"

        expected = any(row(answer) in row(text) for answer in wanted)
        assert has_answer(text, wanted) is expected
        seen.append(expected)
    assert 40 < sum(seen) < 160


def test_label_accuracy_is_the_share_of_equal_labels() -> None:
    chosen = random.Random(3)
    labels = ["true", "false", "unknown"]
    for _ in range(CASES):
        truth = chosen.choices(labels, k=chosen.randint(1, 9))
        said = chosen.choices([*labels, "", "truefalse"], k=len(truth))
        pairs = [
            (Prediction(str(i), "x", a, -1.0, (), (), (), 0, {}), Example(str(i), "x", (b,)))
            for i, (a, b) in enumerate(zip(said, truth, strict=True))
        ]
        rows = [row for row in columns(pairs, task="fact_verification", ks=[1])["label_accuracy"].rows]
        accuracy = sum(a == b for a, b in zip(said, truth, strict=True)) / len(truth)
        assert aggregate([float(row) for row in rows if isinstance(row, float)]).value == pytest.approx(accuracy)
