"""A model of ours in LangChain's interfaces: the same passages, answers and citations as through ragx itself."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from ragx.experiments.predict import predict
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Example, Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.query_encoder import QueryEncoder
from ragx.training.checkpoint import save_checkpoint

QUERIES = ["Who led Peru until 2011?", "What is the capital of Ghana?", "Who led Japan until 2020?"]
SETTINGS = DecodingSettings(num_beams=2, max_length=4)


@pytest.fixture
def adapter() -> Any:
    pytest.importorskip("langchain_core", reason="needs the extra `langchain`")
    return importlib.import_module("ragx.langchain_adapter")


@pytest.fixture
def model(generator: Seq2SeqGenerator, query_encoder: QueryEncoder, retriever: DenseRetriever) -> RagModel:
    kind = "rag_token"
    return RagModel(kind=kind, generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=3)


def test_documents_are_the_passages_that_the_model_retrieves(adapter: Any, model: RagModel) -> None:
    documents = adapter.RagxRetriever(model=model).invoke(QUERIES[0])
    retrieved, scores = model.retrieve(QUERIES[:1])
    assert [(d.id, d.page_content, d.metadata["title"]) for d in documents] == [
        ("/".join(p.key), p.text, p.title) for p in retrieved.passages[0]
    ]
    assert [d.metadata["doc_score"] for d in documents] == pytest.approx(scores[0].tolist())
    assert [d.metadata["prior"] for d in documents] == pytest.approx(scores.softmax(1)[0].tolist())
    assert len(adapter.RagxRetriever(model=model, n_docs=2).invoke(QUERIES[0])) == 2


def test_answers_are_those_of_generate_however_they_are_asked_for(adapter: Any, model: RagModel) -> None:
    examples = [Example(str(i), query, ()) for i, query in enumerate(QUERIES)]
    expected = list(predict(model, examples, decoder="token_beam", settings=SETTINGS))
    runnable = adapter.RagxRunnable(model, settings=SETTINGS, batch_size=2)
    answers = runnable.batch(QUERIES)
    for answer, prediction in zip(answers, expected, strict=True):
        assert (answer["input"], answer["answer"]) == (prediction.query, prediction.answer)
        assert answer["logprob"] == pytest.approx(prediction.logprob, abs=1e-5)
        assert [d.metadata["posterior"] for d in answer["context"]] == pytest.approx(
            [p.posterior for p in prediction.passages], abs=1e-5
        )
        assert [c["key"] for c in answer["citations"]] == ["/".join(c.key) for c in prediction.citations]
    one = runnable.invoke(QUERIES[1])
    assert one["answer"] == answers[1]["answer"] and one["logprob"] == pytest.approx(answers[1]["logprob"], abs=1e-5)


def test_it_stands_in_a_chain(adapter: Any, model: RagModel) -> None:
    chain = (lambda question: question["q"]) | adapter.RagxRunnable(model, settings=SETTINGS) | (lambda a: a["answer"])
    expected = next(iter(predict(model, [Example("0", QUERIES[0], ())], decoder="token_beam", settings=SETTINGS)))
    assert chain.invoke({"q": QUERIES[0]}) == expected.answer


def test_a_checkpoint_and_an_index_open_together(
    adapter: Any, model: RagModel, tiny_index: Path, tiny_passages: list[Passage], tmp_path: Path
) -> None:
    save_checkpoint(model, tmp_path / "checkpoint")
    opened = adapter.open_model(tmp_path / "checkpoint", index=tiny_index)
    asked = adapter.RagxRunnable(opened, settings=SETTINGS).invoke(QUERIES[0])
    assert asked["answer"] == adapter.RagxRunnable(model, settings=SETTINGS).invoke(QUERIES[0])["answer"]
    BM25Retriever.build(tiny_passages, tmp_path / "bm25", edition="2016-12")
    words = RagModel(kind="rag_token", generator=model.generator, retriever=BM25Retriever.open(tmp_path / "bm25"))
    save_checkpoint(words, tmp_path / "words")
    found = adapter.RagxRetriever(model=adapter.open_model(tmp_path / "words", index=tmp_path / "bm25"), n_docs=1)
    assert found.invoke("capital of Ghana")[0].metadata["title"] == "Ghana"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.callbacks", None)
    monkeypatch.delitem(sys.modules, "ragx.langchain_adapter", raising=False)
    with pytest.raises(ConfigError, match=r"langchain-core must be installed.*pip install 'ragx\[langchain\]'"):
        importlib.import_module("ragx.langchain_adapter")
