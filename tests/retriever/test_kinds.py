"""What an index may be told, and what is made of it where the corpus is too small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragx.errors import ConfigError
from ragx.retriever.index import VectorIndex
from ragx.retriever.kinds import KINDS, resolve_parameters, settle


def vectors(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 16)).astype(np.float32)


def test_parameters_are_checked() -> None:
    """FAULTS F4: FAISS takes any attribute; here an unknown or misspelt name is an error, at any spelling."""
    assert resolve_parameters("hnsw", {"m": 5}) == {"m": 5, "ef_construction": 200, "ef_search": 128}
    wrong = {
        ("ivf",): "kind must be one of flat, torch, hnsw, sq, ivf_pq, got 'ivf'",
        ("hnsw", "efSearch", 5): "parameters of hnsw must be among: m, ef_construction, ef_search, got 'efSearch'",
        ("ivf_pq", "nprobs", 5): "parameters of ivf_pq must be among: m, nlist, nprobe, rerank, seed, got 'nprobs'",
        ("flat", "m", 5): "parameters of flat must be among: none, got 'm'",
        ("torch", "nprobe", 5): "parameters of torch must be among: none, got 'nprobe'",
        ("hnsw", "m", 1): "m must be an integer from 2 to 2147483647, got 1",
        ("hnsw", "ef_search", 0): "ef_search must be an integer from 1 to 2147483647, got 0",
        ("hnsw", "ef_search", 3_000_000_000): "ef_search must be an integer from 1 to 2147483647, got 3000000000",
        ("sq", "nprobe", 0): "nprobe must be an integer from 1 to 2147483647, got 0",
        ("sq", "nlist", -1): "nlist must be an integer from 0 to 2147483647, got -1",
        ("sq", "bits", 5): "bits must be one of 4, 6, 8, 16, got 5",
        ("ivf_pq", "seed", True): "seed must be an integer from 0 to 2147483647, got True",
        ("ivf_pq", "m", 2.0): "m must be an integer from 0 to 2147483647, got 2.0",
    }
    for (kind, *named), message in wrong.items():
        given: dict[str, Any] = {str(named[0]): named[1]} if named else {}
        with pytest.raises(ConfigError, match=message):
            resolve_parameters(str(kind), given)
        with pytest.raises(ConfigError, match=message):
            VectorIndex.build(vectors(5), kind=str(kind), **given)


@pytest.mark.parametrize(
    ("count", "kind", "nlist"), [(3, "flat", None), (50, "flat", None), (5000, "flat", None), (9984, "ivf_pq", 16)]
)
def test_too_few_to_train_a_product_quantizer(
    count: int, kind: str, nlist: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS F3: 3, 50 and 5,000 vectors are searched by a flat index, and 39 for each centroid is what is said."""
    index = VectorIndex.build(vectors(count), kind="ivf_pq", nlist=16, m=1)
    assert index.kind == kind and index.parameters.get("nlist") == nlist
    assert ("needs 9984 vectors to train on (39 for each of 256 centroids)" in caplog.text) is (kind == "flat")
    rows, _ = index.search(vectors(3), min(count, 5))
    assert (rows >= 0).all()


@pytest.mark.parametrize(("count", "nlist"), [(1, 1), (3, 1), (50, 1), (400, 10), (5000, 16)])
def test_too_few_to_train_lists(count: int, nlist: int, caplog: pytest.LogCaptureFixture) -> None:
    """FAULTS F3: as many lists as have 39 vectors each, with a warning that names the rule."""
    index = VectorIndex.build(vectors(count), kind="sq", nlist=16)
    assert (index.kind, index.parameters["nlist"]) == ("sq", nlist)
    assert ("nlist 16 needs 624 vectors (39 for each list)" in caplog.text) is (nlist < 16)
    rows, _ = index.search(vectors(1), min(count, 5))
    assert (rows >= 0).all()


def test_zero_is_settled_by_the_corpus(caplog: pytest.LogCaptureFixture) -> None:
    """4 sqrt(N) lists, a byte for eight numbers; a small corpus that asked for nothing is not warned about."""
    for count, nlist in ((50, 1), (10_000, 256), (100_000, 1265), (21_000_000, 18_330)):
        assert settle("sq", {}, count=count, dimension=768)[1]["nlist"] == nlist
    assert settle("ivf_pq", {}, count=10**6, dimension=768)[1]["m"] == 96
    assert settle("ivf_pq", {}, count=10**6, dimension=100)[1]["m"] == 10
    assert settle("ivf_pq", {}, count=10**6, dimension=7)[1]["m"] == 1
    assert caplog.text == ""
    for kind in KINDS:
        settled = settle(kind, {}, count=10**6, dimension=768)
        assert settle(kind, settled[1], count=10**6, dimension=768) == settled


def test_m_divides_the_dimension() -> None:
    with pytest.raises(ConfigError, match="m must divide the dimension 768, got 100"):
        settle("ivf_pq", {"m": 100}, count=10**6, dimension=768)
