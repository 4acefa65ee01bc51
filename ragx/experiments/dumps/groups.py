"""Which positions are counted together: those that changed hands, and beside them those that did not.

    changed, unchanged                                    every position of that kind
    changed, in both dumps; unchanged, in both dumps      those whose holder both dumps state

One decision: no position is left out of the first two. Where a dump does not state the holder no index can help, and
what that costs is seen beside the figures of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragx.data.factbook import CHANGED, UNCHANGED
from ragx.records import Example

Questions = Mapping[str, Sequence[Example]]
"""By edition of the dump, the questions of its date, in the same order."""


def groups_of(questions: Questions) -> dict[str, set[str]]:
    """Ids of the questions by group."""
    stated = set.intersection(*({example.id for example in asked if example.gold} for asked in questions.values()))
    found: dict[str, set[str]] = {}
    for kind in (CHANGED, UNCHANGED):
        ids = {example.id for asked in questions.values() for example in asked if example.kind == kind}
        found |= {kind: ids, f"{kind}, in both dumps": ids & stated}
    return found


def members(examples: Sequence[Example], ids: set[str]) -> list[Example]:
    """The examples of a group, in their order."""
    return [example for example in examples if example.id in ids]
