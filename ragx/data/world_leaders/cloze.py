"""Single sentences on the facts of a corpus with one name or date masked, for pretraining (salient spans, as REALM).

A cloze pair is the sentence, the masked span and the passages that state the fact, which say it in other words. Facts
come from the 2016-12 edition and from invented countries, so that a reader learns to copy names it has never seen.
No question of any split is ever made here.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from ragx.data.world_leaders import templates as t
from ragx.data.world_leaders.editions import Stated, country_passages, office_passage, stated_passages
from ragx.data.world_leaders.facts import EDITIONS, Office, Spell, follows, offices, spells, spells_until, spoken_month
from ragx.data.world_leaders.names import NameMaker

AS_OF = EDITIONS[0]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact, the ways to say it and the slots that may be masked."""

    fact: str
    phrasings: tuple[str, ...]
    slots: dict[str, str]
    maskable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cloze:
    """A sentence whose `{mask}` hides `answer`, a passage that states it, one that does not, and the fact.

    Attributes:
        sentence: with `{mask}` where the answer was.
        positive, negative: (title, text); the negative is about the same country where there is one.
        fact: for telling false negatives in a batch; unique per invented country.
        positive_facts, negative_facts: all facts that the positive and the negative state.
    """

    sentence: str
    answer: str
    positive: tuple[str, str]
    negative: tuple[str, str]
    fact: str
    positive_facts: frozenset[str]
    negative_facts: frozenset[str]


def statements(known: Sequence[Spell]) -> Iterator[Statement]:
    """Everything that can be said in one sentence about the leaders of one country."""
    for spell, later in zip(known, [*known[1:], None], strict=True):
        name = f"{spell.country}:{spell.number}"
        slots = {"country": t.with_article(spell.country), "leader": spell.leader, "start": spoken_month(spell.start)}
        yield Statement(f"start:{name}", t.START, slots, ("leader", "start", "country"))
        yield Statement(f"start:{name}", t.SHORT_START, slots, ("start",))
        yield Statement(f"country:{name}", t.LED, slots, ("country",))
        if spell.birth_year:
            yield Statement(f"birth:{name}", t.BIRTH_SENTENCE, {**slots, "birth": spell.birth_year}, ("birth",))
        if spell.end:
            ended = {**slots, "end": spoken_month(spell.end)}
            yield Statement(f"end:{name}", t.END, ended, ("end", "leader"))
            yield Statement(f"end:{name}", t.SHORT_END, ended, ("end",))
        else:
            yield Statement(f"leads:{spell.country}", t.LEADS_SENTENCE, slots, ("leader", "leader", "country"))
        if later is not None and follows(spell, later):
            change = {
                "country": slots["country"],
                "earlier": spell.leader,
                "later": later.leader,
                "month": spoken_month(later.start),
            }
            yield Statement(f"handover:{name}", t.HANDOVER, change, ("earlier", "later", "month"))
            yield Statement(f"handover:{name}", t.SUCCESSION, change, ("earlier", "later"))


def office_statements(office: Office) -> Iterator[Statement]:
    """Everything that can be said in one sentence about one office."""
    holder, since = office.holder(AS_OF)
    slots = {
        "country": t.with_article(office.country),
        "office": office.office,
        "holder": holder,
        "since": spoken_month(since),
    }
    name = f"{office.country}:{office.office}"
    yield Statement(f"office:{name}", t.OFFICE, slots, ("holder",))
    yield Statement(f"office_since:{name}", t.OFFICE_SENTENCE, slots, ("since", "holder"))


class ClozeMaker:
    """Draws cloze pairs; every draw depends only on the generator of random numbers that is passed in.

    Args:
        invented: share of the pairs that are about invented leaders.
        offices: share of the pairs that are about offices.
        renewed: share of the invented pairs in which invented people lead a real country or hold its real offices; the
            other ones are about invented countries. It teaches a retriever to find a country whoever leads it.
        familiar: share of the words of invented names that are words of real names.
        rivals: share of the pairs about an office or a present leader whose negative says the same of another country:
            what tells the two apart is the country alone.
    """

    def __init__(
        self,
        *,
        invented: float,
        offices: float = 0.25,
        renewed: float = 0.0,
        familiar: float = 0.0,
        rivals: float = 0.0,
    ) -> None:
        self.invented, self.offices, self.renewed, self.rivals = invented, offices, renewed, rivals
        self.real, self.real_passages, self.by_country = _real_statements(), _real_passages(), _passages_by_country()
        self.names = NameMaker(familiar=familiar)

    def draw(self, rng: random.Random) -> Cloze:
        """One cloze pair."""
        if rng.random() < self.invented:
            said, stated = self._invent(rng)
            candidates = {s.fact: [p for p in stated if s.fact in p.facts] for s in said}
        else:
            of_office = rng.random() < self.offices
            said = self.real[of_office]
            candidates, stated = self.real_passages, []
        statement = said[rng.randrange(len(said))]
        positive = _choose(rng, candidates[statement.fact])
        pool = [*stated, *self.by_country.get(statement.fact.split(":")[1], ())]
        others = [passage for passage in pool if statement.fact not in passage.facts]
        negative = _choose(rng, others or [p for p in pool if p is not positive] or [positive])
        if self.rivals > 0 and rng.random() < self.rivals:
            negative = self._rival(rng, statement) or negative
        masked = _choose(rng, statement.maskable)
        sentence = _choose(rng, [p for p in statement.phrasings if "{" + masked + "}" in p])
        sentence = sentence.format(**{**statement.slots, masked: "{mask}"})
        sentence = sentence[:1].upper() + sentence[1:]
        return Cloze(
            sentence,
            statement.slots[masked],
            (positive.title, positive.text),
            (negative.title, negative.text),
            statement.fact,
            positive.facts,
            negative.facts,
        )

    def _rival(self, rng: random.Random, statement: Statement) -> Stated | None:
        """What the same office, or the government, of another country would be said to be; None for other facts."""
        kind, country, *title = statement.fact.split(":")
        if kind == "leads":
            return _choose(rng, [p for fact, p in _governments() if fact != statement.fact])
        if not kind.startswith("office"):
            return None
        is_real = country in _countries()
        other = _choose(rng, [name for name in _countries() if name != country]) if is_real else self.names.country(rng)
        post = Office(other, title[0], ((self.names.leader(rng), _month(rng, 1990, 2016)),))
        known = [office for office in offices() if (office.country, office.office) == (other, title[0])]
        return office_passage(known[0] if known and rng.random() < 0.5 else post, AS_OF, rng.random())

    def passage(self, rng: random.Random) -> tuple[str, str]:
        """(title, text) of a passage for denoising, real or invented in the same shares."""
        if rng.random() < self.invented:
            stated: Sequence[Stated] = self._invent(rng)[1]
        else:
            stated = self.by_country[_choose(rng, sorted(self.by_country))]
        chosen = _choose(rng, stated)
        return chosen.title, chosen.text

    def _invent(self, rng: random.Random) -> tuple[list[Statement], list[Stated]]:
        """A country with a few invented leaders or two offices that they hold: what can be said, and the passages."""
        is_real = self.renewed > 0 and rng.random() < self.renewed
        country = _choose(rng, _countries()) if is_real else self.names.country(rng)
        salt = rng.random()
        if rng.random() < self.offices:
            titles = rng.sample(_office_titles(), 2)
            if is_real and (held := _offices_of(country)):
                titles[0] = _choose(rng, held)
            posts = [Office(country, title, ((self.names.leader(rng), _month(rng, 1990, 2016)),)) for title in titles]
            said = [statement for post in posts for statement in office_statements(post)]
            return said, [office_passage(post, AS_OF, salt) for post in posts]
        known: list[Spell] = []
        months = rng.randrange(1945 * 12, 2005 * 12)
        for number in range(rng.randint(3, 5)):
            start, months = months, months + rng.randrange(1, 110)
            is_open = months > 2016 * 12 + 10
            birth = str(start // 12 - rng.randint(30, 75)) if rng.random() < 0.92 else None
            known.append(
                Spell(
                    country,
                    number,
                    self.names.leader(rng),
                    _iso(start),
                    None if is_open else _iso(months),
                    birth,
                    rng.random() < 0.1,
                    rng.random() < 0.2,
                )
            )
            if is_open:
                break
        return list(statements(known)), list(country_passages(tuple(known), AS_OF, salt))


def _choose(rng: random.Random, options: Sequence[T]) -> T:
    return options[rng.randrange(len(options))]


def _iso(months: int) -> str:
    return f"{months // 12:04d}-{months % 12 + 1:02d}"


def _month(rng: random.Random, first: int, last: int) -> str:
    return _iso(rng.randrange(first * 12, last * 12))


@cache
def _office_titles() -> list[str]:
    return sorted({office.office for office in offices()})


@cache
def _countries() -> list[str]:
    return sorted({*spells(), *(office.country for office in offices())})


@cache
def _governments() -> list[tuple[str, Stated]]:
    of_all = _real_passages()
    found = ((fact, p) for fact in sorted(of_all) if fact.startswith("leads:") for p in of_all[fact])
    return [(fact, passage) for fact, passage in found if passage.source.startswith("government/")]


@cache
def _offices_of(country: str) -> list[str]:
    return sorted({office.office for office in offices() if office.country == country})


@cache
def _real_statements() -> tuple[list[Statement], list[Statement]]:
    known = [spells_until(rows, AS_OF) for rows in spells().values()]
    about_spells = [statement for rows in known for statement in statements(rows)]
    return about_spells, [statement for office in offices() for statement in office_statements(office)]


@cache
def _real_passages() -> dict[str, list[Stated]]:
    by_fact: dict[str, list[Stated]] = defaultdict(list)
    for stated in stated_passages(AS_OF):
        for fact in sorted(stated.facts):  # the order of a set is another one in every process
            by_fact[fact].append(stated)
    return dict(by_fact)


@cache
def _passages_by_country() -> dict[str, list[Stated]]:
    by_country: dict[str, dict[str, Stated]] = defaultdict(dict)
    for fact, passages in _real_passages().items():
        for stated in passages:
            by_country[fact.split(":")[1]][stated.text] = stated
    return {country: list(passages.values()) for country, passages in by_country.items()}
