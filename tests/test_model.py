"""The joint model: what reaches which parameter, what a call decides, and answers that agree with the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragx.decoding.choice import DECODERS
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError, ShapeError
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import MODEL_KINDS, RagModel
from ragx.records import Passage, Retrieved
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passages import PassageStore
from ragx.retriever.query_encoder import QueryEncoder

QUERIES = ["Who was Müller at NASA?", "Who led Peru until 2011?"]
ANSWERS = ["Müller", "Alan García"]
RAG_KINDS = ["rag_sequence", "rag_token"]
SETTINGS = DecodingSettings(num_beams=3, num_return_sequences=2, max_length=6)
PAIRS = [(kind, decoder) for kind in MODEL_KINDS for decoder in DECODERS[kind]]


@pytest.fixture
def build(
    generator: Seq2SeqGenerator, query_encoder: QueryEncoder, retriever: DenseRetriever
) -> Callable[..., RagModel]:
    def make(kind: str, **options: Any) -> RagModel:
        if kind == "closed_book":
            return RagModel(kind=kind, generator=generator, **options)
        parts: dict[str, Any] = {"query_encoder": query_encoder, "retriever": retriever, "n_docs": 3, **options}
        return RagModel(kind=kind, generator=generator, **parts)

    return make


@pytest.mark.parametrize("kind", RAG_KINDS)
def test_the_loss_is_the_formula_over_the_parts(build: Callable[..., RagModel], kind: str) -> None:
    output = build(kind)(QUERIES, ANSWERS)
    assert output.doc_scores is not None and output.doc_logprobs is not None and output.retrieved is not None
    prior, tokens = output.doc_scores.double().softmax(1), output.token_logprobs.double().exp()
    torch.testing.assert_close(output.doc_logprobs.double().exp(), prior, atol=1e-6, rtol=0)
    by_hand = {
        "rag_sequence": lambda: (prior * tokens.prod(2)).sum(1),
        "rag_token": lambda: (prior.unsqueeze(2) * tokens).sum(1).prod(1),
    }[kind]()
    torch.testing.assert_close(output.nll.double(), -by_hand.log(), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(output.loss, output.nll.mean())
    torch.testing.assert_close(output.doc_scores, torch.from_numpy(output.retrieved.doc_scores), atol=1e-5, rtol=1e-5)
    labels = build(kind).generator.inputs.labels(ANSWERS, max_length=32)
    assert output.n_tokens == int((labels >= 0).sum())


@pytest.mark.parametrize("kind", RAG_KINDS)
def test_the_gradient_reaches_every_tensor_of_both_trained_parts(build: Callable[..., RagModel], kind: str) -> None:
    model = build(kind).train()
    model(QUERIES, ANSWERS).loss.backward()
    # A key's bias moves all attention scores of a query alike, so its gradient is zero in exact arithmetic.
    silent = [
        name
        for name, p in model.named_parameters()
        if (p.grad is None or not p.grad.abs().sum() > 0) and not name.endswith(("key.bias", "k_proj.bias"))
    ]
    assert silent == []


@pytest.mark.parametrize("kind", RAG_KINDS)
def test_the_gradient_of_doc_scores_is_prior_minus_posterior(build: Callable[..., RagModel], kind: str) -> None:
    output = build(kind)(QUERIES, ANSWERS)
    assert output.doc_scores is not None and output.doc_logprobs is not None
    (gradient,) = torch.autograd.grad(output.nll.sum(), output.doc_scores)
    prior = output.doc_logprobs.exp()
    if kind == "rag_sequence":
        expected = prior - (output.doc_logprobs + output.token_logprobs.sum(2)).softmax(1)
    else:
        per_token = (output.doc_logprobs.unsqueeze(2) + output.token_logprobs).softmax(1)
        expected = (prior.unsqueeze(2) - per_token).sum(2)
    torch.testing.assert_close(gradient, expected.detach(), atol=1e-5, rtol=1e-4)


def test_a_frozen_query_encoder_gets_no_gradient_and_no_dropout(build: Callable[..., RagModel]) -> None:
    model = build("rag_sequence")
    model.freeze_query_encoder = True
    model.train()
    assert model.query_encoder is not None
    assert model.generator.training and not any(m.training for m in model.query_encoder.modules())
    model(QUERIES, ANSWERS).loss.backward()
    assert all(p.grad is None for p in model.query_encoder.parameters())
    assert any(p.grad is not None for p in model.generator.parameters())
    model.freeze_query_encoder = False
    model(QUERIES, ANSWERS).loss.backward()
    assert model.query_encoder.training and any(p.grad is not None for p in model.query_encoder.parameters())


def test_one_passage_is_plain_cross_entropy_whatever_its_score(build: Callable[..., RagModel]) -> None:
    outputs = [build(kind)(QUERIES, ANSWERS, n_docs=1) for kind in RAG_KINDS]
    cross_entropy = -outputs[0].token_logprobs.sum((1, 2))
    for output in outputs:
        torch.testing.assert_close(output.nll, cross_entropy, atol=1e-5, rtol=1e-6)


def test_one_token_makes_both_kinds_equal(build: Callable[..., RagModel]) -> None:
    sequence, token = (build(kind)(QUERIES, ["", ""]) for kind in RAG_KINDS)
    assert sequence.token_logprobs.shape == (2, 3, 1)
    torch.testing.assert_close(sequence.nll, token.nll, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", RAG_KINDS)
@pytest.mark.parametrize("n_docs", [1, 2, 5])
def test_n_docs_at_call_time_equals_a_model_built_with_it(
    build: Callable[..., RagModel], kind: str, n_docs: int
) -> None:
    called, built = build(kind), build(kind, n_docs=n_docs)
    ours, theirs = called(QUERIES, ANSWERS, n_docs=n_docs), built(QUERIES, ANSWERS)
    assert ours.token_logprobs.shape[:2] == (2, n_docs)
    torch.testing.assert_close(ours.nll, theirs.nll)
    for decoder in DECODERS[kind]:
        answered = called.generate(QUERIES, decoder=decoder, settings=SETTINGS, n_docs=n_docs)
        expected = built.generate(QUERIES, decoder=decoder, settings=SETTINGS)
        assert [a.hypotheses for a in answered] == [a.hypotheses for a in expected]
        assert {len(a.passages) for a in answered} == {n_docs}


def test_closed_book_is_the_generator_alone(build: Callable[..., RagModel], generator: Seq2SeqGenerator) -> None:
    output = build("closed_book")(QUERIES, ANSWERS)
    inputs = generator.tokenizer(QUERIES, padding=True, return_tensors="pt")
    labels = generator.inputs.labels(ANSWERS, max_length=32)
    peer = generator.model(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, labels=labels).loss
    torch.testing.assert_close(output.nll.sum() / output.n_tokens, peer, atol=1e-5, rtol=1e-5)
    assert output.doc_logprobs is None and output.retrieved is None and output.token_logprobs.shape[1] == 1


def test_a_batch_gives_what_each_query_gives_alone(build: Callable[..., RagModel]) -> None:
    for kind in MODEL_KINDS:
        together = build(kind)(QUERIES, ANSWERS).nll
        alone = torch.cat([build(kind)([q], [a]).nll for q, a in zip(QUERIES, ANSWERS, strict=True)])
        torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("kind", RAG_KINDS)
def test_the_order_of_passages_changes_nothing(build: Callable[..., RagModel], kind: str) -> None:
    model = build(kind)
    output = model(QUERIES, ANSWERS)
    assert output.retrieved is not None
    found, order = output.retrieved, [2, 0, 1]
    assert found.doc_embeds is not None
    shuffled = Retrieved(
        passages=[[row[i] for i in order] for row in found.passages],
        rows=found.rows[:, order],
        doc_embeds=found.doc_embeds[:, order],
        doc_scores=found.doc_scores[:, order],
        index_fingerprint=found.index_fingerprint,
    )
    torch.testing.assert_close(model(QUERIES, ANSWERS, retrieved=shuffled).nll, output.nll, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("kind", RAG_KINDS)
def test_passages_brought_by_the_caller_need_no_retriever(build: Callable[..., RagModel], kind: str) -> None:
    whole = build(kind)
    output = whole(QUERIES, ANSWERS)
    alone = build(kind, retriever=None)
    torch.testing.assert_close(alone(QUERIES, ANSWERS, retrieved=output.retrieved).nll, output.nll)
    decoder = next(iter(DECODERS[kind]))
    answered = alone.generate(QUERIES, decoder=decoder, settings=SETTINGS, retrieved=output.retrieved)
    expected = whole.generate(QUERIES, decoder=decoder, settings=SETTINGS)
    assert [a.texts for a in answered] == [a.texts for a in expected]
    with pytest.raises(ConfigError, match=r"model.retriever must be set to retrieve, got None"):
        alone(QUERIES, ANSWERS)
    # Scores alone will do as well: no query encoder, no vectors.
    assert output.retrieved is not None
    bare = build(kind, retriever=None, query_encoder=None)
    scored = bare(QUERIES, ANSWERS, retrieved=replace(output.retrieved, doc_embeds=None))
    torch.testing.assert_close(scored.nll, output.nll, atol=1e-4, rtol=1e-5)


def test_bm25_scores_are_the_prior(generator: Seq2SeqGenerator, tiny_passages: list[Passage], tmp_path: Path) -> None:
    bm25 = BM25Retriever.build(
        PassageStore.build(tiny_passages, tmp_path / "passages"), tmp_path / "bm25", edition="2016-12"
    )
    model = RagModel(kind="rag_token", generator=generator, retriever=bm25, n_docs=2)
    output = model(["Who led Peru?"], ["García"])
    assert output.doc_scores is not None and output.retrieved is not None
    assert not output.doc_scores.requires_grad
    assert output.doc_scores.tolist() == output.retrieved.doc_scores.tolist()
    assert output.retrieved.passages[0][0].title == "Peru"


@pytest.mark.parametrize(("kind", "decoder"), PAIRS)
def test_answers_agree_with_the_loss_and_with_what_was_read(
    build: Callable[..., RagModel], kind: str, decoder: str
) -> None:
    """log p(y|x) of an answer is the marginal of its token_logprobs, and -nll of training on that very text."""
    model = build(kind)
    answered = model.generate(QUERIES, decoder=decoder, settings=replace(SETTINGS, max_length=12))
    assert [a.query for a in answered] == QUERIES
    n_docs = 0 if kind == "closed_book" else 3
    for answer in answered:
        best = answer.hypotheses[0]
        tokens = torch.from_numpy(answer.token_logprobs).unsqueeze(0)
        assert tokens.shape == (1, max(n_docs, 1), len(best.token_ids))
        doc_logprobs = torch.from_numpy(answer.doc_logprobs).unsqueeze(0) if n_docs else None
        marginal = model.marginalize(tokens, doc_logprobs).item()
        assert math.isclose(best.logprob, marginal, abs_tol=1e-4) or (decoder == "fast" and best.logprob < marginal)
        assert [h.logprob for h in answer.hypotheses] == sorted((h.logprob for h in answer.hypotheses), reverse=True)
        assert len(answer.passages) == len(answer.doc_scores) == len(answer.visible) == len(answer.cut_tokens) == n_docs
        assert answer.visible == tuple((0, len(p.text)) for p in answer.passages)
        assert answer.texts == tuple(model.generator.inputs.decode(h.token_ids) for h in answer.hypotheses)


def test_generate_restores_the_mode_and_ignores_dropout(build: Callable[..., RagModel]) -> None:
    model = build("rag_sequence")
    for module in model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.5  # type: ignore[assignment]
    assert not model.training
    quiet = model.generate(QUERIES, decoder="thorough", settings=SETTINGS)
    model.train()
    assert [a.hypotheses for a in model.generate(QUERIES, decoder="thorough", settings=SETTINGS)] == [
        a.hypotheses for a in quiet
    ]
    assert model.training and model.generator.model.training


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_a_decoder_of_another_kind_is_refused_with_those_that_fit(build: Callable[..., RagModel], kind: str) -> None:
    wrong = {"rag_sequence": "token_beam", "rag_token": "thorough", "closed_book": "fast"}[kind]
    fitting = ", ".join([*DECODERS[kind], "closed_set"])
    with pytest.raises(ConfigError, match=f"decoder must be one of {fitting} for {kind}, got '{wrong}'"):
        build(kind).generate(QUERIES, decoder=wrong, settings=SETTINGS)


def test_impossible_models_and_batches_are_refused(build: Callable[..., RagModel], retriever: DenseRetriever) -> None:
    with pytest.raises(ConfigError, match="model.kind must be one of rag_sequence, rag_token, closed_book, got 'rag'"):
        build("rag")
    with pytest.raises(ConfigError, match="got 'closed_book'. Leave that out"):
        build("closed_book", retriever=retriever)
    with pytest.raises(ConfigError, match="model.n_docs must be >= 1, got 0"):
        build("rag_token", n_docs=0)
    with pytest.raises(ConfigError, match="freeze_query_encoder must be false without a query encoder"):
        build("closed_book").freeze_query_encoder = True
    with pytest.raises(ShapeError, match=r"answers must be one a query \(2, at least 1\), got 1"):
        build("rag_token")(QUERIES, ANSWERS[:1])
    found, _ = build("rag_token").retrieve(QUERIES)
    with pytest.raises(ShapeError, match="retrieved must be None for closed_book"):
        build("closed_book")(QUERIES, ANSWERS, retrieved=found)
    with pytest.raises(ConfigError, match=r"n_docs must .*got 6"):
        build("rag_token")(QUERIES, ANSWERS, n_docs=6)


def test_passage_vectors_and_index_are_never_written_to(build: Callable[..., RagModel]) -> None:
    model = build("rag_sequence").train()
    before, _ = model.retrieve(QUERIES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        output = model(QUERIES, ANSWERS, retrieved=before)
        output.loss.backward()
        optimizer.step()
        losses.append(output.loss.item())
    after, _ = model.retrieve(QUERIES, n_docs=5)
    assert losses[-1] < losses[0] - 1.0
    vectors = {int(r): e.tobytes() for r, e in zip(after.rows[0], after.doc_embeds[0], strict=True)}  # type: ignore[index]
    assert all(vectors[int(r)] == e.tobytes() for r, e in zip(before.rows[0], before.doc_embeds[0], strict=True))  # type: ignore[index]
