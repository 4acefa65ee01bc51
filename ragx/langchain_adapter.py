"""A trained checkpoint and its index in LangChain: a retriever of Documents, and a Runnable that answers.

    model = open_model("runs/mine/checkpoints/last", index="indexes/mine")
    RagxRetriever(model=model).invoke("Who leads Peru?")    ->  [Document, ...], best first
    RagxRunnable(model).batch(["Who leads Peru?", ...])     ->  [{"input", "answer", "logprob", "context", "citations"}]

The extra `langchain`. One decision: thin. Both call `RagModel` as `scripts/generate.py` does; identity, prior,
posterior and citations travel in the metadata, so that a chain cites what the model cited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ragx.decoding.choice import DECODERS
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from ragx.experiments.predict import predict
from ragx.losses.prior import doc_logprobs
from ragx.model import RagModel
from ragx.protocols import Retriever
from ragx.records import Example, Passage, Prediction
from ragx.retriever import manifest as manifests
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.training.checkpoint import load_checkpoint

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import Runnable, RunnableConfig
except ImportError as error:
    raise ConfigError(["langchain-core must be installed for this module. pip install 'ragx[langchain]'."]) from error


def open_model(checkpoint: str | Path, *, index: str | Path | None = None, device: str = "cpu") -> RagModel:
    """The model of a checkpoint over an index, in eval mode; without an index it is closed book.

    Raises:
        CheckpointError, IndexMismatchError: as `load_checkpoint` and the index say.
    """
    retriever: Retriever | None = None
    if index is not None:
        words = manifests.Manifest.read(index).metric == manifests.BM25
        retriever = BM25Retriever.open(index) if words else DenseRetriever.open(index)
    return load_checkpoint(checkpoint, retriever=retriever).to(device)


class RagxRetriever(BaseRetriever):
    """p(z|x) as a LangChain retriever.

    Attributes:
        model: with a retriever.
        n_docs: passages a query; None as in the checkpoint.
    """

    model: RagModel
    n_docs: int | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        with torch.inference_mode():
            retrieved, scores = self.model.retrieve([query], n_docs=self.n_docs)
            priors = doc_logprobs(scores)[0].exp().tolist()
        rows = zip(retrieved.passages[0], scores[0].tolist(), priors, strict=True)
        found = [_document(passage, doc_score=score, prior=prior) for passage, score, prior in rows]
        return sorted(found, key=lambda document: -document.metadata["doc_score"])


class RagxRunnable(Runnable[str, dict[str, Any]]):
    """Questions to answers with their passages and citations.

    Args:
        model: any kind.
        decoder: one of those that fit the kind; None takes the first.
        settings: how it decodes.
        batch_size: questions decoded together by `batch`; answers do not depend on it.
    """

    def __init__(
        self,
        model: RagModel,
        *,
        decoder: str | None = None,
        settings: DecodingSettings | None = None,
        batch_size: int = 16,
    ) -> None:
        self.model = model
        self.decoder = decoder or next(iter(DECODERS[model.kind]))
        self.settings = settings or DecodingSettings()
        self.batch_size = batch_size

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        """One answer; see `batch`."""
        answered: dict[str, Any] = self._call_with_config(lambda query: self._answer([query])[0], input, config)
        return answered

    def batch(
        self,
        inputs: list[str],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """`input`, `answer`, `logprob` = log p(y|x), `context` (Documents with prior and posterior), `citations`."""
        answered: list[dict[str, Any]] = self._batch_with_config(
            self._answer, inputs, config, return_exceptions=return_exceptions
        )
        return answered

    def _answer(self, queries: list[str]) -> list[dict[str, Any]]:
        examples = [Example(str(i), query, ()) for i, query in enumerate(queries)]
        found = predict(self.model, examples, decoder=self.decoder, settings=self.settings, batch_size=self.batch_size)
        return [_answered(prediction) for prediction in found]


def _answered(prediction: Prediction) -> dict[str, Any]:
    context = [
        Document(
            id="/".join(passage.key),
            page_content=passage.text,
            metadata={**_identity(passage.key._asdict(), passage.title, passage.sha256), **_numbers(asdict(passage))},
        )
        for passage in prediction.passages
    ]
    citations = [{**asdict(citation), "key": "/".join(citation.key)} for citation in prediction.citations]
    return {
        "input": prediction.query,
        "answer": prediction.answer,
        "logprob": prediction.logprob,
        "context": context,
        "citations": citations,
    }


def _document(passage: Passage, **numbers: float) -> Document:
    identity = _identity(passage.key._asdict(), passage.title, passage.sha256)
    return Document(id="/".join(passage.key), page_content=passage.text, metadata={**identity, **numbers})


def _identity(key: Mapping[str, str], title: str, sha256: str) -> dict[str, str]:
    return {**key, "title": title, "sha256": sha256}


def _numbers(passage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: passage[name] for name in ("doc_score", "prior", "posterior", "visible")}
