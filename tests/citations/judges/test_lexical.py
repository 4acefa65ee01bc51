"""How much of a claim's wording a few sentences hold."""

from __future__ import annotations

import math

import pytest

from ragx.citations.judges.lexical import LexicalJudge, WordWeights
from ragx.errors import RagxError
from ragx.records import Passage


def passage(text: str, title: str = "") -> Passage:
    return Passage("s", "v1", "a", title, text)


def test_the_share_of_content_words_by_hand() -> None:
    judge = LexicalJudge(full=0.7, partial=0.5)
    texts = [passage("The lease allowed three cats.")]
    assert judge.score("The lease allows cats and dogs.", texts) == pytest.approx(3 / 4)
    assert judge.judge("The lease allows cats and dogs.", texts) == "full"
    assert judge.judge("The lease bans dogs, allows cats, birds.", texts) == "partial"
    assert judge.judge("Trains run late.", texts) == "none"


def test_rare_words_weigh_more() -> None:
    weights = WordWeights.of(["the city", "a city", "a lynx"])
    assert weights["city"] == pytest.approx(math.log(1 + 3 / 2.5))
    assert weights["lynx"] == pytest.approx(math.log(1 + 3 / 1.5))
    judge = LexicalJudge(weights=weights)
    held = judge.score("city lynx", [passage("lynx")])
    assert held == pytest.approx(weights["lynx"] / (weights["lynx"] + weights["city"]))


def test_words_must_stand_near_each_other_in_one_passage() -> None:
    text = "Cats came. One. Two. Three. Dogs left."
    assert LexicalJudge(window=3).score("cats dogs", [passage(text)]) == pytest.approx(0.5)
    assert LexicalJudge(window=5).score("cats dogs", [passage(text)]) == pytest.approx(1.0)


def test_several_passages_and_titles_add_up() -> None:
    judge = LexicalJudge()
    assert judge.score("cats dogs birds", [passage("Cats."), passage("Dogs.", "Birds")]) == pytest.approx(1.0)


def test_chinese_is_compared_by_pairs() -> None:
    assert LexicalJudge().score("住宿限额", [passage("差旅住宿限制")]) == pytest.approx(2 / 3)


def test_nothing_to_compare_is_not_judged() -> None:
    judge = LexicalJudge()
    assert judge.judge("It is so.", [passage("It is so.")]) == "not_judged"
    assert judge.judge("Cats.", []) == "not_judged"
    assert judge.score("Cats.", [passage("")]) == 0.0


def test_thresholds_out_of_order_are_refused() -> None:
    with pytest.raises(RagxError, match="thresholds must be 0 <= partial <= full <= 1, got 0.9 and 0.5"):
        LexicalJudge(full=0.5, partial=0.9)
    with pytest.raises(RagxError, match="window must be >= 1 sentence, got 0"):
        LexicalJudge(window=0)
