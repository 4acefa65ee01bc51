"""Questions on the embedded knowledge base, with answers and gold passages, split so that no gold passage is shared.

The splits go by country: every passage on the leaders of a country belongs to one split. Offices whose holder changed
between the editions are asked about only in the hot-swap questions (section 4.5 of the paper), never in training.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ragx.data.world_leaders import templates as t
from ragx.data.world_leaders.editions import stated_edition
from ragx.data.world_leaders.facts import (
    EDITIONS,
    Office,
    Spell,
    follows,
    offices,
    spells,
    spells_until,
    spoken_month,
)
from ragx.records import Example, PassageKey

SPLITS = ("train", "dev", "test")
PER_KIND = {"train": 600, "dev": 20, "test": 60}


@dataclass(frozen=True, slots=True)
class _Asked:
    """A fact that may be asked about: the kind of question, the answers and the slots of its phrasings."""

    kind: str
    fact: str
    answers: tuple[str, ...]
    slots: dict[str, str]


@cache
def split_of(country: str, seed: int) -> str:
    """The split of a country: about 70% train, 10% dev, 20% test. States that followed one another stay together."""
    together = {
        "Soviet Union": "Russia",
        "Yugoslavia": "Serbia",
        "West Germany": "Germany",
        "East Germany": "Germany",
        "Czechoslovakia": "Czechia",
        "North Yemen": "Yemen",
        "South Yemen": "Yemen",
        "South Vietnam": "Vietnam",
    }
    return t.pick(("train",) * 7 + ("dev",) + ("test",) * 2, seed, "split", together.get(country, country))


def require_split(split: str) -> None:
    """Raises ValueError where `split` is none of `SPLITS`."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}. Choose one of them.")


def questions(split: str, seed: int = 0) -> list[Example]:
    """The questions of a split about the 2016-12 edition; the same at every call with the same seed.

    Args:
        split: `train` (at most 600 a kind), `dev` (20 a kind) or `test` (60 a kind).
        seed: draws the countries of the splits, the facts asked about and the phrasings.

    Raises:
        ValueError: a split that is not there.
    """
    require_split(split)
    gold = gold_passages(EDITIONS[0])
    by_kind: dict[str, list[_Asked]] = defaultdict(list)
    for asked in _facts_to_ask(EDITIONS[0]):
        if split_of(asked.fact.split(":")[1], seed) == split and asked.fact in gold:
            by_kind[asked.kind].append(asked)
    drawn: list[Example] = []
    for kind, phrasings in t.QUESTIONS.items():
        rows = sorted(by_kind[kind], key=lambda asked: asked.fact)
        random.Random(f"{seed}:{split}:{kind}").shuffle(rows)
        for asked in rows[: PER_KIND[split]]:
            query = t.pick(phrasings, seed, split, kind, asked.fact).format(**asked.slots)
            name = f"{kind}/{asked.fact.split(':', 1)[1]}"
            drawn.append(Example(name, query, asked.answers, kind, gold[asked.fact], EDITIONS[0]))
    random.Random(f"{seed}:{split}").shuffle(drawn)
    return drawn


def hot_swap_questions(as_of: str, seed: int = 0) -> list[Example]:
    """One question for each of the 92 offices whose holder changed, with the holder at `as_of` as the answer."""
    gold = gold_passages(as_of)
    return [
        Example(
            f"hot_swap/{office.country}:{office.office}",
            t.pick(t.QUESTIONS["office_holder"], seed, "hot_swap", office.country, office.office).format(
                country=t.with_article(office.country), office=office.office
            ),
            (office.holder(as_of)[0],),
            "office_holder",
            gold[f"office:{office.country}:{office.office}"],
            as_of,
        )
        for office in offices()
        if office.changed
    ]


@cache
def gold_passages(as_of: str) -> Mapping[str, tuple[PassageKey, ...]]:
    """The keys of the passages that state each fact."""
    gold: dict[str, list[PassageKey]] = defaultdict(list)
    for passage, facts in stated_edition(as_of):
        for fact in facts:
            gold[fact].append(passage.key)
    return {fact: tuple(sorted(keys)) for fact, keys in gold.items()}


def known_spells(as_of: str) -> dict[str, tuple[Spell, ...]]:
    """The spells of each country as they were known at an edition."""
    return {country: spells_until(rows, as_of) for country, rows in spells().items()}


def leads_once(as_of: str) -> Callable[[str], bool]:
    """Whether a name belongs to one leader with one term: only then does it say which term is meant."""
    terms = Counter(spell.leader for rows in known_spells(as_of).values() for spell in rows)
    return lambda name: terms[name] == 1


def _facts_to_ask(as_of: str) -> Iterator[_Asked]:
    """Every fact that has one answer: terms of leaders who had one term only and share their name with nobody."""
    once = leads_once(as_of)
    for rows in known_spells(as_of).values():
        for spell, later in zip(rows, [*rows[1:], None], strict=True):
            yield from _ask_spell(spell, later, once=once)
    for office in offices():
        if not office.changed:
            yield from _ask_office(office, as_of)


def _ask_spell(spell: Spell, later: Spell | None, *, once: Callable[[str], bool]) -> Iterator[_Asked]:
    name, country = f"{spell.country}:{spell.number}", t.with_article(spell.country)
    slots = {"country": country, "leader": spell.leader}
    if later is not None and follows(spell, later):
        if once(spell.leader):
            yield _Asked("successor", f"handover:{name}", (later.leader,), slots)
        if once(later.leader):
            yield _Asked("predecessor", f"handover:{name}", (spell.leader,), {**slots, "leader": later.leader})
    if later is None and spell.end is None:
        yield _Asked("who_leads", f"leads:{spell.country}", _names(spell), slots)
    if not once(spell.leader):
        return
    yield _Asked("took_office", f"start:{name}", (spoken_month(spell.start),), slots)
    yield _Asked("country_led", f"country:{name}", (spell.country,), slots)
    if spell.end:
        yield _Asked("left_office", f"end:{name}", (spoken_month(spell.end),), slots)
    if spell.birth_year:
        yield _Asked("birth_year", f"birth:{name}", (spell.birth_year,), slots)


def _ask_office(office: Office, as_of: str) -> Iterator[_Asked]:
    holder, since = office.holder(as_of)
    slots = {"country": t.with_article(office.country), "office": office.office, "holder": holder}
    name = f"{office.country}:{office.office}"
    yield _Asked("office_holder", f"office:{name}", (holder,), slots)
    yield _Asked("office_since", f"office_since:{name}", (spoken_month(since),), slots)


def _names(spell: Spell) -> tuple[str, ...]:
    """The leader's name and the fuller form under which an office of the country lists the same person."""
    words = set(spell.leader.lower().split())
    fuller = [
        holder
        for office in offices()
        if office.country == spell.country
        for holder, _ in office.holders
        if words <= set(holder.lower().split())
    ]
    return tuple(dict.fromkeys([spell.leader, *fuller]))
