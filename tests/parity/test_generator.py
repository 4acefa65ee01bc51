"""The whole model beside transformers' RAG on the same weights and inputs: equal where transformers is right.

transformers takes `labels` as decoder inputs and scores them shifted left by one; with the start token put in front
they mean what ours mean. Where it departs from the paper a test shows both values.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import RagConfig, RagSequenceForGeneration, RagTokenForGeneration

from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel, RagOutput
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.query_encoder import QueryEncoder

PEERS = {"rag_sequence": RagSequenceForGeneration, "rag_token": RagTokenForGeneration}
QUERIES = ["Who was Müller at NASA?", "Who led Peru until 2011, and who led Chile?"]
ANSWERS = ["Müller", "Alan García, then Michelle Bachelet"]
N_DOCS = 3


@pytest.fixture(params=list(PEERS))
def model(
    request: pytest.FixtureRequest, generator: Seq2SeqGenerator, query_encoder: QueryEncoder, retriever: DenseRetriever
) -> RagModel:
    return RagModel(
        kind=request.param, generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=N_DOCS
    )


def peer_of(model: RagModel) -> nn.Module:
    """transformers' model around the very same modules."""
    assert model.query_encoder is not None
    question_encoder, generator = model.query_encoder.tower.model, model.generator.model
    config = RagConfig.from_question_encoder_generator_configs(
        question_encoder.config, generator.config, n_docs=N_DOCS, reduce_loss=True, label_smoothing=0.0
    )
    return PEERS[model.kind](config=config, question_encoder=question_encoder, generator=generator).eval()


def peer_forward(model: RagModel, ours: RagOutput, labels: Tensor) -> Any:
    """transformers' output on the passages that ours read; q.d is computed from the encoder as transformers does."""
    assert ours.retrieved is not None and model.query_encoder is not None
    inputs = model.expand(QUERIES, ours.retrieved)
    query_embeds = model.query_encoder.embed(QUERIES)
    doc_embeds = torch.tensor(ours.retrieved.doc_embeds)
    return peer_of(model)(
        context_input_ids=inputs.input_ids,
        context_attention_mask=inputs.attention_mask,
        doc_scores=torch.bmm(query_embeds.unsqueeze(1), doc_embeds.transpose(1, 2)).squeeze(1),
        labels=labels,
    )


def peer_labels(model: RagModel, labels: Tensor) -> Tensor:
    """Our labels as transformers wants them: the start token in front, pad where ours ignore."""
    start = labels.new_full((len(labels), 1), model.generator.decoder_start_token_id)
    return torch.cat([start, labels.masked_fill(labels < 0, model.generator.pad_token_id)], dim=1)


def gradients(model: RagModel, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_losses_and_all_gradients_equal_those_of_transformers(model: RagModel) -> None:
    ours = model(QUERIES, ANSWERS)
    labels = model.generator.inputs.labels(ANSWERS, max_length=32)
    peer = peer_forward(model, ours, peer_labels(model, labels))
    torch.testing.assert_close(ours.nll.sum(), peer.loss.squeeze(), atol=1e-4, rtol=1e-6)
    ours_gradients, peer_gradients = gradients(model, ours.nll.sum()), gradients(model, peer.loss.squeeze())
    assert ours_gradients.keys() == peer_gradients.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in ours_gradients.items():
        scale = max(1.0, gradient.abs().max().item())
        torch.testing.assert_close(gradient / scale, peer_gradients[name] / scale, atol=1e-5, rtol=0, msg=name)


def test_a_target_of_one_token_keeps_its_prior_here_and_loses_it_there(model: RagModel) -> None:
    """transformers' RAG-Sequence adds log p(z|x) at the second target, which is padding where the answer is empty."""
    answers = ["", ""]
    ours = model(QUERIES, answers)
    labels = peer_labels(model, model.generator.inputs.labels(answers, max_length=32))
    padded = torch.nn.functional.pad(labels, (0, 1), value=model.generator.pad_token_id)
    peer = peer_forward(model, ours, padded)
    assert ours.doc_logprobs is not None
    right = -(ours.doc_logprobs + ours.token_logprobs[:, :, 0]).logsumexp(1).sum()
    torch.testing.assert_close(ours.nll.sum(), right, atol=1e-5, rtol=1e-6)
    if model.kind == "rag_token":
        torch.testing.assert_close(peer.loss.squeeze(), right, atol=1e-4, rtol=1e-6)
    else:
        without_prior = -ours.token_logprobs[:, :, 0].logsumexp(1).sum()
        torch.testing.assert_close(peer.loss.squeeze(), without_prior, atol=1e-4, rtol=1e-6)
        assert (right - without_prior).item() > 0.5


def test_ignored_labels_crash_transformers_and_not_us(model: RagModel) -> None:
    labels = model.generator.inputs.labels(ANSWERS, max_length=32)
    assert (labels == -100).any()
    ours = model(QUERIES, ANSWERS)
    assert torch.isfinite(ours.nll).all()
    with pytest.raises(IndexError, match="index out of range|out of bounds"):
        peer_forward(model, ours, labels)


def test_the_first_token_is_scored_here_and_dropped_there(model: RagModel) -> None:
    """Labels without a start token, as T5 writes them: transformers conditions on y_1 and never scores it."""
    labels = model.generator.inputs.labels(ANSWERS, max_length=32)
    ours = model(QUERIES, ANSWERS)
    plain = labels.masked_fill(labels < 0, model.generator.pad_token_id)
    peer = peer_forward(model, ours, plain)
    scored_by_peer = (plain[:, 1:] != model.generator.pad_token_id).sum().item()
    assert ours.n_tokens == scored_by_peer + len(labels)
    assert ours.nll.sum().item() > peer.loss.item() + 1.0
