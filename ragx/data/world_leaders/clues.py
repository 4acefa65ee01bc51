"""Section 3.3 in small: a leader goes in, a clue with two facts comes out that never names the leader (Jeopardy).

One decision: the two facts never stand in one passage. The year of birth is in the leader's own article, and when the
predecessor came or the successor went is in other articles, so a whole clue needs two passages. That is what figure 2
of the paper shows of RAG-Token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from ragx.data.world_leaders import templates as t
from ragx.data.world_leaders.facts import EDITIONS, Spell, follows, spoken_month
from ragx.data.world_leaders.questions import gold_passages, known_spells, leads_once, require_split, split_of
from ragx.records import Example

PER_SPLIT = {"train": 1200, "dev": 60, "test": 100}
CLUES = {
    "rise": (
        "Born in {birth}, this leader took over from {earlier}, who had been in power since {since}.",
        "This leader, whose year of birth is {birth}, came after {earlier}, who had ruled from {since} on.",
        "{earlier}, in power since {since}, made way for this leader, who was born in {birth}.",
    ),
    "fall": (
        "Born in {birth}, this leader was succeeded by {later}, who stayed in power until {until}.",
        "This leader, whose year of birth is {birth}, was followed by {later}, who ruled until {until}.",
        "{later}, in power until {until}, took over from this leader, who was born in {birth}.",
    ),
}


@dataclass(frozen=True, slots=True)
class _Clue:
    kind: str
    spell: Spell
    facts: tuple[str, str]
    slots: dict[str, str]


def clues(split: str, seed: int = 0) -> list[Example]:
    """Leaders as queries and clues as answers, about the 2016-12 edition; the same at every call with the same seed.

    Args:
        split: `train` (at most 1,200), `dev` (60) or `test` (100), of the countries of the questions of that split.
        seed: draws the countries of the splits, the leaders and the phrasings.

    Raises:
        ValueError: a split that is not there.
    """
    require_split(split)
    gold = gold_passages(EDITIONS[0])
    found = [clue for clue in _clues() if split_of(clue.spell.country, seed) == split]
    random.Random(f"{seed}:{split}:clues").shuffle(found)
    examples = []
    for clue in found[: PER_SPLIT[split]]:
        name = f"{clue.spell.country}:{clue.spell.number}"
        text = t.say(CLUES[clue.kind], seed, "clue", name, **clue.slots)
        query = f"{clue.spell.leader} of {t.with_article(clue.spell.country)}"
        keys = tuple(sorted({key for fact in clue.facts for key in gold[fact]}))
        examples.append(Example(f"clue/{name}", query, (text,), clue.kind, keys, EDITIONS[0]))
    return examples


def _clues() -> Iterator[_Clue]:
    """Of every leader with one term and a known year of birth: how the term began, else how it ended.

    Left out are a leader whose own article gives the month of the other fact, and one whose name is a word of the clue.
    """
    once = leads_once(EDITIONS[0])
    for rows in known_spells(EDITIONS[0]).values():
        for earlier, spell, later in zip([None, *rows[:-1]], rows, [*rows[1:], None], strict=True):
            if spell.birth_year is None or not once(spell.leader):
                continue
            own = {spoken_month(month) for month in (spell.start, spell.end) if month}
            for clue in _of_spell(earlier, spell, later):
                if not own & set(clue.slots.values()) and spell.leader not in " ".join(clue.slots.values()):
                    yield clue


def _of_spell(earlier: Spell | None, spell: Spell, later: Spell | None) -> Iterator[_Clue]:
    birth = f"birth:{spell.country}:{spell.number}"
    if earlier is not None and follows(earlier, spell):
        slots = {"birth": str(spell.birth_year), "earlier": earlier.leader, "since": spoken_month(earlier.start)}
        yield _Clue("rise", spell, (birth, f"start:{earlier.country}:{earlier.number}"), slots)
    elif later is not None and follows(spell, later) and later.end is not None:
        slots = {"birth": str(spell.birth_year), "later": later.leader, "until": spoken_month(later.end)}
        yield _Clue("fall", spell, (birth, f"end:{later.country}:{later.number}"), slots)
