"""The corpus of an edition: identity, spans, hashes, validity, and that it states what it claims to state."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import defaultdict

import pytest

from ragx.data.world_leaders.editions import edition, stated_edition
from ragx.data.world_leaders.facts import EDITIONS, Spell, follows, offices, spells, spells_until
from ragx.records import text_sha256

# A change of facts or templates changes the pretrained checkpoints' corpus: regenerate both, then this digest.
DIGESTS = {
    "2016-12": "2073fdeb07a9d1bab574b3990420686b4790998e0ea2d8ffe915c8489033df28",
    "2018-12": "c7f7dc08a3702e1c56187d2e179c7dc643a6ad5a873fa51d713bb1c0535609c9",
}


def digest(as_of: str) -> str:
    rows = [json.dumps(passage.to_json(), sort_keys=True, ensure_ascii=False) for passage in edition(as_of)]
    return hashlib.sha256("\n".join(rows).encode("utf-8")).hexdigest()


@pytest.mark.parametrize("as_of", EDITIONS)
def test_an_edition_is_the_same_to_the_byte(as_of: str) -> None:
    assert digest(as_of) == DIGESTS[as_of]


def test_an_edition_does_not_depend_on_the_hash_seed() -> None:
    code = "from tests.data.world_leaders.test_editions import digest; print(digest('2016-12'))"
    outputs = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                       capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert outputs == {DIGESTS["2016-12"] + "\n"}


@pytest.mark.parametrize("as_of", EDITIONS)
def test_every_passage_has_its_identity_span_and_hash(as_of: str) -> None:
    passages = edition(as_of)
    assert len(passages) >= 4000
    assert len({passage.key for passage in passages}) == len(passages)
    articles: dict[str, str] = defaultdict(str)
    for passage in passages:
        assert passage.version == as_of
        assert passage.sha256 == text_sha256(passage.text)
        assert passage.valid_from is not None and passage.valid_from <= as_of and passage.valid_to is None
        articles[passage.source] += ("\n" if articles[passage.source] else "") + passage.text
    for passage in passages:
        assert passage.span is not None
        assert articles[passage.source][slice(*passage.span)] == passage.text


def test_an_edition_knows_nothing_of_later_months() -> None:
    for passage in edition("2016-12"):
        assert "2017" not in passage.text and "2018" not in passage.text, passage.key


def test_the_same_fact_is_said_in_different_words() -> None:
    by_fact: dict[str, list[str]] = defaultdict(list)
    for passage, facts in stated_edition("2016-12"):
        for fact in facts:
            by_fact[fact].append(passage.text)
    said_twice = [texts for texts in by_fact.values() if len(texts) > 1]
    assert len(said_twice) > 4000
    assert all(len(set(texts)) == len(texts) for texts in said_twice)


def test_a_passage_states_its_facts() -> None:
    start = {f"start:{s.country}:{s.number}": s for rows in spells().values() for s in rows}
    checked = 0
    for passage, facts in stated_edition("2018-12"):
        for fact in facts:
            if fact in start and fact.startswith("start:"):
                assert start[fact].leader.lower() in passage.text.lower(), passage
                assert start[fact].start[:4] in passage.text, passage
                checked += 1
    assert checked > 6000


def test_the_changed_offices_differ_between_the_editions() -> None:
    changed = [office for office in offices() if office.changed]
    assert (len(changed), len(offices())) == (92, 230)
    texts = {as_of: {p.source: p.text for p in edition(as_of)} for as_of in EDITIONS}
    for office in changed:
        source = next(
            s
            for s in texts["2016-12"]
            if s.startswith("office/") and office.holder("2016-12")[0] in texts["2016-12"][s]
        )
        assert texts["2016-12"][source] != texts["2018-12"][source]


def test_an_end_after_the_edition_is_still_open() -> None:
    rows = (Spell("Peru", 0, "A", "2011-07", "2016-07", None, False, False),
            Spell("Peru", 1, "B", "2016-07", "2018-03", None, False, False),
            Spell("Peru", 2, "C", "2018-03", None, None, False, False))  # fmt: skip
    known = spells_until(rows, "2016-12")
    assert [(spell.leader, spell.end) for spell in known] == [("A", "2016-07"), ("B", None)]
    assert follows(*known) and not follows(known[1], rows[2])


def test_an_unknown_edition_is_refused() -> None:
    with pytest.raises(ValueError, match="as_of must be one of 2016-12, 2018-12, got '2017-12'"):
        edition("2017-12")
