"""Search is exact inner product for `flat`, close to it for `hnsw`, and the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ragx.errors import ConfigError, IndexMismatchError, ShapeError
from ragx.retriever.index import KINDS, VectorIndex, resolve_parameters
from ragx.retriever.native import faiss


def vectors(count: int, size: int = 8, seed: int = 0) -> np.ndarray:
    """Vectors of clearly unequal norm, so that inner product and distance disagree."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, size)) * rng.uniform(0.1, 3.0, size=(count, 1))).astype(np.float32)


def brute_force(embeddings: np.ndarray, queries: np.ndarray, n_docs: int) -> np.ndarray:
    scores = (queries.astype(np.float64) @ embeddings.astype(np.float64).T).astype(np.float32)
    rows = np.broadcast_to(np.arange(len(embeddings)), scores.shape)
    return np.lexsort((rows, -scores))[:, :n_docs]


@pytest.mark.parametrize("seed", range(20))
def test_flat_is_exact(seed: int) -> None:
    embeddings, queries = vectors(60 + seed, seed=seed), vectors(5, seed=100 + seed)
    embeddings[10:20] = embeddings[5]  # ties
    n_docs = 1 + 3 * seed
    rows, scores = VectorIndex.build(embeddings).search(queries, n_docs)
    np.testing.assert_array_equal(rows, brute_force(embeddings, queries, n_docs))
    expected = np.take_along_axis(queries.astype(np.float64) @ embeddings.T.astype(np.float64), rows, 1)
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert rows.dtype == np.int64 and scores.dtype == np.float32


def test_inner_product_not_distance() -> None:
    """By hand: (1, 0) is nearer to the query, (5, 5) has the larger product."""
    embeddings = np.array([[1, 0], [5, 5], [-9, 0]], dtype=np.float32)
    for kind in KINDS:
        rows, scores = VectorIndex.build(embeddings, kind=kind).search(np.array([[1, 0]], dtype=np.float32), 3)
        assert rows.tolist() == [[1, 0, 2]] and scores.tolist() == [[5.0, 1.0, -9.0]]


def test_equal_vectors_come_in_row_order_however_many() -> None:
    embeddings = np.repeat(vectors(1), 500, axis=0)
    embeddings[300:] *= np.float32(0.5)
    query = embeddings[:1]
    rows, scores = VectorIndex.build(embeddings).search(np.repeat(query, 25, axis=0), 7)
    assert rows.tolist() == [list(range(7))] * 25
    assert len(np.unique(scores)) == 1


def test_a_score_does_not_depend_on_the_batch() -> None:
    index, queries = VectorIndex.build(vectors(300, 32)), vectors(40, 32, seed=1)
    rows, scores = index.search(queries, 5)
    for number in range(40):
        alone = index.search(queries[number : number + 1], 5)
        assert alone[0].tobytes() == rows[number].tobytes() and alone[1].tobytes() == scores[number].tobytes()


def test_hnsw_recall_on_unequal_norms() -> None:
    embeddings, queries = vectors(2000, 32), vectors(50, 32, seed=1)
    rows, _ = VectorIndex.build(embeddings, kind="hnsw").search(queries, 10)
    exact = brute_force(embeddings, queries, 10)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(rows.tolist(), exact.tolist(), strict=True)])
    assert recall >= 0.95


@pytest.mark.parametrize("kind", list(KINDS))
def test_builds_and_reads_back_the_same(tmp_path: Path, kind: str) -> None:
    embeddings, queries = vectors(400), vectors(30, seed=1)
    index = VectorIndex.build(embeddings, kind=kind)
    before = index.search(queries, 5)
    index.write(tmp_path / "a")
    VectorIndex.build(embeddings, kind=kind).write(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    read = VectorIndex.read(tmp_path / "a", embeddings, kind=kind, parameters=index.parameters)
    after = read.search(queries, 5)
    assert before[0].tobytes() == after[0].tobytes() and before[1].tobytes() == after[1].tobytes()
    assert read.parameters == KINDS[kind]


@pytest.mark.parametrize("kind", list(KINDS))
def test_arrays_of_the_caller_stay(kind: str) -> None:
    embeddings, queries = vectors(50), vectors(3, seed=1)
    kept = embeddings.copy(), queries.copy()
    VectorIndex.build(embeddings, kind=kind).search(queries, 5)
    np.testing.assert_array_equal(embeddings, kept[0])
    np.testing.assert_array_equal(queries, kept[1])


def test_other_layouts_and_types_give_the_same() -> None:
    embeddings, queries = vectors(50), vectors(3, seed=1)
    expected = VectorIndex.build(embeddings).search(queries, 5)
    for same in (embeddings.astype(np.float64), np.asfortranarray(embeddings), np.repeat(embeddings, 2, 0)[::2]):
        rows, scores = VectorIndex.build(same).search(np.asfortranarray(queries.astype(np.float64)), 5)
        assert rows.tobytes() == expected[0].tobytes() and scores.tobytes() == expected[1].tobytes()


def test_a_graph_that_finds_too_few_is_completed_exactly(caplog: pytest.LogCaptureFixture) -> None:
    embeddings, queries = vectors(200), vectors(4, seed=1)
    index = VectorIndex.build(embeddings, kind="hnsw", m=2, ef_construction=1, ef_search=1)
    rows, _ = index.search(queries, 150)
    np.testing.assert_array_equal(rows, brute_force(embeddings, queries, 150))
    assert "raise ef_search" in caplog.text


def test_not_finite_is_refused() -> None:
    embeddings = vectors(50)
    embeddings[33, 2] = np.nan
    with pytest.raises(ShapeError, match="must be finite float32, got NaN or infinity in row 33"):
        VectorIndex.build(embeddings)
    too_large = vectors(5).astype(np.float64)
    too_large[4] = 1e300
    with pytest.raises(ShapeError, match="got NaN or infinity in row 4"), np.errstate(over="ignore"):
        VectorIndex.build(too_large)
    with pytest.raises(ShapeError, match="query_embeds must be finite"):
        VectorIndex.build(vectors(5)).search(np.full((1, 8), np.inf, dtype=np.float32), 1)


def test_shapes_and_counts_are_checked() -> None:
    index = VectorIndex.build(vectors(5))
    with pytest.raises(ShapeError, match=r"query_embeds must be \(B, 8\) .* got \(1, 9\)"):
        index.search(vectors(1, 9), 1)
    with pytest.raises(ConfigError, match="n_docs must lie between 1 and the 5 passages of the index, got 6"):
        index.search(vectors(1), 6)
    with pytest.raises(ConfigError, match="n_docs must lie between 1 and the 5 passages of the index, got 0"):
        index.search(vectors(1), 0)
    with pytest.raises(ShapeError, match=r"embeddings must be \(N, D\) with N, D >= 1, got \(0, 8\)"):
        VectorIndex.build(vectors(0))


def test_parameters_are_checked() -> None:
    assert resolve_parameters("hnsw", {"m": 5}) == {"m": 5, "ef_construction": 200, "ef_search": 128}
    with pytest.raises(ConfigError, match="kind must be one of flat, hnsw, got 'ivf'"):
        resolve_parameters("ivf")
    with pytest.raises(ConfigError, match="parameters of hnsw must be among: m, ef_construction, .* got 'efSearch'"):
        VectorIndex.build(vectors(5), kind="hnsw", efSearch=5)
    with pytest.raises(ConfigError, match="parameters of flat must be among: none, got 'm'"):
        VectorIndex.build(vectors(5), m=5)
    with pytest.raises(ConfigError, match="m must be an integer >= 2, got 1"):
        resolve_parameters("hnsw", {"m": 1})
    with pytest.raises(ConfigError, match="ef_search must be an integer >= 1, got 0"):
        resolve_parameters("hnsw", {"ef_search": 0})


def test_another_metric_kind_or_size_is_refused_on_reading(tmp_path: Path) -> None:
    embeddings = vectors(20)
    by_distance = faiss.IndexFlatL2(8)
    by_distance.add(embeddings)
    faiss.write_index(by_distance, str(tmp_path / "l2"))
    with pytest.raises(IndexMismatchError, match="metric of the FAISS index must be 0, got 1"):
        VectorIndex.read(tmp_path / "l2", embeddings, kind="flat", parameters={})
    VectorIndex.build(embeddings).write(tmp_path / "flat")
    with pytest.raises(IndexMismatchError, match="kind of the FAISS index must be IndexHNSWFlat, got IndexFlatIP"):
        VectorIndex.read(tmp_path / "flat", embeddings, kind="hnsw", parameters={})
    with pytest.raises(IndexMismatchError, match=r"must be \(19, 8\), got \(20, 8\)"):
        VectorIndex.read(tmp_path / "flat", embeddings[1:], kind="flat", parameters={})
    (tmp_path / "text").write_text("no index")
    with pytest.raises(IndexMismatchError, match="must be a FAISS index"):
        VectorIndex.read(tmp_path / "text", embeddings, kind="flat", parameters={})
