"""The records that travel between modules: plain, immutable, free of torch.

A passage is identified by (source, version, chunk), never by its position in an index, its title or a display number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np


class PassageKey(NamedTuple):
    """The identity of a passage: all three parts, all non-empty strings."""

    source: str
    version: str
    chunk: str


def text_sha256(text: str) -> str:
    """Hex digest over the exact UTF-8 bytes of `text`, without any normalisation."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True)
class Passage:
    """A text unit z of the paper (section 3: 100 words of an article), with what an audit needs to find it again.

    Attributes:
        source, version, chunk: the identity.
        title, text: what the encoders and the generator read.
        span: code points [start, end) of `text` in its source document.
        sha256: hex digest of the exact text; filled in when empty.
        valid_from, valid_to: ISO dates between which the text holds; None where unbounded.
        acl: who may see it; empty means everybody.
    """

    source: str
    version: str
    chunk: str
    title: str
    text: str
    span: tuple[int, int] | None = None
    sha256: str = ""
    valid_from: str | None = None
    valid_to: str | None = None
    acl: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.sha256:
            object.__setattr__(self, "sha256", text_sha256(self.text))

    @property
    def key(self) -> PassageKey:
        """The identity of this passage."""
        return PassageKey(self.source, self.version, self.chunk)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field; the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Passage:
        """The passage of a JSON object that `to_json` wrote."""
        span = row.get("span")
        fields = {**row, "span": tuple(span) if span is not None else None, "acl": tuple(row.get("acl") or ())}
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Example:
    """A question x with its accepted answers y, and, where known, the passages that state the answer.

    Attributes:
        id: unique within its file.
        query: the question, letter by letter.
        answers: accepted answers; the first is the training target.
        kind: what is asked (`took_office`, `predecessor`, ...), for tables by kind.
        gold: keys of the passages that state the answer.
        as_of: the date or edition the question is asked about.
        acl: groups of who asks; None where the row does not say.
        gold_titles: titles of the articles that state the answer, one set for each way to support it (FEVER, KILT).
    """

    id: str
    query: str
    answers: tuple[str, ...]
    kind: str = ""
    gold: tuple[PassageKey, ...] = ()
    as_of: str | None = None
    gold_titles: tuple[tuple[str, ...], ...] = ()
    acl: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field; the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Example:
        """The example of a JSON object that `to_json` wrote."""
        gold = tuple(PassageKey(*key) for key in row.get("gold") or ())
        titles = tuple(map(tuple, row.get("gold_titles") or ()))
        acl = None if row.get("acl") is None else tuple(row["acl"])
        return cls(**{**row, "answers": tuple(row["answers"]), "gold": gold, "gold_titles": titles, "acl": acl})


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What a retriever found for a batch of B queries, best first.

    Attributes:
        passages: B lists of K passages.
        rows: (B, K) int64, positions in the index.
        doc_embeds: (B, K, D) float32 d(z), or None for a retriever without vectors (BM25); times its weight where a
            hybrid weighs q.d.
        doc_scores: (B, K) float32 as the index gave them; training recomputes q.d with its gradient.
        index_fingerprint: which index answered, so that an answer names exactly one edition.
        doc_offsets: (B, K) float32, what a hybrid adds to q.d; None for nothing.
    """

    passages: list[list[Passage]]
    rows: np.ndarray
    doc_embeds: np.ndarray | None
    doc_scores: np.ndarray
    index_fingerprint: str
    doc_offsets: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class GivenPassages:
    """Passages for one question, from whatever system; `doc_scores` are logits of p(z|x), None for a flat prior."""

    passages: tuple[Passage, ...]
    doc_scores: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One decoded answer y; a higher `logprob` is better.

    Attributes:
        token_ids: without the start token, with EOS where it was produced.
        logprob: log p(y|x), the marginal over passages (natural log).
        passage_logprobs: log p(y|x,z) per passage; -inf where the decoder counts it as zero.
        doc_posterior: p(z|x,y) per passage.
        produced_by: positions (0-based, on the K axis) of the passages whose own beam produced it.
    """

    token_ids: tuple[int, ...]
    logprob: float
    passage_logprobs: tuple[float, ...] = ()
    doc_posterior: tuple[float, ...] = ()
    produced_by: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RetrievedPassage:
    """One row of a prediction's evidence: which passage, how it was ranked, what of it the generator saw.

    Attributes:
        key: identity of the passage.
        title, text: as they stood in the index that answered.
        doc_score: q.d.
        prior: p(z|x) over the passages that were kept.
        posterior: p(z|x,y) of the answer given.
        visible: code points [start, end) of `text` that reached the generator.
    """

    key: PassageKey
    title: str
    text: str
    sha256: str
    doc_score: float
    prior: float
    posterior: float
    visible: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that an answer cites, and why (`ragx.citations.attribution`).

    Attributes:
        key: identity of the passage.
        posterior: p(z|x,y).
        gain: log p(y|C) - log p(y|C without z) in nats; None with one passage.
        span: code points of the answer inside the passage text, None where it is not there verbatim.
        support: `full` where the answer stands in the visible text, else `not_judged`.
    """

    key: PassageKey
    posterior: float
    gain: float | None
    span: tuple[int, int] | None
    support: str


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """The tokens of an answer's text and how probable each passage makes them (figure 2 of the paper).

    Attributes:
        spans: T spans of code points of the answer, special tokens left out.
        logprobs: K rows, as `Prediction.passages`, of T teacher-forced log p(y_i|x,z,y_<i), natural log.
        aligned: whether the spans are known; where not, each is the whole answer.
    """

    spans: tuple[tuple[int, int], ...]
    logprobs: tuple[tuple[float, ...], ...]
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class NullShare:
    """What of p(z|x) and of p(z|x,y) of an answer belongs to the null document (`ragx.retriever.null_document`)."""

    prior: float
    posterior: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to one question with everything the metrics and the audit need; one line of predictions.jsonl.

    Attributes:
        id, query: of the example.
        answer: decoded text of the best hypothesis.
        logprob: log p(y|x) of it (natural log).
        hypotheses: (text, log p(y|x)) of all that were returned, best first.
        passages: the K retrieved passages in rank order; empty for `closed_book`.
        citations: passages that carry the answer.
        cut_tokens: passage tokens that did not fit the generator's input.
        provenance: model kind, decoder, settings, fingerprints of checkpoint and index, edition.
        tokens: of the answer; None for `closed_book`.
        null_document: its share, where the model has one; prior and posterior of `passages` are what they would be
            without it. An answer that owes it half or more cites nothing.
    """

    id: str
    query: str
    answer: str
    logprob: float
    hypotheses: tuple[tuple[str, float], ...]
    passages: tuple[RetrievedPassage, ...]
    citations: tuple[Citation, ...]
    cut_tokens: int
    provenance: Mapping[str, Any]
    tokens: AnswerTokens | None = None
    null_document: NullShare | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field; the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Prediction:
        """The prediction of a JSON object that `to_json` wrote."""
        passages = tuple(
            RetrievedPassage(**{**p, "key": PassageKey(*p["key"]), "visible": tuple(p["visible"])})
            for p in row["passages"]
        )
        citations = tuple(
            Citation(**{**c, "key": PassageKey(*c["key"]), "span": tuple(c["span"]) if c["span"] else None})
            for c in row["citations"]
        )
        hypotheses = tuple((text, logprob) for text, logprob in row["hypotheses"])
        tokens = row.get("tokens")
        if tokens is not None:
            spans = tuple((start, end) for start, end in tokens["spans"])
            tokens = AnswerTokens(spans, tuple(map(tuple, tokens["logprobs"])), tokens["aligned"])
        null = row.get("null_document")
        replaced = {"passages": passages, "citations": citations, "hypotheses": hypotheses, "tokens": tokens}
        return cls(**{**row, **replaced, "null_document": None if null is None else NullShare(**null)})
