"""KILT's R-precision (Petroni et al. 2021, section 5.1), of what was retrieved and of what was cited alike.

    max over gold sets G of |the first |G| distinct ids  and  G| / |G|

One decision: it stands below both its users, `evaluation` (titles that were retrieved) and `citations` (passages and
pages that were cited), so that one name is one formula.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet


def r_precision(ranked: Sequence[Hashable], gold: Sequence[AbstractSet[Hashable]]) -> float | None:
    """R-precision of ids, best first, against sets of which each is enough; 0 for no ids, None without gold sets."""
    distinct = list(dict.fromkeys(ranked))
    return max((len(group & set(distinct[: len(group)])) / len(group) for group in gold), default=None)
