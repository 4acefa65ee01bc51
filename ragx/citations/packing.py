"""Which retrieved passages reach the generator's input: whole chunks under a budget.

    B  =  W - F - O        window, fixed part (template and question), output reserve

`joint` walks the chunks in their order (best first) and takes each one whose cost fits what is left; one that does not
fit is dropped and the walk goes on, since a shorter one may still fit. `per_doc` is the latent-document input: every
passage has a window of its own, holds its visible part, and shares no budget.

One decision: a chunk is taken whole or not at all. What a cut would save is what a claim hangs on: a negation, a unit,
a date. The cost is that of the chunk as it is serialised, wrapper and reference number included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ragx.citations.trace_records import Budget, Dropped, Packed
from ragx.errors import RagxError
from ragx.records import PassageKey

UNITS = ("token", "code_point")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A candidate with its cost.

    Attributes:
        key: its identity.
        tokens: cost of the serialised chunk in the budget's unit, at least 1.
    """

    key: PassageKey
    tokens: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What became of the candidates: each distinct key is in exactly one of the two, a further copy is a duplicate.

    Attributes:
        packed: S in the order of the candidates, numbered from 1 after everything was dropped.
        dropped: C less S and the copies, each with its reason.
        budget: None in `per_doc` mode.
    """

    packed: tuple[Packed, ...]
    dropped: tuple[Dropped, ...]
    budget: Budget | None


def open_budget(*, window: int, fixed: int, reserve: int, unit: str) -> Budget:
    """The budget before anything is packed.

    Raises:
        RagxError: a part that is no whole number >= 0 (a bool is none), parts beyond the window, or an unknown unit.
    """
    for name, value in (("window", window), ("fixed", fixed), ("reserve", reserve)):
        if type(value) is not int or value < 0:
            raise RagxError(f"{name} must be a whole number >= 0, got {value!r}. Count in {unit}s")
    if unit not in UNITS:
        raise RagxError(f"unit must be one of {', '.join(UNITS)}, got {unit!r}. Name what is counted")
    budget = window - fixed - reserve
    if budget < 0:
        raise RagxError(
            f"window must be >= fixed + reserve, got {window} < {fixed} + {reserve} {unit}s. "
            "Shorten the template or widen the window"
        )
    return Budget(unit=unit, window=window, fixed=fixed, reserve=reserve, budget=budget, remaining=budget)


def select_context(chunks: Iterable[Chunk], *, window: int, fixed: int, reserve: int, unit: str = "token") -> Selection:
    """`joint` packing: walks `chunks` best first; O(n).

    A copy of a key that was seen, taken or not, is dropped as `duplicate`; what does not fit as `over_budget`.

    Raises:
        RagxError: as `open_budget`, or a cost that is no whole number >= 1.
    """
    opened = open_budget(window=window, fixed=fixed, reserve=reserve, unit=unit)
    remaining, taken, dropped, seen = opened.budget, [], [], set()
    for chunk in chunks:
        cost = chunk.tokens
        if type(cost) is not int or cost < 1:
            raise RagxError(
                f"tokens of {tuple(chunk.key)} must be a whole number >= 1, got {cost!r}. "
                "Count the serialised chunk, wrapper included"
            )
        if chunk.key in seen:
            dropped.append(Dropped(chunk.key, "pack", "duplicate", cost))
        elif cost <= remaining:
            taken.append(chunk)
            remaining -= cost
        else:
            dropped.append(Dropped(chunk.key, "pack", "over_budget", cost))
        seen.add(chunk.key)
    packed = tuple(Packed(pos=i, ref=i, key=c.key, tokens=c.tokens) for i, c in enumerate(taken, start=1))
    budget = Budget(unit, window, fixed, reserve, opened.budget, remaining)
    return Selection(packed, tuple(dropped), budget)


def select_per_doc(
    candidates: Sequence[tuple[PassageKey, float]],
    *,
    n_docs: int,
    visible: Callable[[PassageKey], tuple[int, int, bool]],
) -> Selection:
    """`per_doc` packing of a latent-document model: the first `n_docs` distinct candidates, priors over just those.

    Args:
        candidates: (key, score) best first; the scores are logits of p(z|x), as in section 2.2.
        n_docs: how many the model reads.
        visible: for a key, the code points [start, end) of its text that reach the generator, and whether text was cut.

    Raises:
        RagxError: `n_docs` below 1 or a score that is not finite.
    """
    if type(n_docs) is not int or n_docs < 1:
        raise RagxError(f"n_docs must be a whole number >= 1, got {n_docs!r}. Name how many the model reads")
    scores: dict[PassageKey, float] = {}
    dropped = []
    for key, score in candidates:
        if not math.isfinite(score):
            raise RagxError(f"score of {tuple(key)} must be finite, got {score!r}. Retrieve again")
        reason = "duplicate" if key in scores else "below_k" if len(scores) == n_docs else None
        if reason is None:
            scores[key] = score
        else:
            dropped.append(Dropped(key, "pack", reason))
    top = max(scores.values(), default=0.0)
    weights = {key: math.exp(score - top) for key, score in scores.items()}
    total = math.fsum(weights.values())
    packed = []
    for i, (key, weight) in enumerate(weights.items(), start=1):
        start, end, truncated = visible(key)
        packed.append(Packed(pos=i, ref=i, key=key, prior=weight / total, visible=(start, end), truncated=truncated))
    return Selection(tuple(packed), tuple(dropped), None)


def serialised_cost(
    serialise: Callable[[int, T], str], items: Sequence[tuple[PassageKey, T]], *, length: Callable[[str], int] = len
) -> list[Chunk]:
    """The cost of each item in the form the generator reads, with the widest reference number that it may get.

    Numbers are given after packing, so the cost is counted with the largest one: the budget then holds for any.

    Args:
        serialise: (reference number, item) to text, wrapper included.
        items: (key, item) best first.
        length: counts a text in the budget's unit; code points by default.
    """
    return [Chunk(key, length(serialise(len(items), item))) for key, item in items]
