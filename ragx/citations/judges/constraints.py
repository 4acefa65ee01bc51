"""What a claim states exactly must stand in the passages: numbers with units, dates, names, negation.

    contradict   a sentence says nearly the same with another number, date or negation
    none         a number, date or name of the claim is nowhere in the passages
    not_judged   nothing of the kind is wrong, which proves nothing

One decision: this judge is a veto. It never says `full`; that every number is there does not mean that the passages
say it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from ragx.citations.judges.quantities import Quantity, names_unit, read_quantities
from ragx.citations.judges.words import content_words, folded, sentences, stem
from ragx.citations.judges.written_dates import WrittenDate, read_dates
from ragx.records import Passage

# Without its unit such a number says nothing: 750 yuan is not 750 dollars.
_BOUND_TO_UNIT = frozenset(("%", "CNY", "USD", "EUR", "GBP", "JPY"))
# Jaccard overlap of the content words from which two sentences say the same, up to a negation.
_SAME = 0.75
_LIST_MARK = re.compile(r"^\s*(?:\d{1,2}[.)]|[-•*])\s+")
_BREAK = re.compile(r"[:•–—]\s|\s[-*]\s|\*\*")
_QUOTED = re.compile(r"[\"“«「『《]([^\"“”«»「」『』《》]{2,120})[\"”»」』》]")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|neither|nor|without|cannot|nobody|nothing)\b|n['’]t\b"
    r"|\b(?:nicht|kein\w*|niemals|jamais|aucune?|nunca|ning[uú]n\w*)\b|\bn(?:e\s|['’])(?=\w)|[不未没沒無无勿]|禁止",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a text states exactly."""

    quantities: tuple[Quantity, ...]
    dates: tuple[WrittenDate, ...]
    negations: int


@dataclass(frozen=True, slots=True)
class Premise:
    """The passages of a claim together, read once."""

    text: str
    sentences: tuple[tuple[frozenset[str], Constraints], ...]
    whole: Constraints


class ConstraintJudge:
    """J2 as `ragx.protocols.Judge`.

    Args:
        near: share of the claim's content words that a sentence must hold to be about the same thing.
        names: further names, matched as whole words; a claim that holds one needs it in the passages.
        capitalized: whether capitalized words inside a sentence of the claim count as names.
    """

    id = "constraints"

    def __init__(self, *, near: float = 0.6, names: Collection[str] = (), capitalized: bool = True) -> None:
        self._near, self._names, self._capitalized = near, tuple(names), capitalized

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        """`contradict` or `none` where something exact is wrong, else `not_judged`."""
        if not passages:
            return "not_judged"
        premise = _premise("\n".join(f"{p.title}\n{p.text}" for p in passages))
        claim = _LIST_MARK.sub("", claim)
        stated = read_constraints(claim)
        missing = [q for q in stated.quantities if not _stated(q, premise)]
        missing_dates = [d for d in stated.dates if not _dated(d, premise.whole)]
        near = [said for words, said in premise.sentences if _share(claim, words) >= self._near]
        if any(_differs(q, said) for q in missing for said in near):
            return "contradict"
        if any(said.dates for said in near) and missing_dates:
            return "contradict"
        same = [said for words, said in premise.sentences if _jaccard(claim, words) >= _SAME]
        if same and all((said.negations - stated.negations) % 2 for said in same):
            return "contradict"
        if missing or missing_dates or self.missing_names(claim, passages):
            return "none"
        return "not_judged"

    def missing_names(self, claim: str, passages: Sequence[Passage]) -> list[str]:
        """The names and quoted strings of the claim of which the passages hold no whole word or words."""
        text = folded("\n".join(f"{p.title}\n{p.text}" for p in passages))
        held = frozenset(stem(word) for word in _WORD.findall(text))
        named = names_of(claim) if self._capitalized else []
        missing = [name for name in named if not any(stem(w) in held for w in _WORD.findall(folded(name)))]
        listed = [name for name in self._names if _holds(folded(claim), folded(name))]
        return missing + [name for name in listed if not _holds(text, folded(name))]


def read_constraints(text: str) -> Constraints:
    """The numbers with their units, the dates and the number of negations of a text."""
    dates, rest = read_dates(text)
    return Constraints(tuple(read_quantities(rest)), tuple(dates), len(_NEGATION.findall(text)))


def names_of(text: str) -> list[str]:
    """Runs of capitalized words inside sentences, and what stands in quotation marks.

    The first word of a sentence is capitalized anyway and counts only as part of a run.
    """
    found = [match[1] for match in _QUOTED.finditer(text)]
    for sentence in sentences(_BREAK.sub("\n", _QUOTED.sub(" ", text))):
        run: list[str] = []
        for i, word in enumerate([*sentence.split(), ""]):
            letters = _WORD.search(word)
            if letters and letters[0][0].isupper():
                run.append(letters[0])
                continue
            if len(run) > 1 or (run and i > 1):
                found.append(" ".join(run))
            run = []
    return found


@lru_cache(maxsize=256)
def _premise(text: str) -> Premise:
    said = tuple((frozenset(content_words(part)), read_constraints(part)) for part in sentences(text))
    return Premise(text, said, read_constraints(text))


def _share(claim: str, words: frozenset[str]) -> float:
    """How many of the claim's content words, its numbers aside, a sentence holds."""
    wanted = {word for word in content_words(claim) if not word[0].isdigit()}
    return len(wanted & words) / len(wanted) if wanted else 0.0


def _jaccard(claim: str, words: frozenset[str]) -> float:
    wanted = set(content_words(claim))
    return len(wanted & words) / len(wanted | words) if wanted else 0.0


def _stated(quantity: Quantity, premise: Premise) -> bool:
    """Whether the premise gives this value with this unit, in a number or as the year of a date."""
    years = {Decimal(date.year) for date in premise.whole.dates}
    if quantity.unit is None and quantity.value in years:
        return True
    for given in premise.whole.quantities:
        if given.value == quantity.value:
            if quantity.unit is None or given.unit == quantity.unit:
                return True
            if given.unit is None and (quantity.unit not in _BOUND_TO_UNIT or names_unit(premise.text, quantity.unit)):
                return True
    return False


def _dated(date: WrittenDate, said: Constraints) -> bool:
    if any(date.stated_by(given) for given in said.dates):
        return True
    return date.month is None and any(q.value == date.year for q in said.quantities)


def _differs(quantity: Quantity, said: Constraints) -> bool:
    """Whether a sentence gives another value in the same unit, or the same value in another."""
    for given in said.quantities:
        units = {given.unit, quantity.unit}
        other_unit = given.value == quantity.value and len(units) == 2 and None not in units
        if other_unit or (given.unit == quantity.unit and given.value != quantity.value):
            return True
    return False


def _holds(text: str, name: str) -> bool:
    return re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", text) is not None
