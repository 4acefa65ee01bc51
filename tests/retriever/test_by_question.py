"""A question's own date and groups decide what is searched for it, and for no other of its batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError
from ragx.filters import PassageFilter, question_filters
from ragx.records import Example, Passage, Retrieved
from ragx.retriever.by_question import retrieve_by_question
from ragx.retriever.dense import DenseRetriever

QUERIES = ["a", "b", "c", "d"]
FILTERS = [PassageFilter(as_of="2016"), PassageFilter(acl=("staff",)), None, PassageFilter(as_of="2016")]


@pytest.fixture
def retriever(build: Callable[..., Path], passages: list[Passage]) -> DenseRetriever:
    extra: list[dict[str, Any]] = [{"acl": ("staff",)}, {"acl": ("board",)}, {"valid_to": "2012"}, {}, {}, {}]
    return DenseRetriever.open(build([dataclasses.replace(p, **e) for p, e in zip(passages, extra, strict=True)]))


def test_each_query_finds_what_it_would_find_alone(retriever: DenseRetriever) -> None:
    embeds = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    found = retrieve_by_question(retriever, QUERIES, 3, query_embeds=embeds, filters=FILTERS)
    for place, one in enumerate(FILTERS):
        alone = retriever.retrieve(["x"], 3, query_embeds=embeds[place : place + 1], passage_filter=one)
        assert found.passages[place] == alone.passages[0]
        for name in ("rows", "doc_scores", "doc_embeds"):
            np.testing.assert_array_equal(getattr(found, name)[place], getattr(alone, name)[0])
    assert 2 not in found.rows[[0, 3]] and 1 not in found.rows[1] and found.doc_offsets is None


def test_nothing_forbidden_is_ever_scored(retriever: DenseRetriever, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that a search looks at are those of its own question's filter."""
    searched: list[set[int]] = []
    search = type(retriever._edition.index).search

    def noted(index: Any, query_embeds: np.ndarray, n_docs: int, *, allowed: Any = None) -> Any:
        searched.append(set(range(6)) if allowed is None else set(np.flatnonzero(allowed.mask).tolist()))
        return search(index, query_embeds, n_docs, allowed=allowed)

    monkeypatch.setattr(type(retriever._edition.index), "search", noted)
    retrieve_by_question(retriever, QUERIES, 3, query_embeds=torch.ones(4, 16), filters=FILTERS)
    assert searched == [{0, 1, 3, 4, 5}, {0, 2, 3, 4, 5}, set(range(6))]


def test_filters_that_leave_unlike_numbers_are_named(retriever: DenseRetriever) -> None:
    narrow = [PassageFilter(acl=()), None]
    with pytest.raises(ConfigError, match="as many passages for each question of a batch, got 4 for 'a' and 6 for 'b'"):
        retrieve_by_question(retriever, ["a", "b"], 6, query_embeds=torch.ones(2, 16), filters=narrow)
    with pytest.raises(ConfigError, match="filters must be one for each of 2 queries, got 1"):
        retrieve_by_question(retriever, ["a", "b"], 2, query_embeds=torch.ones(2, 16), filters=narrow[:1])


def test_a_swap_between_two_searches_never_mixes_editions() -> None:
    """The second search of a call meets another index: both are done again on the new one."""

    class Swapped:
        fingerprint, calls = "new", 0

        def retrieve(self, queries: Sequence[str], n_docs: int, **options: Any) -> Retrieved:
            self.calls += 1
            name = "old" if self.calls == 1 else "new"
            passages = [[Passage(name, "1", "0", "", query)] * n_docs for query in queries]
            numbers = np.zeros((len(queries), n_docs))
            return Retrieved(passages, numbers.astype(np.int64), None, numbers.astype(np.float32), name)

    found = retrieve_by_question(Swapped(), ["a", "b"], 1, filters=[None, PassageFilter(acl=())])
    assert [[p.source for p in row] for row in found.passages] == [["new"], ["new"]]
    assert found.index_fingerprint == "new"


def test_the_row_says_what_a_question_may_see() -> None:
    """Who does not say who asks sees what is everybody's; a field that is not named restricts nothing."""
    rows = [
        Example("1", "a", ("b",), as_of="2016-12", acl=("staff",)),
        Example("2", "a", ("b",)),
    ]
    both = question_filters(rows, ("acl", "as_of"))
    assert both == [PassageFilter(("staff",), "2016-12"), PassageFilter(())]
    assert question_filters(rows, ("as_of",)) == [PassageFilter(None, "2016-12"), PassageFilter()]
    assert question_filters(rows, ()) == [None, None]
    with pytest.raises(ConfigError, match="question '3': filter.as_of must be a date .* got 'soon'"):
        question_filters([Example("3", "a", ("b",), as_of="soon")], ("as_of",))
