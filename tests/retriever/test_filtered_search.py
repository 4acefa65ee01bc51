"""What may not be seen, or does not hold, is never found, shown or scored, in any kind of index."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, DataError, ShapeError
from ragx.filters import PassageFilter
from ragx.records import GivenPassages, Passage, PassageKey
from ragx.retriever.allowed import Allowed
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.exact import products
from ragx.retriever.given import GivenRetriever
from ragx.retriever.index import VectorIndex
from ragx.retriever.kinds import KINDS
from ragx.retriever.passages import PassageStore

COUNT = 10_000
SMALL = {"sq": {"nlist": 16, "nprobe": 12}, "ivf_pq": {"nlist": 16, "nprobe": 12, "m": 4}}
DATES = (None, "2015", "2016-06", "2016-06-15", "2017-01-01")


@pytest.fixture(scope="module")
def indexes() -> dict[str, VectorIndex]:
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(COUNT, 16)) * rng.uniform(0.1, 3.0, size=(COUNT, 1))).astype(np.float32)
    hnsw = {"m": 16, "ef_construction": 60}
    return {kind: VectorIndex.build(vectors, kind=kind, **{"hnsw": hnsw, **SMALL}.get(kind, {})) for kind in KINDS}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("share", [1 / COUNT, 0.002, 0.03, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("batch", [3, 30])
def test_a_forbidden_row_is_never_found(indexes: dict[str, VectorIndex], kind: str, share: float, batch: int) -> None:
    """However many are allowed: those alone, the best of them, as many as there are, and nothing is made up."""
    index, rng = indexes[kind], np.random.default_rng(1)
    assert index.kind == kind
    queries = rng.normal(size=(batch, 16)).astype(np.float32)
    mask = rng.permutation(COUNT) < share * COUNT
    # What the queries would find first is what they may not have.
    mask[index.search_exactly(queries, 3)[0].ravel()] = False
    mask[0] = True
    rows, scores = index.search(queries, 10, allowed=Allowed(mask))
    assert mask[rows].all() and rows.shape == scores.shape == (batch, min(10, int(mask.sum())))
    assert all(len(set(row)) == len(row) for row in rows.tolist())
    exact = products(index.embeddings, queries, np.broadcast_to(np.arange(COUNT), (batch, COUNT)))
    np.testing.assert_array_equal(scores, np.take_along_axis(exact, rows, 1))
    best = np.sort(np.where(mask, exact, -np.inf), 1)[:, ::-1][:, : rows.shape[1]]
    if kind in ("flat", "torch") or mask.sum() < 0.05 * COUNT:
        np.testing.assert_array_equal(scores, best)
    assert (scores >= best[:, -1:]).mean() >= 0.9


@pytest.mark.parametrize("kind", list(KINDS))
def test_nothing_allowed(indexes: dict[str, VectorIndex], kind: str) -> None:
    with pytest.raises(ConfigError, match="filter and deletions must leave at least one of the 10000 passages"):
        indexes[kind].search(np.ones((1, 16), dtype=np.float32), 1, allowed=Allowed(np.zeros(COUNT, dtype=bool)))


def world(passages: list[Passage]) -> list[Passage]:
    """The passages with an acl and dates each; the first is secret, the second of the past."""
    extra = [
        {"acl": ("staff",)},
        {"valid_to": "2015-12"},
        {"acl": ("staff", "press"), "valid_from": "2016-01"},
        {},
        {"valid_from": "2017"},
        {"acl": ("press",)},
    ]
    return [dataclasses.replace(p, **more) for p, more in zip(passages, extra, strict=True)]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [*KINDS])
@pytest.mark.parametrize(
    ("passage_filter", "rows"),
    [
        (PassageFilter(), [0, 1, 2, 3, 4, 5]),
        (PassageFilter(acl=()), [1, 3, 4]),
        (PassageFilter(acl=("staff",)), [0, 1, 2, 3, 4]),
        (PassageFilter(as_of="2016-06"), [0, 2, 3, 5]),
        (PassageFilter(acl=("press",), as_of="2016"), [2, 3, 5]),
        (PassageFilter(acl=(), as_of="2014"), [1, 3]),
    ],
)
def test_a_retriever_shows_what_is_allowed(
    build: Callable[..., Path], passages: list[Passage], kind: str, passage_filter: PassageFilter, rows: list[int]
) -> None:
    """By hand; whether the retriever was opened with the filter or one search asks for it."""
    corpus = world(passages)
    folder = build(corpus, kind=kind)
    embeds = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    of_search = DenseRetriever.open(folder).retrieve(["a", "b"], 6, query_embeds=embeds, passage_filter=passage_filter)
    opened = DenseRetriever.open(folder, passage_filter=passage_filter).retrieve(["a", "b"], 6, query_embeds=embeds)
    for found in (of_search, opened):
        assert [sorted(row) for row in found.rows.tolist()] == [rows, rows]
        assert found.doc_scores.shape == (2, len(rows)) and found.doc_embeds.shape == (2, len(rows), 16)  # type: ignore[union-attr]
        assert found.passages == [[corpus[row] for row in of_query] for of_query in found.rows]
        assert all(passage_filter.allows(passage) for row in found.passages for passage in row)


def test_no_search_widens_what_a_retriever_was_opened_with(build: Callable[..., Path], passages: list[Passage]) -> None:
    retriever = DenseRetriever.open(build(world(passages)), passage_filter=PassageFilter(acl=()))
    ask = {"query_embeds": torch.ones(1, 16)}
    for wide in (None, PassageFilter(), PassageFilter(acl=("staff", "press"))):
        assert sorted(retriever.retrieve(["a"], 6, passage_filter=wide, **ask).rows[0]) == [1, 3, 4]
    narrower = retriever.retrieve(["a"], 6, passage_filter=PassageFilter(as_of="2016"), **ask)
    assert narrower.rows.tolist() == [[3]]
    secret = [p for p in world(passages) if p.acl]
    closed = DenseRetriever.open(build(secret, "closed"), passage_filter=PassageFilter(acl=()))
    with pytest.raises(ConfigError, match="filter and deletions must leave at least one of the 3 passages, got none"):
        closed.retrieve(["a"], 1, **ask)  # type: ignore[arg-type]


def test_no_query_is_an_error_for_every_retriever(
    build: Callable[..., Path], passages: list[Passage], tmp_path: Path
) -> None:
    dense, bm25 = DenseRetriever.open(build(passages)), BM25Retriever.build(passages, tmp_path / "bm25", edition="1")
    given = GivenRetriever({"a": GivenPassages(tuple(passages))})
    for retriever in (dense, bm25, given):
        with pytest.raises(ShapeError, match="queries must hold at least one query, got none"):
            retriever.retrieve([], 1, query_embeds=torch.ones(0, 16))


def test_the_store_masks_as_the_filter_decides(tmp_path: Path) -> None:
    """Every combination, over more than one batch on disk; the mask is `allows` of each passage."""
    groups = ((), ("staff",), ("press", "staff"), ("a,b",), ("a", "b"))
    corpus = [
        Passage(str(n), "1", "0", "", "t", acl=groups[n % 5], valid_from=DATES[n // 5 % 5], valid_to=DATES[n // 25 % 5])
        for n in range(2500)
    ]
    store = PassageStore.build(corpus, tmp_path / "store")
    for acl in (None, (), ("staff",), ("a",), ("a,b",), ("nobody",)):
        for as_of in (None, "2014", "2016", "2016-06-16", "2017"):
            one = PassageFilter(acl=acl, as_of=as_of)
            assert store.mask(one).tolist() == [one.allows(passage) for passage in corpus]
    undated = PassageStore.build([Passage("a", "1", "0", "", "t", valid_from="Jan 2016")], tmp_path / "undated")
    assert undated.mask(PassageFilter(acl=())).all()
    with pytest.raises(DataError, match="valid_from must be a date .* got 'Jan 2016'"):
        undated.mask(PassageFilter(as_of="2016"))


def test_rows_of_keys(tmp_path: Path) -> None:
    corpus = [Passage(str(row // 2), str(row % 2), "0", "", "t") for row in range(2500)]
    store = PassageStore.build(corpus, tmp_path / "store")
    asked = [corpus[2400].key, corpus[3].key, PassageKey("1", "7", "0"), PassageKey("no", "1", "0")]
    assert store.rows_of(asked) == {corpus[2400].key: 2400, corpus[3].key: 3}
    assert store.rows_of([]) == {}
