"""Clues: two facts that no one passage states, never the leader's name, and splits that share no passage."""

from __future__ import annotations

import re

import pytest

from ragx.data.world_leaders.clues import PER_SPLIT, clues
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.facts import slug
from ragx.data.world_leaders.questions import SPLITS

YEAR, MONTH = re.compile(r"\b\d{4}\b"), re.compile(r"\b[A-Z][a-z]+ \d{4}\b")


def facts(clue: str) -> tuple[str, str]:
    """The year of birth and the month that a clue gives."""
    month = MONTH.search(clue)
    assert month is not None
    (birth,) = set(YEAR.findall(clue.replace(month[0], "")))
    return birth, month[0]


@pytest.mark.parametrize("split", SPLITS)
def test_both_facts_stand_in_the_gold_passages_and_never_in_one(split: str) -> None:
    by_key = {passage.key: passage.text for passage in edition("2016-12")}
    assert 0 < len(clues(split)) <= PER_SPLIT[split]
    for example in clues(split):
        birth, month = facts(example.answers[0])
        leader, country = example.query.split(" of ", 1)
        source = f"leader/{slug(country.removeprefix('the '))}/{slug(leader)}"
        texts = {key: by_key[key] for key in example.gold}
        own = [text for key, text in texts.items() if key.source == source]
        assert len(own) == 1 and birth in YEAR.findall(MONTH.sub("", own[0])) and month not in own[0], example
        assert any(month in text for text in texts.values()), example


def test_a_clue_does_not_name_its_leader() -> None:
    for example in clues("train") + clues("test"):
        leader, _, _ = example.query.partition(" of ")
        assert not re.search(rf"\b{re.escape(leader)}\b", example.answers[0]), example


def test_splits_share_no_gold_passage_and_no_leader() -> None:
    gold = {split: {key for example in clues(split) for key in example.gold} for split in SPLITS}
    assert not gold["train"] & gold["test"] and not gold["train"] & gold["dev"] and not gold["dev"] & gold["test"]
    assert not {e.query for e in clues("train")} & {e.query for e in clues("test")}
    assert len({e.id for e in clues("train")}) == len(clues("train")) > 1100
    assert len(clues("test")) == PER_SPLIT["test"]


def test_a_seed_gives_the_same_clues_and_another_seed_others() -> None:
    assert clues("test", 0) == clues("test", 0)
    assert clues("test", 0) != clues("test", 1)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split must be one of train, dev, test, got 'all'"):
        clues("all")
