"""A hybrid's scores are the stated formula over the union of both rankings, and train q(x) through the dense part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, IndexMismatchError, ShapeError
from ragx.filters import PassageFilter
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.protocols import Retriever
from ragx.records import Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.hybrid import FusionSettings, HybridRetriever
from ragx.retriever.query_encoder import QueryEncoder

QUERIES = ["Who leads France?", "river in Berlin", "zzz"]
Open = Callable[..., HybridRetriever]


@pytest.fixture
def both(build: Callable[..., Path], passages: list[Passage], tmp_path: Path) -> tuple[Path, Path]:
    BM25Retriever.build(passages, tmp_path / "words", edition="2016-12")
    return build(passages), tmp_path / "words"


@pytest.fixture
def hybrid(both: tuple[Path, Path]) -> Open:
    def make(**settings: object) -> HybridRetriever:
        return HybridRetriever.open(*both, settings=FusionSettings(**settings))  # type: ignore[arg-type]

    return make


@pytest.fixture
def embeds() -> torch.Tensor:
    return torch.randn(3, 16, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("scale", ["deviation", "range", "none"])
def test_weighted_scores_equal_the_formula(
    both: tuple[Path, Path], hybrid: Open, embeds: torch.Tensor, scale: str
) -> None:
    """All six passages are candidates, so the spread is over all of them."""
    retriever = hybrid(weight=0.3, scale=scale)
    found = retriever.retrieve(QUERIES, 6, query_embeds=embeds)
    vectors, words = np.load(both[0] / "embeddings.npy"), BM25Retriever.open(both[1])
    assert isinstance(retriever, Retriever) and found.doc_embeds is not None and found.doc_offsets is not None
    for b, query in enumerate(QUERIES):
        dense, lexical = vectors.astype(np.float64) @ embeds[b].double().numpy(), words.scores(query).astype(np.float64)
        spreads: dict[str, Callable[[np.ndarray], float]]
        spreads = {"deviation": np.std, "range": np.ptp, "none": lambda scores: 1.0}
        spread = spreads[scale]
        ratio = spread(dense) / spread(lexical) if lexical.any() else 1.0
        expected = 0.3 * dense + 0.7 * ratio * lexical
        assert found.rows[b].tolist() == np.argsort(-expected, kind="stable").tolist()
        np.testing.assert_allclose(found.doc_scores[b], expected[found.rows[b]], rtol=1e-5)
        recomputed = found.doc_embeds[b] @ embeds[b].numpy() + found.doc_offsets[b]  # what the model does
        np.testing.assert_allclose(recomputed, found.doc_scores[b], atol=1e-4)
    assert found.passages == [[retriever.passages[int(row)] for row in rows] for rows in found.rows]


def test_all_weight_on_one_side_is_that_side(both: tuple[Path, Path], hybrid: Open, embeds: torch.Tensor) -> None:
    dense = DenseRetriever.open(both[0]).retrieve(QUERIES, 4, query_embeds=embeds)
    found = hybrid(weight=1.0).retrieve(QUERIES, 4, query_embeds=embeds)
    assert found.rows.tolist() == dense.rows.tolist() and found.doc_scores.tobytes() == dense.doc_scores.tobytes()
    assert found.doc_offsets is not None and not found.doc_offsets.any()
    words = BM25Retriever.open(both[1]).retrieve(QUERIES, 4)
    found = hybrid(weight=0.0, scale="none").retrieve(QUERIES, 4, query_embeds=embeds)
    assert found.rows.tolist() == words.rows.tolist()  # the last query has no known word: ties by row in both
    np.testing.assert_allclose(found.doc_scores, words.doc_scores, rtol=1e-6)


def test_what_only_one_side_finds_has_both_scores(both: tuple[Path, Path], hybrid: Open) -> None:
    """One candidate a side: the union is two passages, each with its q.d and its BM25 score."""
    vectors = np.load(both[0] / "embeddings.npy")
    words = BM25Retriever.open(both[1]).scores("river Amazon")
    query = torch.from_numpy(vectors[0] - vectors.mean(0))
    best_dense = int((vectors @ query.numpy()).argmax())
    assert best_dense != 3 and int(words.argmax()) == 3
    found = hybrid(candidates=1, weight=0.5, scale="none").retrieve(["river Amazon"], 1, query_embeds=query[None])
    expected = 0.5 * vectors @ query.numpy() + 0.5 * words
    assert found.rows[0, 0] == max((best_dense, 3), key=lambda row: expected[row])
    np.testing.assert_allclose(found.doc_scores[0, 0], expected[found.rows[0, 0]], rtol=1e-5)


def test_reciprocal_rank_makes_the_prior_proportional_to_the_fused_score(
    both: tuple[Path, Path], hybrid: Open, embeds: torch.Tensor
) -> None:
    dense = DenseRetriever.open(both[0]).retrieve(QUERIES, 6, query_embeds=embeds).rows
    words = BM25Retriever.open(both[1]).retrieve(QUERIES, 6)
    found = hybrid(method="reciprocal_rank", rank_constant=10).retrieve(QUERIES, 6, query_embeds=embeds)
    assert found.doc_embeds is None and found.doc_offsets is None
    for b in range(3):
        ranks = {int(row): rank for rank, row in enumerate(words.rows[b], 1) if words.doc_scores[b, rank - 1] > 0}
        fused = {int(row): 1 / (10 + rank) for rank, row in enumerate(dense[b], 1)}
        for row, rank in ranks.items():
            fused[row] += 1 / (10 + rank)
        assert found.rows[b].tolist() == sorted(fused, key=lambda row: (-fused[row], row))
        prior = np.exp(found.doc_scores[b]) / np.exp(found.doc_scores[b]).sum()
        expected = np.array([fused[row] for row in found.rows[b].tolist()])
        np.testing.assert_allclose(prior, expected / expected.sum(), rtol=1e-5)
    assert found.rows[2].tolist() == dense[2].tolist()  # a query of unknown words leaves the dense ranking


def test_the_gradient_to_q_is_the_weight_times_d(
    tiny_index: Path,
    tiny_passages: list[Passage],
    query_encoder: QueryEncoder,
    generator: Seq2SeqGenerator,
    tmp_path: Path,
) -> None:
    BM25Retriever.build(tiny_passages, tmp_path / "words", edition="2016-12")
    asked = ["Who led Peru until 2011?", "capital of Ghana"]
    retriever = HybridRetriever.open(tiny_index, tmp_path / "words", settings=FusionSettings(weight=0.3))
    model = RagModel(
        kind="rag_sequence", generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=3
    )
    found, scores = model.retrieve(asked)
    torch.testing.assert_close(scores.detach(), torch.from_numpy(found.doc_scores), atol=1e-4, rtol=1e-5)
    weights = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    parameters = [p for p in query_encoder.parameters() if p.requires_grad]
    ours = torch.autograd.grad((weights * scores).sum(), parameters)
    doc_embeds = torch.from_numpy(np.load(tiny_index / "embeddings.npy")[found.rows])
    by_hand = torch.einsum("bd,bkd->bk", query_encoder.embed(asked), 0.3 * doc_embeds)
    expected = torch.autograd.grad((weights * by_hand).sum(), parameters)
    torch.testing.assert_close(ours, expected)
    assert max(float(grad.abs().max()) for grad in ours) > 1e-3
    loss = model(asked, ["Alan", "Accra"]).loss
    assert any(bool(grad.any()) for grad in torch.autograd.grad(loss, parameters))
    ranked = HybridRetriever.open(tiny_index, tmp_path / "words", settings=FusionSettings("reciprocal_rank"))
    model = RagModel(kind="rag_token", generator=generator, query_encoder=query_encoder, retriever=ranked, n_docs=3)
    assert not model.retrieve(asked)[1].requires_grad


def test_both_indexes_must_be_over_the_same_passages(
    both: tuple[Path, Path], passages: list[Passage], tmp_path: Path
) -> None:
    BM25Retriever.build(passages[::-1], tmp_path / "reversed", edition="2016-12")
    with pytest.raises(IndexMismatchError, match=r"passages_fingerprint must agree(.|\n)*folder: .*reversed"):
        HybridRetriever.open(both[0], tmp_path / "reversed", settings=FusionSettings())


@pytest.mark.parametrize("method", ["weighted", "reciprocal_rank"])
def test_what_a_filter_keeps_out_and_what_is_deleted_is_never_found(
    build: Callable[..., Path], passages: list[Passage], embeds: torch.Tensor, tmp_path: Path, method: str
) -> None:
    secret = [replace(p, acl=("staff",)) if row in (1, 5) else p for row, p in enumerate(passages)]
    BM25Retriever.build(secret, tmp_path / "words", edition="2016-12")
    folder, settings = build(secret), FusionSettings(method)
    everybody = PassageFilter(acl=())
    own = HybridRetriever.open(folder, tmp_path / "words", settings=settings, passage_filter=everybody)
    asked = HybridRetriever.open(folder, tmp_path / "words", settings=settings)
    found = own.retrieve(QUERIES, 6, query_embeds=embeds)
    assert found.rows.shape == (3, 4) and {1, 5}.isdisjoint(found.rows.ravel().tolist())
    again = asked.retrieve(QUERIES, 6, query_embeds=embeds, passage_filter=everybody)
    assert again.rows.tolist() == found.rows.tolist() and again.doc_scores.tobytes() == found.doc_scores.tobytes()
    assert 5 in asked.retrieve(QUERIES, 6, query_embeds=embeds).rows
    words = BM25Retriever.open(tmp_path / "words")
    DenseRetriever.open(folder).delete([passages[0].key])
    left = HybridRetriever.open(folder, tmp_path / "words", settings=settings)
    assert len(left) == 5 and 0 not in left.retrieve(QUERIES, 6, query_embeds=embeds).rows
    assert left.fingerprint != asked.fingerprint and 0 in words.retrieve(["Lima"], 1).rows


def test_refusals_and_names(hybrid: Open, both: tuple[Path, Path], embeds: torch.Tensor) -> None:
    retriever = hybrid()
    assert retriever.edition == "2016-12" and retriever.manifest == DenseRetriever.open(both[0]).manifest
    others = [hybrid(weight=0.4), hybrid(scale="none"), hybrid(candidates=9), hybrid(method="reciprocal_rank")]
    assert len({retriever.fingerprint, *(other.fingerprint for other in others)}) == 5
    assert hybrid().fingerprint == retriever.fingerprint
    for n_docs in (0, 7):
        with pytest.raises(
            ConfigError, match=f"n_docs must lie between 1 and the 6 passages of the index, got {n_docs}"
        ):
            retriever.retrieve(QUERIES, n_docs, query_embeds=embeds)
    with pytest.raises(ShapeError, match="query_embeds must hold one vector for each of 3 queries, got None"):
        retriever.retrieve(QUERIES, 2)
    with pytest.raises(ConfigError, match=r"fusion.method must(.|\n)*fusion.candidates must(.|\n)*fusion.weight must"):
        FusionSettings("sum", candidates=0, weight=math.nan)
