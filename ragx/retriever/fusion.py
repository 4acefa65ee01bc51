"""One ranking of two, dense and BM25: what a hybrid's scores are as logits of p(z|x).

    weighted          s(z) = w q.d(z) + (1 - w) r BM25(x, z)            r = spread of q.d / spread of BM25
    reciprocal_rank   s(z) = log( 1 / (c + rank of z by q.d) + 1 / (c + rank of z by BM25) )

over the candidates of a query: the passages that either of the two found. Both scores are computed for every
candidate, whoever found it; in `reciprocal_rank` a passage has the rank of each list that it is in, from 1, and
nothing from the other (Cormack et al. 2009, c = 60).

`weighted` keeps the dense scale: w = 1 is dense retrieval over these candidates, w = 0 ranks as BM25 with logits as
spread out as q.d. The spread is the standard deviation, the range (max - min), or 1 for both (`none`: w q.d + (1 - w)
BM25); where one of the two does not vary r is 1. r is a constant to the gradient, so ds/dq = w d(z).
`reciprocal_rank` gives p(z|x) in proportion to the fused score, and no gradient to q: ranks have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragx.errors import ConfigError

SCALES = ("deviation", "range", "none")


def reciprocal_rank(rankings: Sequence[Sequence[int]], *, constant: float = 60.0) -> dict[int, float]:
    """sum over the rankings of 1 / (constant + rank), by passage; ranks count from 1.

    Raises:
        ConfigError: `constant` is not positive.
    """
    if not constant > 0:
        raise ConfigError([f"rank_constant must be > 0, got {constant}."])
    fused: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking, start=1):
            fused[row] = fused.get(row, 0.0) + 1.0 / (constant + rank)
    return fused


def scale(dense: np.ndarray, words: np.ndarray, *, by: str = "deviation") -> float:
    """r, which makes scores `words` (N,) spread as the scores `dense` (N,) of the same candidates.

    Raises:
        ConfigError: `by` is none of `SCALES`.
    """
    if by not in SCALES:
        raise ConfigError([f"scale must be one of {', '.join(SCALES)}, got {by!r}."])
    if by == "none":
        return 1.0
    spread = np.std if by == "deviation" else np.ptp
    wide, other = float(spread(dense.astype(np.float64))), float(spread(words.astype(np.float64)))
    return wide / other if wide > 0 and other > 0 else 1.0


def best(scores: np.ndarray, rows: np.ndarray, n_docs: int) -> np.ndarray:
    """Positions of the `n_docs` largest of `scores` (N,), best first, ties by row."""
    return np.lexsort((rows, -scores))[:n_docs]
