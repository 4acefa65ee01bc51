"""`edition(as_of)`: the corpus as it stood on a date, every passage with its identity, span, hash and validity.

Four kinds of articles: a leader (one passage a term), the changes of power of a country (one passage a change), the
government of a country, and an office. Each passage also knows which facts it states; that is how questions find
their gold passages. A fact is a string such as `start:Peru:41`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from ragx.data.world_leaders import templates as t
from ragx.data.world_leaders.facts import (
    EDITIONS,
    Office,
    Spell,
    follows,
    offices,
    slug,
    spells,
    spells_until,
    spoken_month,
)
from ragx.records import Passage


@dataclass(frozen=True, slots=True)
class Stated:
    """A passage before it has its place in an article, and the facts it states."""

    source: str
    title: str
    text: str
    facts: frozenset[str]
    valid_from: str
    valid_to: str | None = None


def spell_passage(spell: Spell, earlier: Spell | None, later: Spell | None, salt: object) -> Stated:
    """The passage on one term of one leader."""
    key = (salt, spell.country, spell.number)
    slots = {
        "country": t.with_article(spell.country),
        "leader": spell.leader,
        "start": spoken_month(spell.start),
        **t.pronouns(spell.woman),
    }
    name = f"{spell.country}:{spell.number}"
    facts = {f"start:{name}", f"country:{name}"}
    if spell.end:
        slots["end"] = spoken_month(spell.end)
        facts.add(f"end:{name}")
    else:
        facts.add(f"leads:{spell.country}")
    body: list[str] = []
    if spell.birth_year:
        age = int(spell.start[:4]) - int(spell.birth_year)
        body.append(t.say(t.BIRTH, *key, "birth", birth=spell.birth_year, age=f"about {age}", **slots))
        facts.add(f"birth:{name}")
    if earlier is not None and follows(earlier, spell):
        body.append(t.say(t.BEFORE, *key, "before", earlier=earlier.leader, **slots))
        facts.add(f"handover:{spell.country}:{earlier.number}")
    if later is not None and follows(spell, later):
        body.append(t.say(t.AFTER, *key, "after", later=later.leader, **slots))
        facts.add(f"handover:{name}")
    if spell.military:
        body.append(t.say(t.MILITARY, *key, "career", **slots))
    if t.pick(("keep", "turn"), *key, "order") == "turn":
        body.reverse()
    opening = t.say(t.TERM if spell.end else t.TERM_OPEN, *key, "term", **slots)
    title = t.pick(("{leader}", "{leader}, leader of {country}", "{leader} ({country})"), *key, "title").format(**slots)
    source = f"leader/{slug(spell.country)}/{slug(spell.leader)}"
    return Stated(source, title, " ".join([opening, *body]), frozenset(facts), spell.start, None)


def handover_passage(earlier: Spell, later: Spell, salt: object) -> Stated:
    """The passage on one change of power."""
    key = (salt, earlier.country, earlier.number, "change")
    slots = {
        "country": t.with_article(earlier.country),
        "earlier": earlier.leader,
        "later": later.leader,
        "month": spoken_month(later.start),
        "since": spoken_month(earlier.start),
    }
    sentences = [t.say(t.HANDOVER, *key, **slots), t.say(t.HANDOVER_PAST, *key, "past", **slots)]
    facts = {f"handover:{earlier.country}:{earlier.number}"}
    facts |= {f"start:{later.country}:{later.number}", f"start:{earlier.country}:{earlier.number}"}
    facts |= {f"country:{spell.country}:{spell.number}" for spell in (earlier, later)}
    if earlier.end == later.start:
        facts.add(f"end:{earlier.country}:{earlier.number}")
    if later.end:
        sentences.append(t.say(t.HANDOVER_NEXT, *key, "next", until=spoken_month(later.end), **slots))
        facts.add(f"end:{later.country}:{later.number}")
    else:
        sentences.append(t.say(t.HANDOVER_OPEN, *key, "next", **slots))
        facts.add(f"leads:{later.country}")
    title = t.say(("Changes of power in {country}", "{country}: changes at the top"), salt, earlier.country, **slots)
    source = f"changes/{slug(earlier.country)}"
    return Stated(source, title, " ".join(sentences), frozenset(facts), later.start, None)


def government_passage(known: tuple[Spell, ...], as_of: str, salt: object) -> Stated | None:
    """The passage on who leads a country at the edition's date; None where nobody does."""
    spell = known[-1]
    if spell.end is not None:
        return None
    key = (salt, spell.country, "government")
    slots = {
        "country": t.with_article(spell.country),
        "leader": spell.leader,
        "start": spoken_month(spell.start),
        "as_of": spoken_month(as_of),
        "count": str(len(known)),
        "first": known[0].leader,
    }
    sentences = [t.say(options, *key, i, **slots) for i, options in enumerate((t.LEADS, t.LEADS_SINCE))]
    if len(known) > 2:
        sentences.append(t.say(t.LEADS_COUNT, *key, 2, **slots))
    facts = frozenset({f"leads:{spell.country}", f"start:{spell.country}:{spell.number}"})
    title = t.pick(("Government of {country}", "{country} (government)"), *key, "title").format(**slots)
    return Stated(f"government/{slug(spell.country)}", title, " ".join(sentences), facts, spell.start)


def office_passage(office: Office, as_of: str, salt: object) -> Stated:
    """The passage on one office and who holds it at the edition's date."""
    holder, since = office.holder(as_of)
    key = (salt, office.country, office.office)
    slots = {
        "country": t.with_article(office.country),
        "office": office.office,
        "holder": holder,
        "since": spoken_month(since),
        "as_of": spoken_month(as_of),
    }
    parts = (t.OFFICE, t.OFFICE_SINCE, t.OFFICE_PLACE, t.OFFICE_AS_OF)
    text = " ".join(t.say(options, *key, i, **slots) for i, options in enumerate(parts))
    name = f"{office.country}:{office.office}"
    facts = frozenset({f"office:{name}", f"office_since:{name}"})
    title = t.say(("{office} of {country}", "{country}: {office}"), *key, "title", **slots)
    return Stated(f"office/{slug(office.country)}/{slug(office.office)}", title, text, facts, since)


def country_passages(known: tuple[Spell, ...], as_of: str, salt: object) -> Iterator[Stated]:
    """All passages on the leaders of one country, given its spells as known at the edition's date."""
    neighbours = zip([None, *known[:-1]], known, [*known[1:], None], strict=True)
    for earlier, spell, later in neighbours:
        yield spell_passage(spell, earlier, later, salt)
    for earlier, later in pairwise(known):
        if follows(earlier, later):
            yield handover_passage(earlier, later, salt)
    government = government_passage(known, as_of, salt)
    if government is not None:
        yield government


def stated_passages(as_of: str) -> Iterator[Stated]:
    """Every passage of an edition in the order of its articles.

    Raises:
        ValueError: an edition that is not there.
    """
    if as_of not in EDITIONS:
        raise ValueError(f"as_of must be one of {', '.join(EDITIONS)}, got {as_of!r}. Choose an edition that exists.")
    for country_spells in spells().values():
        known = spells_until(country_spells, as_of)
        if known:
            yield from country_passages(known, as_of, 0)
    for office in offices():
        yield office_passage(office, as_of, 0)


@cache
def stated_edition(as_of: str) -> tuple[tuple[Passage, frozenset[str]], ...]:
    """The passages of an edition, sorted by source and chunk, each with the facts it states."""
    articles: dict[str, list[Stated]] = {}
    for stated in stated_passages(as_of):
        articles.setdefault(stated.source, []).append(stated)
    placed: list[tuple[Passage, frozenset[str]]] = []
    for source in sorted(articles):
        start = 0
        for chunk, stated in enumerate(articles[source]):
            span = (start, start + len(stated.text))
            start = span[1] + 1
            passage = Passage(
                source,
                as_of,
                str(chunk),
                stated.title,
                stated.text,
                span,
                valid_from=stated.valid_from,
                valid_to=stated.valid_to,
            )
            placed.append((passage, stated.facts))
    return tuple(placed)


def edition(as_of: str) -> list[Passage]:
    """The corpus as it stood at `as_of` (`2016-12` or `2018-12`): the same passages, byte for byte, at every call."""
    return [passage for passage, _ in stated_edition(as_of)]
