"""The table that carries an index to 21 million passages: sizes against real files, growth by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragx.experiments.benchmarks import scale, search
from ragx.experiments.benchmarks.scale import WIKIPEDIA, build_growth, index_bytes, needed, scaled, search_growth
from ragx.retriever.index import VectorIndex
from ragx.retriever.kinds import KINDS


@pytest.mark.parametrize(
    ("kind", "count", "parameters"),
    [("flat", 500, {}), ("torch", 500, {}), ("hnsw", 3000, {"m": 4, "ef_construction": 8}), ("sq", 3000, {}),
     ("sq", 3000, {"bits": 4}), ("ivf_pq", 10_000, {"m": 2, "nlist": 4})],
)  # fmt: skip
def test_bytes_are_those_of_a_written_index(tmp_path: Path, kind: str, count: int, parameters: dict[str, int]) -> None:
    vectors = np.random.default_rng(0).normal(size=(count, 16)).astype(np.float32)
    written = VectorIndex.build(vectors, kind=kind, **parameters).write(tmp_path / "index")
    size = (tmp_path / "index").stat().st_size if written else 0
    assert size == pytest.approx(index_bytes(kind, count=count, dimension=16, parameters=parameters), rel=0.01, abs=999)


def test_bytes_at_the_size_of_wikipedia() -> None:
    """By hand: 21,015,324 x 768 x 4 bytes are 64.6 GB; 96 + 8 bytes each and 18,337 lists are 2.2 GB."""
    vectors = WIKIPEDIA * 768 * 4
    assert needed("flat", count=WIKIPEDIA, dimension=768) == (vectors, vectors)
    assert needed("torch", count=WIKIPEDIA, dimension=768, vector_bytes=2) == (vectors // 2, vectors // 2)
    lists = WIKIPEDIA * (96 + 8) + 4 * 768 * (18_337 + 256)
    assert needed("ivf_pq", count=WIKIPEDIA, dimension=768) == (vectors + lists, lists)
    graph = needed("hnsw", count=WIKIPEDIA, dimension=768)
    assert graph.memory == pytest.approx(WIKIPEDIA * (3072 + 12 + 4 * (64 + 32 / 31)))
    assert needed("sq", count=WIKIPEDIA, dimension=768).memory == WIKIPEDIA * 776 + 4 * 768 * 18_339


def test_growth_by_hand() -> None:
    """A hundred times the vectors, from 10^4."""
    sizes = {"measured": 10**4, "count": 10**6}
    assert [search_growth(kind, **sizes) for kind in KINDS] == pytest.approx([100, 100, 1.5, 10, 10])
    assert [build_growth(kind, **sizes) for kind in KINDS] == pytest.approx([100, 100, 150, 1000, 1000])
    for kind in KINDS:
        assert search_growth(kind, measured=7, count=7) == build_growth(kind, measured=7, count=7) == 1


def row(index: str, vectors: int, batch_size: int, ours_s: float) -> dict[str, Any]:
    measured = {"vectors": vectors, "dimension": 768, "index": index, "batch_size": batch_size, "ours_s": ours_s}
    return {**measured, "peer_s": ours_s / 1.02, "build_s": 36.0, "build_mib": 5.0, "recall": 0.97}


def test_the_largest_measured_row_is_carried() -> None:
    rows = [row("sq", 100, 1, 9.0), row("sq", 10**4, 8, 0.8), row("sq", 10**4, 1, 0.2), row("flat", 10**4, 1, 0.1)]
    of_lists, exact = scaled(rows, count=10**6)
    assert (of_lists["index"], of_lists["measured_at"], of_lists["computed_at"]) == ("sq", 10**4, 10**6)
    assert (of_lists["query_ms"], of_lists["computed_query_ms"]) == pytest.approx((200, 2000))
    assert of_lists["computed_build_h"] == pytest.approx(10)
    assert of_lists["cost"] == pytest.approx(1.02) and exact["computed_query_ms"] == pytest.approx(10_000)
    assert exact["computed_disk_gb"] == exact["computed_memory_gb"] == pytest.approx(3.072)
    text = scale.scale_table(rows, count=10**6)
    assert "computed for 1,000,000 passages" in text and len(text.splitlines()) == 5
    assert text.splitlines()[2].split()[:6] == ["sq", "10000", "0.970", "200", "5", "1.02"]


@pytest.mark.parametrize("kind", ["sq", "hnsw", "torch"])
def test_both_sides_of_a_search_do_the_same(tmp_path: Path, kind: str) -> None:
    search.write_vectors(tmp_path, count=2000, dimension=16, seed=0)
    made = search.built(tmp_path, kind, clock="cpu")
    figures = made["figures"]
    assert figures["recall"] >= 0.95 and figures["build_s"] >= 0
    assert (figures["index_mib"] > 0) is (kind != "torch")
    task = search._Task(tmp_path, kind, made["parameters"], n_docs=4, batch_size=8, device="cpu")
    ours, peer = search._Ours(task).check(), search._Peer(task).check()
    assert ours["ids"].equal(peer["ids"])
    np.testing.assert_allclose(ours["logprob"], peer["logprob"], rtol=1e-5)
