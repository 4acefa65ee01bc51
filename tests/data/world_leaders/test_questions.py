"""Questions: answers that stand in the gold passages, splits that share none, and the hot-swap pairs."""

from __future__ import annotations

from collections import Counter

import pytest

from ragx.data.world_leaders.cloze import ClozeMaker
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.questions import SPLITS, hot_swap_questions, questions, split_of
from ragx.data.world_leaders.templates import QUESTIONS


def test_splits_share_no_gold_passage() -> None:
    gold = {split: {key for example in questions(split) for key in example.gold} for split in SPLITS}
    assert not gold["train"] & gold["test"] and not gold["train"] & gold["dev"] and not gold["dev"] & gold["test"]
    swapped = {key for example in hot_swap_questions("2016-12") for key in example.gold}
    assert not gold["train"] & swapped


@pytest.mark.parametrize("split", SPLITS)
def test_every_gold_passage_states_the_answer(split: str) -> None:
    by_key = {passage.key: passage for passage in edition("2016-12")}
    for example in questions(split):
        assert example.gold
        for key in example.gold:
            text = f"{by_key[key].title} {by_key[key].text}".lower()
            assert any(answer.lower() in text for answer in example.answers), (example, by_key[key])


def test_there_are_nine_kinds_and_enough_of_each() -> None:
    counts = {split: Counter(example.kind for example in questions(split)) for split in SPLITS}
    assert set(counts["test"]) == set(QUESTIONS) and len(QUESTIONS) == 9
    assert min(counts["test"].values()) >= 30
    assert sum(counts["train"].values()) > 3900
    ids = [example.id for example in questions("test")]
    assert len(ids) == len(set(ids))


def test_a_seed_gives_the_same_questions_and_another_seed_others() -> None:
    assert questions("test", 0) == questions("test", 0)
    assert questions("test", 0) != questions("test", 1)


def test_states_that_followed_one_another_share_a_split() -> None:
    for seed in range(20):
        assert split_of("Soviet Union", seed) == split_of("Russia", seed)


def test_hot_swap_questions_ask_the_same_of_both_editions() -> None:
    before, after = hot_swap_questions("2016-12"), hot_swap_questions("2018-12")
    assert len(before) == 92
    assert [e.query for e in before] == [e.query for e in after]
    assert all(b.answers != a.answers for b, a in zip(before, after, strict=True))
    assert {key.version for example in after for key in example.gold} == {"2018-12"}


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split must be one of train, dev, test, got 'validation'"):
        questions("validation")


def test_cloze_pairs_are_answered_by_their_positive_and_are_no_questions() -> None:
    import random

    maker = ClozeMaker(invented=0.5)
    rng = random.Random(3)
    asked = {example.query for split in SPLITS for example in questions(split)}
    for _ in range(400):
        draw = maker.draw(rng)
        title, text = draw.positive
        assert draw.sentence.count("{mask}") == 1
        assert draw.answer.removeprefix("the ").lower() in f"{title} {text}".lower(), draw
        assert draw.positive != draw.negative
        assert draw.sentence not in asked and "?" not in draw.sentence
    again = random.Random(3)
    assert maker.draw(again) == ClozeMaker(invented=0.5).draw(random.Random(3))
