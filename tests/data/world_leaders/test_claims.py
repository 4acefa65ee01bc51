"""Claims: labels that the passages bear out, as many of each, and splits that share no passage."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ragx.data.world_leaders.claims import CIVILIAN, IN_POWER, LABELS, SOLDIER, claims
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.facts import slug, spoken_month
from ragx.data.world_leaders.questions import SPLITS, known_spells
from ragx.records import Example

ARMY = re.compile(r"armed forces|soldier")


def read(claim: str) -> tuple[str, str]:
    """The leader that a claim names, and which phrasings it is of."""
    for name, phrasings in (("in_power", IN_POWER), ("soldier", SOLDIER), ("civilian", CIVILIAN)):
        for phrasing in phrasings:
            pattern = re.escape(phrasing).replace(r"\{leader\}", "(?P<l>.+)").replace(r"\{country\}", ".+")
            found = re.fullmatch(pattern, claim) or re.fullmatch(pattern, claim[:1].lower() + claim[1:])
            if found:
                return found["l"], name
    raise AssertionError(claim)


@pytest.mark.parametrize("split", SPLITS)
def test_there_are_as_many_claims_of_each_label_within_each_kind(split: str) -> None:
    counts = Counter((example.kind, example.answers[0]) for example in claims(split))
    assert {kind for kind, _ in counts} == {"in_power", "career"}
    for kind in ("in_power", "career"):
        assert len({counts[kind, label] for label in LABELS}) == 1 and counts[kind, LABELS[0]] >= 7


def test_claims_that_lack_evidence_are_of_leaders_or_careers_that_no_passage_tells() -> None:
    passages = edition("2016-12")
    texts = "\n".join(f"{passage.title} {passage.text}" for passage in passages)
    unknown = [e for split in SPLITS for e in claims(split) if e.answers == ("NOT_ENOUGH_INFO",)]
    for example in unknown:
        leader, _ = read(example.query)
        assert example.gold == ()
        if example.kind == "in_power":
            assert leader not in texts, example
        else:
            source = f"leader/{slug(example.id.split('/')[2].split(':')[0])}/{slug(leader)}"
            own = [passage.text for passage in passages if passage.key.source == source]
            assert own and not any(ARMY.search(text) for text in own), example


@pytest.mark.parametrize("split", SPLITS)
def test_gold_passages_bear_the_label_out(split: str) -> None:
    by_key = {passage.key: passage for passage in edition("2016-12")}
    for example in [e for e in claims(split) if e.gold]:
        leader, form = read(example.query)
        found = [by_key[key] for key in example.gold]
        assert all(leader.lower() in f"{passage.title} {passage.text}".lower() for passage in found), example
        if form == "in_power":
            (end,) = {
                spell.end
                for rows in known_spells("2016-12").values()
                for spell in rows
                if spell.leader.lower() == leader.lower()
            }
            assert example.answers == ("SUPPORTS" if end is None else "REFUTES",)
            assert end is None or all(spoken_month(end) in passage.text for passage in found), example
        else:
            assert [passage.key.source.split("/")[0] for passage in found] == ["leader"]
            assert ARMY.search(found[0].text)
            assert example.answers == ("SUPPORTS" if form == "soldier" else "REFUTES",)


def test_labels_become_words_and_two_labels_leave_the_third_out() -> None:
    words = {"SUPPORTS": "T", "REFUTES": "F"}
    two = claims("test", words)
    assert Counter(e.answers[0] for e in two) == {"T": len(two) // 2, "F": len(two) // 2}

    def told(examples: list[Example]) -> list[tuple[str, str]]:
        return [(e.id, words.get(e.answers[0], e.answers[0])) for e in examples]

    assert told(two) == [row for row in told(claims("test")) if row[1] in "TF"]
    assert claims("test", {}) == claims("test")


def test_splits_share_no_gold_passage_and_ids_are_unique() -> None:
    gold = {split: {key for example in claims(split) for key in example.gold} for split in SPLITS}
    assert not gold["train"] & gold["test"] and not gold["train"] & gold["dev"] and not gold["dev"] & gold["test"]
    for split in SPLITS:
        assert len({example.id for example in claims(split)}) == len(claims(split))


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split must be one of train, dev, test, got 'all'"):
        claims("all")
