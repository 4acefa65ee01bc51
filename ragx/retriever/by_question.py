"""Filters that differ from question to question, by its date or by who asks it: one search for each filter.

    Retrieved of B queries  =  the rows that a search of each query alone, with its own filter, would give

One decision: what a filter keeps out is kept out of the search, as everywhere; nothing is searched for all and taken
away afterwards. Searches of one call that met two editions (a swap came between them) are done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ragx.errors import ConfigError
from ragx.filters import PassageFilter
from ragx.protocols import Filters, Retriever
from ragx.records import Retrieved

T = TypeVar("T")


def by_filter(filters: Iterable[T]) -> dict[T, list[int]]:
    """The places of each of `filters`, in the order of their first appearance."""
    places: dict[T, list[int]] = {}
    for place, one in enumerate(filters):
        places.setdefault(one, []).append(place)
    return places


def retrieve_by_question(
    retriever: Retriever,
    queries: Sequence[str],
    n_docs: int,
    *,
    query_embeds: Tensor | None = None,
    filters: Filters = None,
) -> Retrieved:
    """As `Retriever.retrieve`, with one filter for all queries or one for each.

    Raises:
        ConfigError: filters that leave fewer than `n_docs` passages, and not the same number for each query.
    """
    query_embeds = None if query_embeds is None else query_embeds.detach()
    each: Sequence[PassageFilter | None]
    each = [filters] * len(queries) if filters is None or isinstance(filters, PassageFilter) else filters
    groups = by_filter(each)
    if sum(map(len, groups.values())) != len(queries):
        got = sum(map(len, groups.values()))
        raise ConfigError([f"filters must be one for each of {len(queries)} queries, got {got}. Give None for none."])
    if len(groups) == 1:
        only = next(iter(groups))
        if only is None:
            return retriever.retrieve(queries, n_docs, query_embeds=query_embeds)
        return retriever.retrieve(queries, n_docs, query_embeds=query_embeds, passage_filter=only)
    while True:
        parts = {
            one: retriever.retrieve(
                [queries[place] for place in places],
                n_docs,
                query_embeds=None if query_embeds is None else query_embeds[torch.tensor(places)],
                passage_filter=one,
            )
            for one, places in groups.items()
        }
        if len({part.index_fingerprint for part in parts.values()}) == 1:
            return joined(queries, [(groups[one], part) for one, part in parts.items()])


def joined(queries: Sequence[str], parts: Sequence[tuple[list[int], Retrieved]]) -> Retrieved:
    """The rows of `parts`, each to its places."""
    by_width = sorted(parts, key=lambda part: part[1].rows.shape[1])
    (first, few), (second, many) = by_width[0], by_width[-1]
    if few.rows.shape[1] != many.rows.shape[1]:
        got = f"{few.rows.shape[1]} for {queries[first[0]]!r} and {many.rows.shape[1]} for {queries[second[0]]!r}"
        raise ConfigError(
            [f"filters must leave as many passages for each question of a batch, got {got}. Lower model.n_docs."]
        )
    order = np.argsort(np.concatenate([places for places, _ in parts]))

    def column(name: str) -> np.ndarray | None:
        arrays = [getattr(part, name) for _, part in parts]
        return None if any(array is None for array in arrays) else np.concatenate(arrays)[order]

    rows, scores = column("rows"), column("doc_scores")
    assert rows is not None and scores is not None
    found = [passages for _, part in parts for passages in part.passages]
    return Retrieved(
        passages=[found[place] for place in order],
        rows=rows,
        doc_embeds=column("doc_embeds"),
        doc_scores=scores,
        index_fingerprint=parts[0][1].index_fingerprint,
        doc_offsets=column("doc_offsets"),
    )
