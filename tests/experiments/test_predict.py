"""Predictions of a real tiny model: what they say must follow from the model's own loss, and resume to the byte."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ragx.data.predictions import read_predictions, write_predictions
from ragx.errors import ConfigError, RagxError
from ragx.experiments.predict import predict, predict_to_file
from ragx.experiments.provenance import provenance_of, weights_sha256
from ragx.filters import PassageFilter
from ragx.losses import posterior
from ragx.model import Answered, RagModel
from ragx.records import Prediction
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.filtered import own_filter
from ragx.retriever.null_document import NullDocument
from tests.experiments.conftest import SETTINGS, passages_of, questions_of

EXAMPLES = questions_of("2016-12")
MakeModel = Callable[..., RagModel]
FITTING = [
    ("rag_sequence", "thorough"),
    ("rag_sequence", "fast"),
    ("rag_token", "token_beam"),
    ("closed_book", "greedy"),
]


def answers(model: RagModel, decoder: str, **options: Any) -> list[Prediction]:
    return list(predict(model, EXAMPLES, decoder=decoder, settings=SETTINGS, **options))


@pytest.mark.parametrize(("kind", "decoder"), FITTING)
def test_records_follow_from_the_model(make_model: MakeModel, kind: str, decoder: str) -> None:
    model = make_model(kind)
    before = weights_sha256(model)
    found = answers(model, decoder, batch_size=2)
    assert [(p.id, p.query) for p in found] == [(e.id, e.query) for e in EXAMPLES]
    assert weights_sha256(model) == before
    for prediction in found:
        assert prediction.hypotheses[0] == (prediction.answer, prediction.logprob)
        assert len(prediction.passages) == (0 if kind == "closed_book" else 3)
        if decoder == "fast":
            continue  # its score leaves out what a passage's own beam did not find
        model.eval()
        answer = model.generate([prediction.query], decoder=decoder, settings=SETTINGS)[0]
        labels = torch.tensor([answer.hypotheses[0].token_ids])
        inputs = model.expand(
            [prediction.query], None if kind == "closed_book" else model.retrieve([prediction.query])[0]
        )
        tokens = model.decode(model.encode(inputs), labels)
        prior = None if kind == "closed_book" else torch.from_numpy(answer.doc_logprobs)[None]
        assert prediction.logprob == pytest.approx(model.marginalize(tokens, prior).item(), abs=1e-5)


@pytest.mark.parametrize(("kind", "decoder"), FITTING[:3])
def test_passages_priors_and_posteriors(make_model: MakeModel, kind: str, decoder: str) -> None:
    corpus = {passage.key: passage for passage in passages_of("2016-12")}
    model = make_model(kind)
    for prediction in answers(model, decoder):
        assert sum(p.prior for p in prediction.passages) == pytest.approx(1, abs=1e-5)
        assert sum(p.posterior for p in prediction.passages) == pytest.approx(1, abs=1e-5)
        scores = [p.doc_score for p in prediction.passages]
        assert scores == sorted(scores, reverse=True)
        assert [math.log(p.prior) for p in prediction.passages] == pytest.approx(
            torch.tensor(scores).double().log_softmax(0).tolist(), abs=1e-4
        )
        for passage in prediction.passages:
            assert (passage.title, passage.text, passage.sha256) == (
                corpus[passage.key].title, corpus[passage.key].text, corpus[passage.key].sha256
            )  # fmt: skip
            assert passage.visible == (0, len(passage.text))
        for citation in prediction.citations:
            cited = next(p for p in prediction.passages if p.key == citation.key)
            assert citation.posterior == cited.posterior and citation.gain is not None and citation.gain > 0
            assert (citation.support == "full") == (citation.span is not None)


class Scripted:
    """The tiny model, but with answers, scores and target log-probabilities of our own."""

    def __init__(self, model: RagModel, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        original = model.generate

        def generate(queries: list[str], **options: Any) -> list[Answered]:
            return [replace(answer, **changes) for answer in original(queries, **options)]

        monkeypatch.setattr(model, "generate", generate)


def test_eos_says_nothing_about_the_passage(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("rag_sequence", n_docs=2)
    word, eos = model.generator.tokenizer.convert_tokens_to_ids("Humala"), model.generator.eos_token_id
    best = replace(
        model.generate([EXAMPLES[0].query], decoder="thorough", settings=SETTINGS)[0].hypotheses[0],
        token_ids=(word, eos),
    )
    tokens = torch.tensor([[0.9, 0.01], [0.1, 0.99]]).log()
    scores = torch.tensor([0.5, 0.5]).log()
    Scripted(
        model, monkeypatch, hypotheses=(best,), texts=("Humala",), doc_scores=scores.numpy(),
        doc_logprobs=scores.numpy(), token_logprobs=tokens.numpy(),
    )  # fmt: skip
    prediction = answers(model, "thorough")[0]
    assert [p.posterior for p in prediction.passages] == pytest.approx([0.9, 0.1])
    assert [c.key for c in prediction.citations] == [prediction.passages[0].key]
    with_eos = posterior.rag_sequence_posterior(tokens[None], scores[None])[0].tolist()
    assert with_eos[0] < 0.1


def test_passages_stand_by_score_and_keep_what_is_theirs(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("rag_token")
    plain = answers(model, "token_beam")[0]
    scores = torch.tensor([1.0, 3.0, 2.0])
    Scripted(model, monkeypatch, doc_scores=scores.numpy(), doc_logprobs=scores.log_softmax(0).numpy())
    turned = answers(model, "token_beam")[0]
    assert [p.key for p in turned.passages] == [plain.passages[z].key for z in (1, 2, 0)]
    assert [p.prior for p in turned.passages] == pytest.approx(scores.softmax(0)[[1, 2, 0]].tolist())


def test_a_question_without_any_answer_is_named(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("closed_book")
    Scripted(model, monkeypatch, hypotheses=(), texts=())
    with pytest.raises(RagxError, match="an answer of positive probability, got none for question 'Peru'"):
        answers(model, "greedy")


def test_answers_do_not_depend_on_the_batch(make_model: MakeModel) -> None:
    model = make_model("rag_sequence")
    for alone, together in zip(
        answers(model, "thorough", batch_size=1), answers(model, "thorough", batch_size=3), strict=True
    ):
        assert alone.answer == together.answer
        assert alone.logprob == pytest.approx(together.logprob, abs=1e-5)
        assert [c.key for c in alone.citations] == [c.key for c in together.citations]


def test_provenance_names_what_decided_the_answer(make_model: MakeModel) -> None:
    model = make_model("rag_token")
    recorded = answers(model, "token_beam", provenance={"seed": 3})[0].provenance
    assert model.retriever is not None
    expected = {
        "kind": "rag_token", "decoder": "token_beam", "n_docs": 3, "seed": 3, "edition": "2016-12",
        "weights": weights_sha256(model), "index": model.retriever.fingerprint,
    }  # fmt: skip
    assert {name: recorded[name] for name in expected} == expected
    assert recorded["decoding"]["num_beams"] == 2 and recorded["attribution"]["mass"] == 0.8
    with torch.no_grad():
        next(model.parameters()).add_(1e-6)
    assert answers(model, "token_beam")[0].provenance["weights"] != recorded["weights"]


def test_a_decoder_that_does_not_fit_is_refused(make_model: MakeModel) -> None:
    fitting = "thorough, fast, closed_set"
    with pytest.raises(ConfigError, match=f"decoder must be one of {fitting} for rag_sequence, got 'token_beam'"):
        answers(make_model("rag_sequence"), "token_beam")


class Killed(Exception):
    """Stands for a kill."""


def test_a_killed_run_resumes_to_the_same_bytes(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = make_model("rag_token")
    options: dict[str, Any] = {"decoder": "token_beam", "settings": SETTINGS, "batch_size": 1}
    whole = predict_to_file(model, EXAMPLES, tmp_path / "whole.jsonl", **options)
    asked: list[str] = []
    original = model.generate

    def generate(queries: list[str], **settings: Any) -> list[Answered]:
        if len(asked) == 2:
            asked.clear()
            raise Killed("after two questions")
        asked.extend(queries)
        return original(queries, **settings)

    monkeypatch.setattr(model, "generate", generate)
    path = tmp_path / "run" / "p.jsonl"
    with pytest.raises(Killed, match="after two questions"):
        predict_to_file(model, EXAMPLES, path, **options)
    assert not path.exists()
    predict_to_file(model, EXAMPLES, path, **options)
    assert asked == [EXAMPLES[2].query]
    assert path.read_bytes() == whole.read_bytes()
    predict_to_file(model, EXAMPLES, path, **options)
    assert asked == [EXAMPLES[2].query]
    assert [p.id for p in read_predictions(path)] == [e.id for e in EXAMPLES]


def test_a_run_of_other_settings_is_not_mixed_in(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model("rag_sequence")
    path = predict_to_file(model, EXAMPLES, tmp_path / "p.jsonl", decoder="thorough", settings=SETTINGS)
    with pytest.raises(RagxError, match="same run, got other values of decoder"):
        predict_to_file(model, EXAMPLES, path, decoder="fast", settings=SETTINGS)
    model.n_docs = 2
    with pytest.raises(RagxError, match=r"same run, got other values of n_docs \(3, now 2\)"):
        predict_to_file(model, EXAMPLES, path, decoder="thorough", settings=SETTINGS)


def test_answers_without_an_access_filter_are_not_handed_to_who_asks_with_one(
    make_model: MakeModel, index_dirs: dict[str, Path], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"decoder": "token_beam", "settings": SETTINGS}
    model = make_model("rag_token")
    path = predict_to_file(model, EXAMPLES, tmp_path / "p.jsonl", **options)
    for retriever, now in (
        (DenseRetriever.open(index_dirs["2016-12"], passage_filter=PassageFilter(acl=())), r"{'acl': \[\]"),
        (DenseRetriever.open(index_dirs["2016-12"], passage_filter=PassageFilter(as_of="2016")), r"{'acl': None"),
    ):
        model.retriever = retriever
        with pytest.raises(RagxError, match=f"same run, got other values of filter .None, now {now}"):
            predict_to_file(model, EXAMPLES, path, **options)
        # A reranker names its index and not the filter of the retriever inside.
        model.retriever = SimpleNamespace(retriever=retriever, fingerprint="", edition=None)  # type: ignore[assignment]
        assert provenance_of(model, **options)["filter"] == own_filter(retriever)
    model.retriever = DenseRetriever.open(index_dirs["2016-12"], passage_filter=PassageFilter())  # restricts nothing
    assert predict_to_file(model, EXAMPLES, path, **options) == path


@pytest.mark.parametrize(
    ("place", "value", "name"),
    [
        ("generator.inputs.template", "{title} : {text} // {query}", "template"),
        ("generator.inputs.max_length", 40, "max_input_length"),
        ("generator.inputs.bos_in_labels", True, "bos_in_labels"),
        ("generator.inputs.separator", "A:", "separator"),
        ("query_encoder.tower.max_length", 5, "max_query_length"),
        ("query_encoder.tower.pooling", "mean", "pooling"),
    ],
)
def test_answers_to_otherwise_written_inputs_are_not_handed_on(
    make_model: MakeModel, tmp_path: Path, place: str, value: object, name: str
) -> None:
    options: dict[str, Any] = {"decoder": "token_beam", "settings": SETTINGS}
    model = make_model("rag_token")
    path = predict_to_file(model, EXAMPLES, tmp_path / "p.jsonl", **options)
    owner, _, attribute = place.rpartition(".")
    setattr(operator.attrgetter(owner)(model), attribute, value)
    with pytest.raises(RagxError, match=f"same run, got other values of {name} .*, now {re.escape(repr(value))}"):
        predict_to_file(model, EXAMPLES, path, **options)


def test_provenance_says_which_null_document_the_model_has(make_model: MakeModel) -> None:
    model = make_model("rag_token")
    asked: dict[str, Any] = {"decoder": "token_beam", "settings": SETTINGS}
    assert provenance_of(model, **asked)["null_document"] is None
    model.null_document = NullDocument("bias", embedding_size=None)
    assert provenance_of(model, **asked)["null_document"] == "bias"
    closed = provenance_of(make_model("closed_book"), decoder="greedy", settings=SETTINGS)
    assert [closed[name] for name in ("filter", "max_query_length", "pooling")] == [None] * 3


def test_it_streams(make_model: MakeModel) -> None:
    found: Iterator[Prediction] = predict(
        make_model("closed_book"), EXAMPLES, decoder="greedy", settings=SETTINGS, batch_size=1
    )
    assert next(found).id == EXAMPLES[0].id


def test_one_passage_is_no_citation(make_model: MakeModel, tmp_path: Path) -> None:
    found = answers(make_model("rag_sequence", n_docs=1), "thorough")
    assert [(len(p.passages), p.passages[0].posterior, p.citations) for p in found] == [(1, 1.0, ())] * 3
    write_predictions(tmp_path / "p.jsonl", found)
    assert read_predictions(tmp_path / "p.jsonl") == found
