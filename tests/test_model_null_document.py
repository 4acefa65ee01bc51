"""A model with a null document: loss and gradient by hand, the two limits of its logit, decoders, predictions, disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragx import build
from ragx.data.predictions import read_predictions, write_predictions
from ragx.decoding.choice import CLOSED_SET, DECODERS
from ragx.decoding.settings import DecodingSettings
from ragx.errors import CheckpointError, ConfigError
from ragx.experiments.predict import predict
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Example, Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.null_document import NULL, NULL_KINDS
from ragx.retriever.query_encoder import QueryEncoder
from ragx.training.checkpoint import load_checkpoint, restore_weights, save_checkpoint
from ragx.training.loop import TrainingSettings, train
from ragx.training.null_start import start_null_document
from ragx.training.optim import trainable
from ragx.training.rag_checkpoint import export_rag
from ragx.training.step import seed_step

KINDS = ("rag_sequence", "rag_token")
QUERIES = ["Who led Peru?", "What is the capital of Ghana?"]
ANSWERS = ["García", "Accra"]
EXAMPLES = [
    Example(str(row), query, (answer,)) for row, (query, answer) in enumerate(zip(QUERIES, ANSWERS, strict=True))
]
SETTINGS = DecodingSettings(num_beams=2, num_return_sequences=2, max_length=5)
Make = Callable[..., RagModel]


@pytest.fixture
def make(generator: Seq2SeqGenerator, query_encoder: QueryEncoder, retriever: DenseRetriever) -> Make:
    def make(kind: str, null: str | None = "bias", *, logit: float | None = None) -> RagModel:
        model = RagModel(kind=kind, generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=3)
        build.add_null_document(model, null)
        if null is not None:
            start_null_document(model, EXAMPLES)
        if logit is not None:
            torch.nn.init.constant_(model.null_document.bias, logit)  # type: ignore[union-attr]
        return model.eval()

    return make


def by_hand(model: RagModel) -> tuple[Tensor, Tensor, Tensor]:
    """log p(z|x) (B, 4), log p(y_i|x,z,y_<i) (B, 4, T) with the empty passage last, and labels."""
    assert model.query_encoder is not None and model.null_document is not None and model.retriever is not None
    embeds = model.query_encoder.embed(QUERIES)
    found = model.retriever.retrieve(QUERIES, 3, query_embeds=embeds.detach())
    scores = torch.einsum("bd,bkd->bk", embeds, torch.as_tensor(found.doc_embeds))
    prior = torch.cat([scores, model.null_document.logits(embeds, queries=2).unsqueeze(1)], 1).log_softmax(1)
    rows = [passage for row in found.passages for passage in [*row, Passage("none", "0", "0", "", "")]]
    inputs = model.generator.inputs.build([q for q in QUERIES for _ in range(4)], [[passage] for passage in rows])
    labels = model.generator.inputs.labels(ANSWERS, max_length=8)
    encoded = model.generator.encode(inputs.input_ids, inputs.attention_mask)
    tokens = model.generator.token_logprobs(encoded, labels.repeat_interleave(4, 0), torch.arange(8))
    return prior, tokens.view(2, 4, -1), labels


@pytest.mark.parametrize("null", NULL_KINDS)
def test_the_loss_by_hand(make: Make, null: str) -> None:
    sequence = make("rag_sequence", null)
    prior, tokens, _ = by_hand(sequence)
    torch.testing.assert_close(sequence(QUERIES, ANSWERS).nll, -(prior + tokens.sum(2)).logsumexp(1))
    token = make("rag_token", null)
    torch.testing.assert_close(token(QUERIES, ANSWERS).nll, -(prior.unsqueeze(2) + tokens).logsumexp(1).sum(1))
    assert prior[:, 3].exp().min() > 1e-3  # it has a say, and a gradient


def test_the_gradient_of_the_logit_is_prior_minus_posterior(make: Make) -> None:
    for kind in KINDS:
        model = make(kind)
        prior, tokens, labels = by_hand(model)
        if kind == "rag_sequence":
            expected = prior.exp()[:, 3] - (prior + tokens.sum(2)).softmax(1)[:, 3]
        else:
            by_token = prior.exp()[:, 3:] - (prior.unsqueeze(2) + tokens).softmax(1)[:, 3]
            expected = (by_token * (labels != -100)).sum(1)
        model(QUERIES, ANSWERS).nll.sum().backward()
        assert model.null_document is not None and model.null_document.bias.grad is not None
        torch.testing.assert_close(model.null_document.bias.grad, expected.sum().view(1))
        assert expected.detach().sum().abs() > 1e-3


@pytest.mark.parametrize("null", NULL_KINDS)
def test_a_search_done_ahead_gives_the_logit_the_same_gradient(make: Make, null: str) -> None:
    grads = []
    for ahead in (False, True):
        model = make("rag_sequence", null)
        model.freeze_query_encoder = True
        assert model.searches_ahead
        with torch.no_grad():
            prepared = model.prepare(QUERIES, ANSWERS)
        model(QUERIES, ANSWERS, prepared=prepared if ahead else None).loss.backward()
        grads.append([p.grad for p in model.null_document.parameters()])  # type: ignore[union-attr]
    for here, there in zip(*grads, strict=True):
        assert here is not None and there is not None
        torch.testing.assert_close(there, here)
    assert any(grad is not None and grad.abs().max() > 0 for grad in grads[1])


@pytest.mark.parametrize("kind", KINDS)
def test_passages_in_groups_and_smoothing_are_as_without_groups(make: Make, kind: str) -> None:
    model = make(kind)
    whole = model(QUERIES, ANSWERS, label_smoothing=0.1)
    model.passages_at_once = 3
    grouped = model(QUERIES, ANSWERS, label_smoothing=0.1)
    torch.testing.assert_close(grouped.smoothed_nll, whole.smoothed_nll)
    assert whole.token_logprobs.shape[1] == 4 and (whole.smoothed_nll != whole.nll).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_logit_far_below_changes_nothing_and_one_far_above_reads_the_question_alone(make: Make, kind: str) -> None:
    without, below, above = make(kind, None), make(kind, logit=-1e4), make(kind, logit=1e4)
    torch.testing.assert_close(below(QUERIES, ANSWERS).nll, without(QUERIES, ANSWERS).nll)
    decoder = next(iter(DECODERS[kind]))
    plain, same = (m.generate(QUERIES, decoder=decoder, settings=SETTINGS) for m in (without, below))
    assert [a.texts for a in same] == [a.texts for a in plain]
    _, tokens, _ = by_hand(above)
    torch.testing.assert_close(above(QUERIES, ANSWERS).nll, -tokens[:, 3].sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "decoder"), [(kind, name) for kind in KINDS for name in (*DECODERS[kind], CLOSED_SET)]
)
def test_every_decoder_reports_the_likelihood_of_its_answer(make: Make, kind: str, decoder: str) -> None:
    model = make(kind)
    labels = ["Lima", "Accra", "Tokyo"] if decoder == CLOSED_SET else []
    found = model.generate(QUERIES, decoder=decoder, settings=SETTINGS, labels=labels)
    for query, answered in zip(QUERIES, found, strict=True):
        best = answered.hypotheses[0]
        retrieved, scores = model.retrieve([query])
        inputs = model.expand([query], retrieved)
        ids = torch.tensor([best.token_ids])
        tokens = model.decode(model.encode(inputs), ids)
        exact = float(model.marginalize(tokens, scores.log_softmax(1)))
        assert len(answered.passages) == len(answered.doc_logprobs) == 3 and scores.shape == (1, 4)
        if decoder == "fast":
            assert best.logprob <= exact + 1e-5
        else:
            assert best.logprob == pytest.approx(exact, abs=1e-4)
        assert answered.null_document is not None
        np.testing.assert_allclose(answered.null_document.token_logprobs, tokens[0, 3].detach(), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_holds_the_passages_alone_and_says_what_the_null_document_has(
    make: Make, kind: str, tmp_path: Path
) -> None:
    model = make(kind)
    found = list(predict(model, EXAMPLES, decoder=next(iter(DECODERS[kind])), settings=SETTINGS))
    write_predictions(tmp_path / "predictions.jsonl", found)
    assert read_predictions(tmp_path / "predictions.jsonl") == found
    for prediction, (_, scores) in zip(found, [model.retrieve([query]) for query in QUERIES], strict=True):
        assert prediction.null_document is not None and prediction.tokens is not None
        prior = scores.softmax(1)[0]
        assert prediction.null_document.prior == pytest.approx(float(prior[3]), abs=1e-5)
        assert sum(passage.prior for passage in prediction.passages) == pytest.approx(1)
        assert NULL.key not in [passage.key for passage in prediction.passages]
        share = prior[:3].sort(descending=True).values / prior[:3].sum()
        assert [passage.prior for passage in prediction.passages] == pytest.approx(share.tolist(), abs=1e-5)


def test_the_posterior_of_the_null_document_by_hand_and_no_citation_where_it_has_half(make: Make) -> None:
    model = make("rag_sequence", logit=1e3)
    (prediction, *_) = predict(model, EXAMPLES, decoder="thorough", settings=SETTINGS)
    assert prediction.null_document is not None and prediction.null_document.posterior == pytest.approx(1)
    assert prediction.citations == ()
    model = make("rag_sequence")
    (answered, *_) = model.generate(QUERIES, decoder="thorough", settings=SETTINGS)
    (prediction, *_) = predict(model, EXAMPLES, decoder="thorough", settings=SETTINGS)
    null = answered.null_document
    assert null is not None and prediction.tokens is not None
    content = slice(0, len(prediction.tokens.spans))  # EOS is no part of the text
    _, scores = model.retrieve([QUERIES[0]])
    rows = np.vstack([answered.token_logprobs, null.token_logprobs])[:, content].sum(1)
    joint = np.exp(scores.log_softmax(1)[0].detach().numpy() + rows)
    assert prediction.null_document is not None
    assert prediction.null_document.posterior == pytest.approx(joint[3] / joint.sum(), abs=1e-4)


@pytest.mark.parametrize("null", NULL_KINDS)
def test_a_checkpoint_keeps_it(make: Make, retriever: DenseRetriever, null: str, tmp_path: Path) -> None:
    model = make("rag_token", null)
    save_checkpoint(model, tmp_path / "checkpoint")
    assert "null document" in (tmp_path / "checkpoint" / "MODEL_CARD.md").read_text()
    loaded = load_checkpoint(tmp_path / "checkpoint", retriever=retriever)
    torch.testing.assert_close(loaded(QUERIES, ANSWERS).nll, model(QUERIES, ANSWERS).nll)
    build.add_null_document(loaded, None)
    assert loaded.null_document is not None and bool(loaded.null_document.started)
    other = next(kind for kind in NULL_KINDS if kind != null)
    with pytest.raises(ConfigError, match=f"must be null or as in the checkpoint, got '{other}', the checkpoint has"):
        build.add_null_document(loaded, other)
    with torch.no_grad():
        for parameter in model.null_document.parameters():  # type: ignore[union-attr]
            parameter.add_(1.0)
    restore_weights(model, tmp_path / "checkpoint")
    torch.testing.assert_close(loaded(QUERIES, ANSWERS).nll, model(QUERIES, ANSWERS).nll)
    with pytest.raises(CheckpointError, match=f"model must have no null document to export, got {null}"):
        export_rag(model, tmp_path / "exported")


def test_a_checkpoint_whose_null_document_is_gone_is_refused(make: Make, tmp_path: Path) -> None:
    save_checkpoint(make("rag_token"), tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "null_document" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="must hold null_document/ with config.json and safetensors"):
        load_checkpoint(tmp_path / "checkpoint")


def trained(make: Make, run_dir: Path, **changed: Any) -> RagModel:
    settings = {"steps": 4, "batch_size": 2, "schedule": "constant", "progress": False, "device": "cpu"} | changed
    model = make("rag_sequence", None)
    build.add_null_document(model, "embedding")
    train(model, EXAMPLES, settings=TrainingSettings(**settings), run_dir=run_dir)  # type: ignore[arg-type]
    return model


def test_training_starts_it_moves_it_and_a_resumed_run_ends_with_the_same_weights(
    make: Make, generator: Seq2SeqGenerator, query_encoder: QueryEncoder, tmp_path: Path
) -> None:
    before = [{k: v.clone() for k, v in part.state_dict().items()} for part in (generator, query_encoder)]
    whole = trained(make, tmp_path / "whole").null_document
    assert whole is not None
    weights = {name: value.clone() for name, value in whole.state_dict().items()}

    def reset() -> None:
        for part, state in zip((generator, query_encoder), before, strict=True):
            part.load_state_dict(state)

    reset()
    trained(make, tmp_path / "parts", steps=2)
    reset()
    resumed = trained(make, tmp_path / "parts").null_document
    assert resumed is not None
    assert all(torch.equal(value, weights[name]) for name, value in resumed.state_dict().items())
    reset()
    fresh = make("rag_sequence", "embedding").null_document
    assert fresh is not None
    moved = (fresh.embedding - weights["embedding"]).abs().max()
    assert 0 < moved < 0.1  # four steps of Adam at 0.01


def test_its_rate_is_its_own_and_its_group_has_its_name(make: Make) -> None:
    model = make("rag_token", "network")
    groups = trainable(model)
    assert list(groups) == ["generator", "query_encoder", "null_document"]
    assert {name.split(".")[0] for name in groups["null_document"]} == {"null_document"}


def test_words_in_place_of_vectors_go_with_a_bias_alone(
    generator: Seq2SeqGenerator, tiny_passages: list[Passage], tmp_path: Path
) -> None:
    words = BM25Retriever.build(tiny_passages, tmp_path / "bm25", edition="2016-12")
    model = RagModel(kind="rag_token", generator=generator, retriever=words, n_docs=2)
    build.add_null_document(model, "bias")
    start_null_document(model, EXAMPLES)
    seed_step(0, 1, 0)
    model(QUERIES, ANSWERS).loss.backward()
    assert model.null_document is not None and model.null_document.bias.grad is not None
    assert model.null_document.bias.grad.abs() > 0
    model.null_document = None
    with pytest.raises(ConfigError, match="model.null_document must be bias without a query encoder, got 'embedding'"):
        build.add_null_document(model, "embedding")
