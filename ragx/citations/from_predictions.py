"""A prediction of ragx as a trace: what was retrieved, read, answered and cited.

    short answer   one claim, the answer              long answer   one claim a sentence (`ragx.citations.claims`)
    citations      the markers of the text, [1] being the first passage; without any, by the emission rule, for each
                   claim from the numbers of the teacher-forced pass over that claim

One decision: an empty answer is one claim without a citation, not a question without claims: it was given as an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ragx.citations.claims import SPLITTER, SPLITTER_VERSION, Sentence, split_claims
from ragx.citations.emission import EmissionRule, emit
from ragx.citations.markers import Marker
from ragx.citations.posteriors import span_gain, span_posterior, tokens_of
from ragx.citations.trace_records import (
    Answer,
    Candidate,
    Citation,
    Claim,
    Packed,
    TokenScores,
    Trace,
)
from ragx.records import Prediction

CLAIM_MODES = ("auto", "answer", "sentences")
LONG_ANSWER = 12  # words; `auto` splits what has more of them, or more than one sentence


def trace_of(prediction: Prediction, *, as_of: str | None = None, claims: str = "auto", task: str = "") -> Trace:
    """The trace of one prediction.

    Args:
        as_of: the date the question is asked about; predictions do not record it.
        claims: `answer` for one claim, `sentences` for one a sentence, `auto` by length.
        task: default `qa_short` or `qa_long` as the claims are.
    """
    sentences = split_claims(prediction.answer, n_refs=len(prediction.passages))
    long = bool(sentences) and (claims == "sentences" or (claims == "auto" and is_long(prediction.answer, sentences)))
    scores = _token_scores(prediction)
    kind = str(prediction.provenance.get("kind", ""))
    found = _claims(prediction, sentences if long else [])
    citations: list[Citation] = []
    if long:
        for claim, sentence in zip(found, sentences, strict=True):
            citations += [row for marker in sentence.markers for row in inline_citations(claim, marker)]
    if not citations:
        citations = list(_posterior_citations(prediction, found, scores, kind))
    provenance = dict(prediction.provenance)
    decode = {"decoder": provenance.pop("decoder", None), **(provenance.pop("decoding", None) or {})}
    splitter = {"claims": "sentences" if long else "answer", "splitter": SPLITTER, "splitter_version": SPLITTER_VERSION}
    return Trace(
        qid=prediction.id,
        question=prediction.query,
        answer=Answer("answered", prediction.answer),
        retrieved=tuple(Candidate(rank, p.key, p.doc_score) for rank, p in enumerate(prediction.passages, start=1)),
        packed=tuple(
            Packed(
                pos=place,
                ref=place,
                key=p.key,
                prior=p.prior,
                visible=p.visible,
                truncated=p.visible != (0, len(p.text)),
                sha256=p.sha256,
            )
            for place, p in enumerate(prediction.passages, start=1)
        ),
        claims=tuple(found),
        citations=tuple(citations),
        as_of=as_of,
        task=task or ("qa_long" if long else "qa_short"),
        model=provenance,
        decode={**decode, **splitter},
        attribution=scores,
    )


def is_long(answer: str, sentences: Sequence[Sentence]) -> bool:
    """Whether each sentence of an answer is a claim, where nobody says: several sentences, or more than a phrase."""
    return len(sentences) > 1 or len(answer.split()) > LONG_ANSWER


def _claims(prediction: Prediction, sentences: list[Sentence]) -> list[Claim]:
    answer = prediction.answer
    if not sentences:
        return [Claim(f"{prediction.id}.c1", answer, (0, len(answer)))]
    return [
        Claim(f"{prediction.id}.c{number}", sentence.text, sentence.span, worthy=sentence.worthy)
        for number, sentence in enumerate(sentences, start=1)
    ]


def _token_scores(prediction: Prediction) -> TokenScores | None:
    tokens = prediction.tokens
    if tokens is None or any(passage.prior <= 0 for passage in prediction.passages):
        return None
    return TokenScores(
        status="complete" if tokens.aligned else "offsets_unreliable",
        log_prior=tuple(math.log(passage.prior) for passage in prediction.passages),
        logp=tokens.logprobs,
        token_spans=tokens.spans,
    )


def _posterior_citations(
    prediction: Prediction, claims: list[Claim], scores: TokenScores | None, kind: str
) -> Iterator[Citation]:
    """By the emission rule for each of several claims; as the prediction has them for one, or without the numbers."""
    priors = {passage.key: passage.prior for passage in prediction.passages}
    if len(claims) == 1 or scores is None:
        for claim in claims:
            for cited in prediction.citations:
                yield Citation(
                    claim_id=claim.claim_id,
                    key=cited.key,
                    origin="posterior",
                    posterior=cited.posterior,
                    delta=cited.gain,
                    prior=priors.get(cited.key),
                    evidence_span=cited.span if len(claims) == 1 else None,
                    note=None if len(claims) == 1 else "cited_for_the_whole_answer",
                )
        return
    rule = EmissionRule(**(prediction.provenance.get("attribution") or {}))
    for claim in claims:
        tokens = tokens_of(scores, claim.span, kind=kind)
        posterior, gain = span_posterior(scores, tokens).tolist(), span_gain(scores, tokens, kind=kind)
        if not tokens or gain is None:
            continue
        for z in emit(posterior, gain, rule=rule):
            passage = prediction.passages[z]
            yield Citation(
                claim_id=claim.claim_id,
                key=passage.key,
                origin="posterior",
                posterior=posterior[z],
                delta=gain[z],
                prior=passage.prior,
            )


def inline_citations(claim: Claim, marker: Marker) -> Iterator[Citation]:
    """Each number of a marker; the key is looked up among the packed passages by the audit."""
    note = ",".join(marker.notes) or None
    for ref in marker.refs:
        yield Citation(claim_id=claim.claim_id, key=None, ref=ref, origin="inline", note=note)
    for ref_out, why in marker.wrong:
        yield Citation(
            claim_id=claim.claim_id, key=None, ref=ref_out, origin="inline", note=",".join([why, *marker.notes])
        )
