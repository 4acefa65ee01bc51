"""How facts are said: several phrasings a fact, for passages, for single sentences and for questions.

Slots: {country} {leader} {start} {end} {birth} {earlier} {later} {month} {office} {holder} {since} {as_of} {He} {he}
{his}.
A passage uses one phrasing, a cloze sentence another one, so that reading is never string matching.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

TERM = (
    "{leader} led {country} from {start} to {end}.",
    "{leader} was the leader of {country}; the term began in {start} and ended in {end}.",
    "From {start} until {end}, {country} was governed by {leader}.",
    "{leader} took office in {country} in {start} and left it in {end}.",
    "At the head of {country} stood {leader}, who came to power in {start} and gave it up in {end}.",
    "{leader} governed {country} between {start} and {end}.",
)
TERM_OPEN = (
    "{leader} has led {country} since {start}.",
    "{leader} is the leader of {country}; the term began in {start} and goes on.",
    "Since {start}, {country} has been governed by {leader}.",
    "{leader} took office in {country} in {start} and is still at its head.",
)
START = (
    "{leader} came to power in {country} in {start}.",
    "In {start}, {leader} became the leader of {country}.",
    "The rule of {leader} over {country} started in {start}.",
    "{leader} entered office in {country} in {start}.",
)
END = (
    "{leader} gave up power in {country} in {end}.",
    "In {end}, the rule of {leader} over {country} was over.",
    "{leader} left office in {country} in {end}.",
    "The last month of {leader} as leader of {country} was {end}.",
)
BIRTH = (
    "{He} was born in {birth}.",
    "The year of {his} birth is {birth}.",
    "Born in {birth}, {he} was {age} years old when the term began.",
    "{His} year of birth was {birth}.",
)
BIRTH_SENTENCE = (
    "{leader} of {country} was born in {birth}.",
    "The year in which {leader} was born is {birth}.",
    "{leader}, leader of {country}, had {birth} as year of birth.",
)
BEFORE = (
    "{He} took over from {earlier}.",
    "{His} predecessor was {earlier}.",
    "The country had been led by {earlier} before.",
    "{He} came after {earlier}.",
)
AFTER = (
    "{He} was succeeded by {later}.",
    "{His} successor was {later}.",
    "Next at the head of the country was {later}.",
    "{later} took over afterwards.",
)
MILITARY = ("{He} had made a career in the armed forces.", "{He} was a soldier by profession.")
HANDOVER = (
    "In {month}, power in {country} passed from {earlier} to {later}.",
    "{later} replaced {earlier} at the head of {country} in {month}.",
    "{earlier} made way for {later} in {country} in {month}.",
    "The change from {earlier} to {later} in {country} took place in {month}.",
    "When {earlier} stepped down in {month}, {later} became the leader of {country}.",
)
HANDOVER_PAST = (
    "{earlier} had been in power since {since}.",
    "The rule of {earlier} had started in {since}.",
    "{earlier} had held power from {since} on.",
)
HANDOVER_NEXT = (
    "{later} stayed in power until {until}.",
    "The rule of {later} lasted until {until}.",
    "{later} held on to power up to {until}.",
)
HANDOVER_OPEN = ("{later} is in power to this day.", "{later} still leads the country.")
LEADS = (
    "As of {as_of}, {country} is led by {leader}.",
    "The leader of {country} at the end of {as_of} is {leader}.",
    "In {as_of}, {leader} stands at the head of {country}.",
    "{country} has {leader} as its leader as of {as_of}.",
)
LEADS_SINCE = (
    "{leader} came to power in {start}.",
    "The term began in {start}.",
    "{leader} has been in power since {start}.",
)
LEADS_COUNT = (
    "The list of leaders of {country} since 1945 has {count} entries, and {first} is the earliest.",
    "Since 1945 the records of {country} name {count} terms, beginning with {first}.",
)
OFFICE = (
    "The {office} of {country} is {holder}.",
    "{holder} holds the office of {office} of {country}.",
    "{holder} is the {office} of {country}.",
    "In {country}, the office of {office} is held by {holder}.",
    "{holder} serves {country} as {office}.",
)
OFFICE_SINCE = (
    "{holder} has been in this office since {since}.",
    "The present holder entered office in {since}.",
    "The term in office began in {since}.",
    "{holder} was sworn in during {since}.",
)
OFFICE_AS_OF = ("This entry was checked in {as_of}.", "The entry describes the situation of {as_of}.")
OFFICE_PLACE = (
    "The post is one of the highest in the state.",
    "It ranks among the leading posts of the country.",
    "The office is listed among the chief posts of {country}.",
)
OFFICE_SENTENCE = (
    "{holder} became {office} of {country} in {since}.",
    "Since {since}, {holder} has held the office of {office} of {country}.",
    "As {office} of {country}, {holder} took up the post in {since}.",
)
SHORT_START = ("{leader} took office in {start}.", "The term of {leader} began in {start}.")
SHORT_END = ("{leader} left office in {end}.", "The term of {leader} ended in {end}.")
LED = ("{leader} led {country}.", "The country of {leader} was {country}.", "{leader} was in power in {country}.")
LEADS_SENTENCE = (
    "{leader} leads {country}.",
    "The leader of {country} is {leader}.",
    "{country} is governed by {leader}.",
)
SUCCESSION = (
    "After {earlier}, {country} was led by {later}.",
    "Before {later}, {country} was led by {earlier}.",
    "The successor of {earlier} in {country} was {later}.",
    "The predecessor of {later} in {country} was {earlier}.",
)

QUESTIONS = {
    "who_leads": (
        "Who leads {country}?",
        "Who is the leader of {country}?",
        "Who is at the head of {country}?",
        "Which person governs {country}?",
    ),
    "took_office": (
        "When did {leader} of {country} take office?",
        "When did {leader} come to power in {country}?",
        "In which month did the rule of {leader} over {country} begin?",
        "When did {leader} take office?",
    ),
    "left_office": (
        "When did {leader} of {country} leave office?",
        "When did {leader} give up power in {country}?",
        "In which month did the rule of {leader} over {country} end?",
        "When did {leader} leave office?",
    ),
    "predecessor": (
        "Who led {country} before {leader}?",
        "Who was the predecessor of {leader} in {country}?",
        "From whom did {leader} take over in {country}?",
        "Whom did {leader} follow as leader of {country}?",
    ),
    "successor": (
        "Who led {country} after {leader}?",
        "Who was the successor of {leader} in {country}?",
        "Who took over from {leader} in {country}?",
        "Who followed {leader} as leader of {country}?",
    ),
    "country_led": (
        "Which country did {leader} lead?",
        "What country was governed by {leader}?",
        "Of which country was {leader} the leader?",
        "Where was {leader} in power?",
    ),
    "birth_year": (
        "In which year was {leader} of {country} born?",
        "When was {leader} of {country} born?",
        "What is the year of birth of {leader}, leader of {country}?",
        "In which year was {leader} born?",
    ),
    "office_holder": (
        "Who is the {office} of {country}?",
        "Who holds the office of {office} of {country}?",
        "Who serves {country} as {office}?",
        "What is the name of the {office} of {country}?",
    ),
    "office_since": (
        "Since when has {holder} been {office} of {country}?",
        "When did {holder} become {office} of {country}?",
        "In which month did {holder} enter office as {office} of {country}?",
        "When did the term of {holder} as {office} of {country} begin?",
    ),
}

ARTICLE = frozenset({
    "United States", "United Kingdom", "Netherlands", "Philippines", "Soviet Union", "Dominican Republic", "Maldives",
    "Central African Republic", "Marshall Islands", "Solomon Islands", "Comoros", "Seychelles", "United Arab Emirates",
    "Federated States of Micronesia", "British Virgin Islands", "Cayman Islands", "Falkland Islands",
    "Holy See (Vatican City)",
})  # fmt: skip


def pick(options: Sequence[str], *key: object) -> str:
    """One of `options`, chosen by a digest of `key`: the same on every machine and in every Python version."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in key).encode("utf-8")).digest()
    return options[int.from_bytes(digest[:8], "big") % len(options)]


def say(options: Sequence[str], *key: object, **slots: str) -> str:
    """One phrasing with its slots filled, its first letter a capital."""
    sentence = pick(options, *key).format(**slots)
    return sentence[:1].upper() + sentence[1:]


def with_article(country: str) -> str:
    """A country as it is named inside a sentence."""
    return f"the {country}" if country in ARTICLE else country


def pronouns(woman: bool) -> dict[str, str]:
    """The slots {He}, {he}, {his} and {His}."""
    he, his = ("she", "her") if woman else ("he", "his")
    return {"he": he, "He": he.capitalize(), "his": his, "His": his.capitalize()}
