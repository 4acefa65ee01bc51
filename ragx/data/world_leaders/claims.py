"""Section 3.4 in small: claims that the passages support, refute, or say nothing about (FEVER).

    kind       SUPPORTS                 REFUTES                     NOT_ENOUGH_INFO
    in_power   the present leader       one whose term is over      a leader whom no passage names
    career     "soldier" of a soldier   "civilian" of a soldier     either, of one whose career no passage tells

One decision: the words of a claim say little of its label. Which leader is meant, and what the passages say of him,
decides; a reader without passages can only learn how often each kind of claim is true.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ragx.data.world_leaders import templates as t
from ragx.data.world_leaders.facts import EDITIONS
from ragx.data.world_leaders.names import NameMaker
from ragx.data.world_leaders.questions import gold_passages, known_spells, leads_once, require_split, split_of
from ragx.records import Example

LABELS = ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO")
IN_POWER = (
    "{leader} is in charge of {country} now.",
    "The present leader of {country} is {leader}.",
    "{country} is under {leader} at present.",
)
SOLDIER = ("{leader} of {country} had served in the army.", "{leader} of {country} was a soldier before.")
CIVILIAN = ("{leader} of {country} never was in the armed forces.", "{leader} of {country} had a civilian career.")


@dataclass(frozen=True, slots=True)
class _Claim:
    kind: str
    label: str
    fact: str  # whose passages decide
    phrasings: tuple[str, ...]
    slots: dict[str, str]


def claims(split: str, labels: Mapping[str, str] | None = None, seed: int = 0) -> list[Example]:
    """Claims about the 2016-12 edition, as many of each label; the same at every call with the same seed.

    Args:
        split: `train`, `dev` or `test`; the countries are those of the questions of that split.
        labels: the target word of each label; claims of another label are left out. Empty or None keeps the labels.
        seed: draws the countries of the splits, the claims and the phrasings.

    Raises:
        ValueError: a split that is not there.
    """
    require_split(split)
    words = labels or {label: label for label in LABELS}
    gold = gold_passages(EDITIONS[0])
    examples = []
    for claim in _drawn(split, seed):
        if claim.label in words:
            text = t.say(claim.phrasings, seed, "claim", claim.fact, claim.label, **claim.slots)
            stating = [key for key in gold[claim.fact] if claim.kind == "in_power" or key.source.startswith("leader/")]
            keys = () if claim.label == "NOT_ENOUGH_INFO" else tuple(stating)
            name = f"{claim.kind}/{claim.label.lower()}/{claim.fact.split(':', 1)[1]}"
            examples.append(Example(name, text, (words[claim.label],), claim.kind, keys, EDITIONS[0]))
    return examples


def _drawn(split: str, seed: int) -> list[_Claim]:
    """As many claims of each kind with each label, in random order."""
    groups: dict[str, dict[str, list[_Claim]]] = defaultdict(lambda: defaultdict(list))
    for claim in _claims(seed):
        if split_of(claim.fact.split(":")[1], seed) == split:
            groups[claim.kind][claim.label].append(claim)
    rng = random.Random(f"{seed}:{split}:claims")
    drawn: list[_Claim] = []
    for group in groups.values():
        fewest = min(len(rows) for rows in group.values())
        drawn += [claim for rows in group.values() for claim in rng.sample(rows, fewest)]
    rng.shuffle(drawn)
    return drawn


@cache
def _claims(seed: int) -> tuple[_Claim, ...]:
    """Every claim that may be drawn."""
    return tuple(_made(seed))


def _made(seed: int) -> Iterator[_Claim]:
    """One claim of each kind of each leader with one term, and one of nobody for each country."""
    names, once = NameMaker(), leads_once(EDITIONS[0])
    known = " ".join(names.known).lower()
    for country, rows in known_spells(EDITIONS[0]).items():
        rng = random.Random(f"{seed}:{country}:claims")
        for spell in rows:
            name = f"{country}:{spell.number}"
            slots = {"country": t.with_article(country), "leader": spell.leader}
            if once(spell.leader):
                label, fact = ("REFUTES", f"end:{name}") if spell.end else ("SUPPORTS", f"leads:{country}")
                yield _Claim("in_power", label, fact, IN_POWER, slots)
                told = rng.choice((SOLDIER, CIVILIAN))
                label = "SUPPORTS" if told is SOLDIER else "REFUTES"
                yield _Claim("career", label if spell.military else "NOT_ENOUGH_INFO", f"country:{name}", told, slots)
        nobody = names.leader(rng)
        while nobody.lower() in known:
            nobody = names.leader(rng)
        unknown = {"country": t.with_article(country), "leader": nobody[:1].upper() + nobody[1:]}
        yield _Claim("in_power", "NOT_ENOUGH_INFO", f"start:{country}:{rows[-1].number}", IN_POWER, unknown)
