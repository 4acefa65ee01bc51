"""Section 2.5 put to use: questions in, predictions out, each with the passages that carry its answer.

    model.generate -> attribution (its one teacher-forced pass, ragx.citations.attribution) -> exact span -> Prediction

Two decisions. `posterior` and `gain` are computed over the tokens of the answer's text, without EOS and other special
tokens, so that no passage is cited for ending a sentence well; `logprob` is log p(y|x) of the whole y, EOS included.
Passages stand in the order of doc_score, q.d as the model computed it, whatever order a quantized index found them in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ragx.citations.attribution import Attribution, attribute
from ragx.citations.support import judge_exact_span
from ragx.citations.token_spans import token_spans
from ragx.data.prediction_stream import PredictionStream
from ragx.decoding.settings import DecodingSettings
from ragx.errors import RagxError
from ragx.experiments.provenance import provenance_of
from ragx.filters import PassageFilter, question_filters
from ragx.generator.pretrained import PretrainedGenerator
from ragx.model import CLOSED_BOOK, Answered, RagModel
from ragx.records import AnswerTokens, Citation, Example, NullShare, Prediction, Retrieved, RetrievedPassage
from ragx.retriever.by_question import by_filter

BATCH_SIZE = 16
# Per token whether it counts, and the spans of those that do; None where they cannot be found.
Tokens = tuple[list[bool], tuple[tuple[int, int], ...] | None]


def predict(
    model: RagModel,
    examples: Sequence[Example],
    *,
    decoder: str,
    settings: DecodingSettings,
    batch_size: int = BATCH_SIZE,
    provenance: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
) -> Iterator[Prediction]:
    """Answers the examples in their order, a batch at a time; their accepted answers are not looked at.

    Args:
        model: any kind; `closed_book` predictions have no passages.
        decoder, settings, labels: as for `RagModel.generate`. Each question is sampled with a seed of its own, made
            of `settings.seed` and its id.
        batch_size: questions decoded together; answers do not depend on it.
        provenance: what to record besides model, decoder, weights and index (`provenance_of`), such as an edition.

    Raises:
        ConfigError: the decoder does not fit the model kind.
        RagxError: a question for which the decoder found no answer of positive probability.
    """
    recorded = _provenance(model, decoder, settings, given=provenance, labels=labels)
    special = _special_ids(model.generator)
    for start in range(0, len(examples), batch_size):
        batch = examples[start : start + batch_size]
        for example, answer in zip(batch, _answered(model, batch, decoder, settings, labels), strict=True):
            tokens = _tokens(model.generator, answer, special=special)
            yield _prediction(example, answer, kind=model.kind, tokens=tokens, provenance=recorded)


def _answered(
    model: RagModel, batch: Sequence[Example], decoder: str, settings: DecodingSettings, labels: Sequence[str]
) -> list[Answered]:
    """In the order of `batch`; questions that may read alike are read together, since they find as many passages."""
    answered: dict[int, Answered] = {}
    filters = question_filters(batch, () if model.kind == CLOSED_BOOK else model.filtered_by)
    for only, places in by_filter(filters).items():
        examples = [batch[place] for place in places]
        queries = [example.query for example in examples]
        found = model.generate(
            queries,
            decoder=decoder,
            settings=settings,
            retrieved=None if only is None else _found(model, queries, only),
            labels=labels,
            seeds=[_seed(settings.seed, example.id) for example in examples] if settings.do_sample else (),
        )
        answered |= dict(zip(places, found, strict=True))
    return [answered[place] for place in range(len(batch))]


@torch.no_grad()
def _found(model: RagModel, queries: Sequence[str], only: PassageFilter) -> Retrieved:
    """What may be read of what was found for questions with one filter."""
    training = model.training
    model.eval()
    try:
        return model.retrieve(queries, within=only)[0]
    finally:
        model.train(training)


def predict_to_file(
    model: RagModel,
    examples: Sequence[Example],
    path: str | Path,
    *,
    decoder: str,
    settings: DecodingSettings,
    batch_size: int = BATCH_SIZE,
    provenance: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
) -> Path:
    """As `predict`, written to a file batch by batch with a progress bar; returns the path once every answer is there.

    Until then the answers stand in `<path>.partial`. Called again after a kill, it goes on where it stopped: no
    question is answered twice or lost, and the file is the same as without the kill. A whole file is kept.

    Raises:
        RagxError: the file there has answers to other questions, or of another model, index, decoder or setting.
    """
    recorded = _provenance(model, decoder, settings, given=provenance, labels=labels)
    stream = PredictionStream(path, examples, provenance=recorded, batch_size=batch_size)
    if stream.complete:
        return stream.path
    left = examples[stream.done :]
    found = predict(
        model, left, decoder=decoder, settings=settings, batch_size=batch_size, provenance=recorded, labels=labels
    )
    with stream.open() as handle, tqdm(total=len(examples), initial=stream.done, desc=str(path), disable=None) as bar:
        for start in range(0, len(left), batch_size):
            batch = [next(found) for _ in left[start : start + batch_size]]
            stream.append(handle, batch)
            bar.update(len(batch))
    stream.finish()
    return stream.path


def _provenance(
    model: RagModel, decoder: str, settings: DecodingSettings, *, given: Mapping[str, Any] | None, labels: Sequence[str]
) -> Mapping[str, Any]:
    told = {"labels": list(labels), "filtered_by": list(model.filtered_by)}
    told = {name: value for name, value in told.items() if value}
    return provenance_of(model, decoder=decoder, settings=settings, given={**(given or {}), **told})


def _seed(seed: int, example_id: str) -> int:
    """Of one question: answers depend neither on the batch nor on the questions before it."""
    return int.from_bytes(hashlib.sha256(f"{seed} {example_id}".encode()).digest()[:7], "big")


def _special_ids(generator: PretrainedGenerator) -> set[int | None]:
    """Ids that are no part of an answer's text."""
    ids = (generator.pad_token_id, generator.eos_token_id, generator.decoder_start_token_id)
    return {*ids, generator.tokenizer.bos_token_id}


def _tokens(generator: PretrainedGenerator, answered: Answered, *, special: set[int | None]) -> Tokens:
    """The tokens of the best answer's text, and where each stands in it."""
    ids = answered.hypotheses[0].token_ids if answered.hypotheses else ()
    content = [token not in special for token in ids]
    kept = [token for token, counts in zip(ids, content, strict=True) if counts]
    return content, token_spans(kept, answered.texts[0], decode=generator.inputs.decode) if ids else None


def _prediction(
    example: Example, answered: Answered, *, kind: str, tokens: Tokens, provenance: Mapping[str, Any]
) -> Prediction:
    if not answered.hypotheses or not np.isfinite(answered.hypotheses[0].logprob):
        raise RagxError(
            f"decoder must find an answer of positive probability, got none for question {example.id!r}. "
            "Loosen the constraints on it"
        )
    best, text = answered.hypotheses[0], answered.texts[0]
    order = np.argsort(-answered.doc_scores, kind="stable").tolist()
    passages: tuple[RetrievedPassage, ...] = ()
    citations: tuple[Citation, ...] = ()
    answer_tokens = null = None
    if order:
        content, spans = tokens
        attribution = attribute(
            torch.from_numpy(answered.token_logprobs[order]),
            torch.from_numpy(answered.doc_logprobs[order]),
            kind=kind,
            content=content,
        )
        rows = answered.token_logprobs[order][:, content].astype(float).round(6)
        answer_tokens = AnswerTokens(
            spans=spans or ((0, len(text)),) * rows.shape[1],
            logprobs=tuple(map(tuple, rows.tolist())),
            aligned=spans is not None,
        )
        passages = tuple(_passage(answered, z, r) for z, r in zip(order, attribution.doc_posterior, strict=True))
        null = _null_share(answered, content)
        if null is None or null.posterior < 0.5:
            citations = tuple(_citation(text, passages[z], attribution, z) for z in attribution.cited)
        provenance = {**provenance, "index": answered.index_fingerprint}
    return Prediction(
        id=example.id,
        query=example.query,
        answer=text,
        logprob=best.logprob,
        hypotheses=tuple(
            (other, hypothesis.logprob)
            for other, hypothesis in zip(answered.texts, answered.hypotheses, strict=True)
            if np.isfinite(hypothesis.logprob)
        ),
        passages=passages,
        citations=citations,
        cut_tokens=sum(answered.cut_tokens),
        provenance=provenance,
        tokens=answer_tokens,
        null_document=null,
    )


def _null_share(answered: Answered, content: Sequence[bool]) -> NullShare | None:
    """p(z|x) and p(z|x,y) of the null document, the latter over the tokens of the answer's text as for passages."""
    if answered.null_document is None:
        return None
    null = answered.null_document
    read = answered.token_logprobs[:, content].sum(1, dtype=np.float64)
    joint = null.logprob + null.token_logprobs[content].sum(dtype=np.float64)
    total = np.logaddexp.reduce([joint, *(answered.doc_logprobs + null.others + read)])
    return NullShare(prior=float(np.exp(null.logprob)), posterior=float(np.exp(joint - total)))


def _passage(answered: Answered, z: int, posterior: float) -> RetrievedPassage:
    passage = answered.passages[z]
    return RetrievedPassage(
        key=passage.key,
        title=passage.title,
        text=passage.text,
        sha256=passage.sha256,
        doc_score=float(answered.doc_scores[z]),
        prior=float(np.exp(answered.doc_logprobs[z])),
        posterior=posterior,
        visible=answered.visible[z],
    )


def _citation(answer: str, passage: RetrievedPassage, attribution: Attribution, z: int) -> Citation:
    support, span = judge_exact_span(answer, passage.text, visible=passage.visible)
    gain = None if attribution.gain is None else attribution.gain[z]
    return Citation(key=passage.key, posterior=passage.posterior, gain=gain, span=span, support=support)
