"""What a judge says about a claim and the passages cited for it, and what several labels say together.

    full   partial   none   contradict   not_judged

One decision: `not_judged` is no judgement. It is never counted as `none`; a rate over judged rows stands beside the
bounds that counting the rest both ways gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LABELS = ("full", "partial", "none", "contradict", "not_judged")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One judgement with where it comes from.

    Attributes:
        label: one of `LABELS`.
        judge: id of the judge that decided.
        heuristic: whether that judge only counts words.
    """

    label: str
    judge: str
    heuristic: bool = False


@dataclass(frozen=True, slots=True)
class SupportRate:
    """The share of claims with full support, and what the claims without a judgement leave open.

    Attributes:
        judged_only: full / judged; None where nothing was judged.
        bounds: the share if all claims not judged were unsupported, and if all were supported; None without claims.
        n, not_judged: how many claims, how many of them without a judgement.
    """

    judged_only: float | None
    bounds: tuple[float, float] | None
    n: int
    not_judged: int


def support_rate(labels: Iterable[str]) -> SupportRate:
    """Counts the labels of one judge."""
    given = list(labels)
    full, open_ = given.count("full"), given.count("not_judged")
    n, judged = len(given), len(given) - open_
    return SupportRate(
        judged_only=full / judged if judged else None,
        bounds=(full / n, (full + open_) / n) if n else None,
        n=n,
        not_judged=open_,
    )
