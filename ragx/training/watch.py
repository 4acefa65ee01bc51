"""What a batch tells about the retriever: is p(z|x) still open, do different questions get different passages?

    prior entropy  =  - sum_z p(z|x) log p(z|x)    in nats, averaged over queries; log K when the scores say nothing

A query encoder that collapses returns the same passage for every question while the loss keeps falling.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

logger = logging.getLogger(__name__)
WINDOW = 256  # queries
LEAST_DISTINCT = 0.1


def prior_entropy(doc_logprobs: Tensor) -> Tensor:
    """Entropy in nats (B,) of the passage priors (B, K); a masked passage (-inf) adds nothing."""
    return torch.special.entr(doc_logprobs.detach().float().exp()).sum(1)


class CollapseWatch:
    """Warns once when the last `WINDOW` queries share too few top-1 passages."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, int]] = deque(maxlen=WINDOW)
        self._warned = False

    def add(self, queries: Sequence[str], top_rows: Sequence[int]) -> None:
        """Takes in the top-1 passage (its row in the index) of each query of a step."""
        self._recent.extend(zip(queries, top_rows, strict=True))
        if self._warned or len(self._recent) < WINDOW:
            return
        asked = len({query for query, _ in self._recent})
        found = len({row for _, row in self._recent})
        if found < LEAST_DISTINCT * asked:
            self._warned = True
            logger.warning(
                "%d different queries got only %d different top-1 passages: the query encoder may have collapsed. "
                "Lower query_encoder_lr or freeze the query encoder.",
                asked,
                found,
            )
