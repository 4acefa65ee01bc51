"""What a caller of `RagModel.generate` may ask for: a closed set, a rule on tokens, seeds, passages of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError, ShapeError
from ragx.experiments.predict import predict
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Example
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.query_encoder import QueryEncoder

QUERIES = ["Who was Müller at NASA?", "Who led Peru until 2011?"]
LABELS = ["supports", "refutes", "not enough"]
SETTINGS = DecodingSettings(num_beams=3, num_return_sequences=3, max_length=6)
DECODER = {"rag_sequence": "thorough", "rag_token": "token_beam", "closed_book": "token_beam"}
KINDS = list(DECODER)


@pytest.fixture
def build(
    generator: Seq2SeqGenerator, query_encoder: QueryEncoder, retriever: DenseRetriever
) -> Callable[[str], RagModel]:
    def make(kind: str) -> RagModel:
        if kind == "closed_book":
            return RagModel(kind=kind, generator=generator)
        return RagModel(kind=kind, generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=3)

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_set_is_ranked_by_what_training_minimizes(build: Callable[[str], RagModel], kind: str) -> None:
    model = build(kind)
    with torch.no_grad():
        nll = {label: model(QUERIES, [label] * 2).nll for label in LABELS}
    answers = model.generate(QUERIES, decoder="closed_set", settings=SETTINGS, labels=LABELS)
    for place, answer in enumerate(answers):
        assert sorted(answer.texts) == sorted(LABELS)
        assert list(answer.texts) == sorted(LABELS, key=lambda label: float(nll[label][place]))
        for text, hypothesis in zip(answer.texts, answer.hypotheses, strict=True):
            assert hypothesis.logprob == pytest.approx(-float(nll[text][place]), abs=1e-4)


def test_labels_belong_to_the_closed_set_and_to_it_alone(build: Callable[[str], RagModel]) -> None:
    model = build("rag_token")
    with pytest.raises(ConfigError, match="labels must be given with decoder closed_set and with no other, got 0 with"):
        model.generate(QUERIES, decoder="closed_set", settings=SETTINGS)
    with pytest.raises(ConfigError, match="with no other, got 3 with token_beam"):
        model.generate(QUERIES, decoder="token_beam", settings=SETTINGS, labels=LABELS)
    with pytest.raises(ConfigError, match="decoder must be one of token_beam, greedy, closed_set for rag_token"):
        model.generate(QUERIES, decoder="fast", settings=SETTINGS)


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
def test_a_rule_of_the_caller_reaches_the_decoder(build: Callable[[str], RagModel], kind: str) -> None:
    asked = set()
    model = build(kind)
    eos = model.generator.eos_token_id

    def allowed(question: int, passage: int | None, said: tuple[int, ...]) -> list[int]:
        asked.add((question, passage))
        return [40 + question, 50, eos]

    answers = model.generate(QUERIES, decoder=DECODER[kind], settings=SETTINGS, allowed=allowed)
    for question, answer in enumerate(answers):
        assert {t for h in answer.hypotheses for t in h.token_ids} <= {40 + question, 50, eos}
    passages = [0, 1, 2] if kind == "rag_sequence" else [None]
    assert asked == {(question, passage) for question in (0, 1) for passage in passages}


def test_seeds_decide_the_samples_question_by_question(build: Callable[[str], RagModel]) -> None:
    model = build("rag_token")
    settings = replace(SETTINGS, do_sample=True)

    def sampled(queries: list[str], seeds: list[int]) -> list[Any]:
        found = model.generate(queries, decoder="token_beam", settings=settings, seeds=seeds)
        return [[h.token_ids for h in answer.hypotheses] for answer in found]

    both = sampled(QUERIES, [3, 4])
    assert sampled(QUERIES[1:], [4]) == both[1:]
    assert sampled(QUERIES, [5, 4])[0] != both[0]
    with pytest.raises(ShapeError, match=r"seeds must be one a question \(2\) or none, got 1"):
        sampled(QUERIES, [3])


def test_predictions_are_sampled_with_a_seed_for_each_question(build: Callable[[str], RagModel]) -> None:
    model = build("rag_token")
    settings = replace(SETTINGS, do_sample=True, num_return_sequences=2)
    examples = [Example(name, QUERIES[0], ()) for name in ("a", "b", "c")]
    runs = [
        list(predict(model, examples, decoder="token_beam", settings=s, batch_size=size))
        for s, size in ((settings, 3), (settings, 1), (replace(settings, seed=1), 3))
    ]
    texts = [[p.hypotheses for p in run] for run in runs]
    for together, alone in zip(texts[0], texts[1], strict=True):
        assert [text for text, _ in together] == [text for text, _ in alone]
    assert len({str(text) for text in texts[0]}) > 1  # one question under three names
    assert texts[0] != texts[2]


def test_predictions_of_a_closed_set_record_it(build: Callable[[str], RagModel]) -> None:
    examples = [Example(str(n), query, ()) for n, query in enumerate(QUERIES)]
    found = list(predict(build("rag_token"), examples, decoder="closed_set", settings=SETTINGS, labels=LABELS))
    assert all(p.answer in LABELS and p.provenance["labels"] == LABELS for p in found)
    assert all(p.provenance["decoder"] == "closed_set" for p in found)


def test_passages_without_scores_are_refused_by_name(build: Callable[[str], RagModel]) -> None:
    model = build("rag_token")
    found, _ = model.retrieve(QUERIES)
    bare = replace(found, doc_embeds=None, doc_scores=None)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"retrieved\.doc_scores must be one number for each of 2 x 3 .*, got none"):
        model.generate(QUERIES, decoder="token_beam", settings=SETTINGS, retrieved=bare)
    narrow = replace(bare, doc_scores=np.zeros((2, 2), dtype=np.float32))
    with pytest.raises(ShapeError, match=r"got \(2, 2\)\. Give doc_scores with the passages, or doc_embeds"):
        model(QUERIES, ["a", "b"], retrieved=narrow)
    whole = replace(bare, doc_scores=np.zeros((2, 3), dtype=np.float32))
    assert len(model.generate(QUERIES, decoder="token_beam", settings=SETTINGS, retrieved=whole)) == 2
