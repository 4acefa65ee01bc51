"""Who asks and as of which day: what decides, before any search, which passages exist for a question.

    seen      a passage without acl is everybody's; one with acl is seen by those who hold one of its groups
    valid     valid_from <= as_of <= valid_to, each bound only where it is given; a month stands for all its days

One decision: a filter only ever narrows. A retriever that was opened with one applies it to every call, whatever the
call asks for, so no caller can widen what it was given.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ragx.dates import is_date, older
from ragx.errors import ConfigError
from ragx.records import Example, Passage

BY_QUESTION = ("acl", "as_of")  # what a question's own row may restrict


@dataclass(frozen=True, slots=True)
class PassageFilter:
    """Restricts what is searched; hashable, so that the work it takes is done once an index.

    Attributes:
        acl: groups of who asks; () sees what is everybody's, None sees everything.
        as_of: day, month or year whose state of things is asked for; None looks at no dates.

    Raises:
        ConfigError: `as_of` is no date, or `acl` is not made of names.
    """

    acl: tuple[str, ...] | None = None
    as_of: str | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.acl is not None:
            if isinstance(self.acl, str) or not all(isinstance(group, str) and group for group in self.acl):
                problems.append(f"filter.acl must be a list of non-empty names, got {self.acl!r}. Write [staff].")
            else:
                object.__setattr__(self, "acl", tuple(sorted(set(self.acl))))
        if self.as_of is not None and not (isinstance(self.as_of, str) and is_date(self.as_of)):
            problems.append(
                f"filter.as_of must be a date as 2016, 2016-12 or 2016-12-31, got {self.as_of!r}. Quote it in YAML."
            )
        if problems:
            raise ConfigError(problems)

    @property
    def restricts(self) -> bool:
        """Whether there is anything that it could keep out."""
        return self.acl is not None or self.as_of is not None

    def sees(self, groups: Collection[str]) -> bool:
        """Whether who asks may see a passage with the acl `groups`."""
        return self.acl is None or not groups or not set(self.acl).isdisjoint(groups)

    def starts_in_time(self, valid_from: str | None) -> bool:
        """Whether a passage valid from that date holds on some day of `as_of`, by its first day."""
        return self.as_of is None or valid_from is None or not older(self.as_of, valid_from)

    def ends_in_time(self, valid_to: str | None) -> bool:
        """Whether a passage valid to that date holds on some day of `as_of`, by its last day."""
        return self.as_of is None or valid_to is None or not older(valid_to, self.as_of)

    def allows(self, passage: Passage) -> bool:
        """Whether `passage` exists for who asks."""
        in_time = self.starts_in_time(passage.valid_from) and self.ends_in_time(passage.valid_to)
        return in_time and self.sees(passage.acl)


def question_filters(examples: Sequence[Example], by: Collection[str]) -> list[PassageFilter | None]:
    """What each question's own row lets it see; None for each where nothing is restricted by the row.

    A question without `as_of` is asked of all times. One without `acl` sees what is everybody's: who asks is not known.

    Args:
        by: of `BY_QUESTION`.

    Raises:
        ConfigError: a question whose `as_of` is no date, or whose `acl` is not made of names; the question is named.
    """
    found: list[PassageFilter | None] = []
    for example in examples:
        acl = (example.acl or ()) if "acl" in by else None
        try:
            found.append(PassageFilter(acl, example.as_of if "as_of" in by else None) if by else None)
        except ConfigError as error:
            raise ConfigError([f"question {example.id!r}: {problem}" for problem in error.problems]) from None
    return found
