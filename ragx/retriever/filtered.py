"""What a call of `retrieve` asks for, and the filter that a retriever was opened with.

    may be found  =  what the retriever's own filter, the filter of the call and the deletions all leave

One decision: a retriever is handed its own filter and that of the call as one set, so none can forget its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ragx.errors import ShapeError
from ragx.filters import PassageFilter
from ragx.protocols import Retriever
from ragx.records import Retrieved


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of `ragx.protocols.Retriever.retrieve`.

    Attributes:
        filters: that all must allow what is found, the retriever's own among them; none that restricts nothing.
    """

    queries: Sequence[str]
    n_docs: int
    query_embeds: Tensor | None
    filters: frozenset[PassageFilter]

    def vectors(self) -> np.ndarray:
        """q(x), (B, D) float32.

        Raises:
            ShapeError: `query_embeds` missing, or not one for each query.
        """
        if self.query_embeds is None or len(self.query_embeds) != len(self.queries):
            shape = None if self.query_embeds is None else tuple(self.query_embeds.shape)
            raise ShapeError(f"query_embeds must hold one vector for each of {len(self.queries)} queries, got {shape}.")
        found: np.ndarray = self.query_embeds.detach().float().cpu().numpy()
        return found


class FilteredRetriever(ABC):
    """A retriever that may have a filter of its own; what is found, and how, is `_find`'s.

    Args:
        passage_filter: narrows every call, whatever the call itself asks for.
    """

    def __init__(self, passage_filter: PassageFilter | None) -> None:
        self.passage_filter = passage_filter

    def retrieve(
        self,
        queries: Sequence[str],
        n_docs: int,
        *,
        query_embeds: Tensor | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> Retrieved:
        """See `ragx.protocols.Retriever`."""
        if not queries:
            raise ShapeError("queries must hold at least one query, got none.")
        filters = frozenset(one for one in (self.passage_filter, passage_filter) if one is not None and one.restricts)
        return self._find(Asked(queries, n_docs, query_embeds, filters))

    @abstractmethod
    def _find(self, asked: Asked) -> Retrieved:
        """The passages, as `ragx.protocols.Retriever.retrieve` promises them."""


def own_filter(retriever: Retriever | None) -> dict[str, Any] | None:
    """The filter that a retriever, or the one that it reranks, was opened with, as JSON; None restricts nothing."""
    found: PassageFilter | None = getattr(getattr(retriever, "retriever", retriever), "passage_filter", None)
    if found is None or not found.restricts:
        return None
    return {"acl": None if found.acl is None else list(found.acl), "as_of": found.as_of}
