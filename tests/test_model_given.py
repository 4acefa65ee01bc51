"""FAULTS B3: a model without retriever and vectors, over passages that are given, is the model that retrieved them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ragx.decoding.choice import DECODERS
from ragx.decoding.settings import DecodingSettings
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import GivenPassages, Passage, Retrieved
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.given import GivenRetriever
from ragx.retriever.query_encoder import QueryEncoder

QUERIES, ANSWERS = ["Who led Peru until 2011?", "What is the capital of Ghana?"], ["Alan", "Accra"]
SETTINGS = DecodingSettings(num_beams=2, num_return_sequences=2, max_length=4)


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
def test_given_passages_and_scores_give_the_answers_and_the_loss_of_the_retriever_that_found_them(
    kind: str, generator: Seq2SeqGenerator, query_encoder: QueryEncoder, retriever: DenseRetriever
) -> None:
    dense = RagModel(kind=kind, generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=3)
    with torch.no_grad():
        found, scores = dense.retrieve(QUERIES)
    rankings = {
        query: GivenPassages(tuple(passages), tuple(row))
        for query, passages, row in zip(QUERIES, found.passages, scores.tolist(), strict=True)
    }
    given = RagModel(kind=kind, generator=generator, retriever=GivenRetriever(rankings), n_docs=3)
    bare = RagModel(kind=kind, generator=generator)
    brought = GivenRetriever(rankings).retrieve(QUERIES, 3)
    for decoder in DECODERS[kind]:
        expected = dense.generate(QUERIES, decoder=decoder, settings=SETTINGS)
        for model, retrieved in ((given, None), (bare, brought)):
            answered = model.generate(QUERIES, decoder=decoder, settings=SETTINGS, retrieved=retrieved)
            for ours, theirs in zip(answered, expected, strict=True):
                assert ours.texts == theirs.texts and ours.passages == theirs.passages
                np.testing.assert_allclose(ours.doc_logprobs, theirs.doc_logprobs, atol=1e-5)
                np.testing.assert_allclose(
                    [h.logprob for h in ours.hypotheses], [h.logprob for h in theirs.hypotheses], atol=1e-5
                )
    loss = dense(QUERIES, ANSWERS).loss
    torch.testing.assert_close(given(QUERIES, ANSWERS).loss, loss)
    torch.testing.assert_close(bare(QUERIES, ANSWERS, retrieved=brought).loss, loss)


def test_without_scores_every_passage_counts_alike(generator: Seq2SeqGenerator, tiny_passages: list[Passage]) -> None:
    given = GivenRetriever({QUERIES[0]: GivenPassages(tuple(tiny_passages[:4]))})
    model = RagModel(kind="rag_sequence", generator=generator, retriever=given, n_docs=4)
    output = model(QUERIES[:1], ANSWERS[:1])
    torch.testing.assert_close(output.doc_logprobs.exp(), torch.full((1, 4), 0.25))
    output.loss.backward()
    assert any(bool(p.grad.any()) for p in generator.parameters() if p.grad is not None)


def test_scores_that_are_forgotten_are_named(tiny_passages: list[Passage]) -> None:
    with pytest.raises(TypeError, match="missing 1 required .*argument: 'doc_scores'"):
        Retrieved(  # type: ignore[call-arg]
            passages=[tiny_passages[:2]], rows=np.array([[0, 1]]), doc_embeds=None, index_fingerprint="mine"
        )
