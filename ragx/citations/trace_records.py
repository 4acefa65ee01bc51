"""ragx-trace-v1: one question with everything the audit needs, one JSON object a line.

    C  what was retrieved      S  what was packed into the input      R  what is cited        normally R <= S <= C

Two decisions. Display numbers (`ref`) are made after packing and are never identity: a citation that names only its
number is looked up in S. And a citation is kept as it was written, malformed keys and numbers out of range included,
because the audit counts those; only what cannot be read at all is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ragx.citations.trace_checks import SCHEMA
from ragx.records import PassageKey

Span = tuple[int, int]


class Candidate(NamedTuple):
    """One row of C: a passage that was retrieved.

    Attributes:
        rank: from 1.
        key: its identity.
        score: the retriever's, higher is better; a model's number, never a support label.
    """

    rank: int
    key: PassageKey
    score: float


class Packed(NamedTuple):
    """One row of S: a passage that the generator read.

    Attributes:
        pos: its place in the input, from 1.
        ref: its display number, from 1; made on the final S.
        key: its identity.
        prior: p(z|x) over S, for latent-document models.
        tokens: cost of the serialised chunk in the budget's unit.
        visible: code points [start, end) of its text that reached the generator; None is all of it.
        truncated: whether its end was cut.
        sha256: of the text the generator's input was made from.
    """

    pos: int
    ref: int
    key: PassageKey
    prior: float | None = None
    tokens: int | None = None
    visible: Span | None = None
    truncated: bool = False
    sha256: str | None = None


class Dropped(NamedTuple):
    """A passage of C that is not in S, and why: duplicate, over_budget, below_k, acl, expired.

    Attributes:
        stage: where it was dropped (`pack`, `filter`).
        tokens: its cost, where it was counted.
    """

    key: PassageKey
    stage: str
    reason: str
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """B = W - F - O, in `unit` (token, code_point): window, fixed part, output reserve; `remaining` after packing."""

    unit: str
    window: int
    fixed: int
    reserve: int
    budget: int
    remaining: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came out: `answered`, `abstained` (by rule), `refused` (for safety) or `error` (technical).

    Attributes:
        status: three outcomes without an answer are three things, scored apart.
        text: empty where there is none.
        reason_code: why there is none, for instance `insufficient_evidence`.
    """

    status: str = "answered"
    text: str = ""
    reason_code: str | None = None


class Claim(NamedTuple):
    """One statement of an answer.

    Attributes:
        claim_id: unique within the file.
        text: the statement, citation markers removed.
        span: code points [start, end) of the answer, None where it is no part of it.
        type: `simple`, `cross_document`, `time_sensitive`, ... as the gold data name them.
        worthy: whether it needs a citation at all.
    """

    claim_id: str
    text: str
    span: Span | None = None
    type: str = "simple"
    worthy: bool = True


class Citation(NamedTuple):
    """One citation as it was made.

    Attributes:
        claim_id: the claim it stands for.
        key: identity of the passage; None where only `ref` is known; whatever stood there where it is malformed.
        ref: the display number it was written with.
        origin: `posterior`, `inline`, `posthoc`, `extractive` or `external`.
        posterior: p(z|x,y) of the claim.
        delta: log p(y|C) - log p(y|C without z) in nats.
        prior: p(z|x).
        evidence_span: code points [start, end) of the passage text that it points to.
        quote: the text it claims to quote.
        note: what the parser remarked, for instance `maybe_not_a_citation`.
    """

    claim_id: str
    key: Any
    ref: int | None = None
    origin: str = "external"
    posterior: float | None = None
    delta: float | None = None
    prior: float | None = None
    evidence_span: Span | None = None
    quote: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class TokenScores:
    """The one teacher-forced pass over all K passages of S, in the order of S.

    Attributes:
        status: `complete`; `incomplete` where a pair was not scored; `offsets_unreliable` where tokens could not be
            aligned with the answer, so that a claim is attributed as the whole answer.
        log_prior: (K,) log p(z|x).
        logp: K rows of T, log p(y_j|x,z,y_<j) of the content tokens; natural log.
        token_spans: T spans of code points of the answer.
    """

    status: str
    log_prior: tuple[float, ...]
    logp: tuple[tuple[float, ...], ...]
    token_spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """One question: request, stages, answer, claims, citations, attribution. Field names in JSON: see `to_json`.

    Attributes:
        qid, question: of the request.
        as_of: ISO date the question is asked about; decides what is current, never the clock.
        principal: who asks; compared with each passage's acl.
        task: `qa_short`, `qa_long`, `fever`, ...
        model, decode: provenance; `model.id` or `model.kind` names the system under test.
        retrieved, packed, dropped, budget: C, S, C less S with reasons, and the budget of joint packing.
        extra_retrieval: keys that a permitted further search brought in.
        category: for tables by category.
    """

    qid: str
    question: str
    answer: Answer
    retrieved: tuple[Candidate, ...] = ()
    packed: tuple[Packed, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    budget: Budget | None = None
    extra_retrieval: tuple[PassageKey, ...] = ()
    claims: tuple[Claim, ...] = ()
    citations: tuple[Citation, ...] = ()
    as_of: str | None = None
    principal: tuple[str, ...] = ("public",)
    task: str = "qa_short"
    category: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    decode: Mapping[str, Any] = field(default_factory=dict)
    attribution: TokenScores | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of this trace; the inverse of `from_json`."""
        lists = {name: [row._asdict() for row in getattr(self, attribute)] for name, attribute in _LISTS.items()}
        return {
            "schema": SCHEMA,
            "qid": self.qid,
            "question": self.question,
            "as_of": self.as_of,
            "principal": self.principal,
            "task": self.task,
            "category": self.category,
            "model": dict(self.model),
            "decode": dict(self.decode),
            "budget": None if self.budget is None else asdict(self.budget),
            "extra_retrieval": self.extra_retrieval,
            "answer": asdict(self.answer),
            **lists,
            "attribution": None if self.attribution is None else asdict(self.attribution),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Trace:
        """The trace of a JSON object that `to_json` wrote or `check_trace` accepted."""
        tokens, budget = values.get("attribution"), values.get("budget")
        return cls(
            qid=values["qid"],
            question=values["question"],
            answer=Answer(**values["answer"]),
            retrieved=tuple([Candidate(row["rank"], PassageKey(*row["key"]), row["score"]) for row in values["C"]]),
            packed=tuple([_packed(row) for row in values["S"]]),
            dropped=tuple(Dropped(**{**row, "key": PassageKey(*row["key"])}) for row in values.get("dropped") or ()),
            budget=None if budget is None else Budget(**budget),
            extra_retrieval=tuple(PassageKey(*key) for key in values.get("extra_retrieval") or ()),
            claims=tuple([Claim(**{**row, "span": _span(row.get("span"))}) for row in values["claims"]]),
            citations=tuple([_citation(row) for row in values["citations"]]),
            as_of=values.get("as_of"),
            principal=tuple(values.get("principal") or ("public",)),
            task=values.get("task") or "qa_short",
            category=values.get("category") or "",
            model=values.get("model") or {},
            decode=values.get("decode") or {},
            attribution=None if tokens is None else _token_scores(tokens),
        )


_LISTS = {"C": "retrieved", "S": "packed", "dropped": "dropped", "claims": "claims", "citations": "citations"}


def _span(value: Any) -> Span | None:
    return None if value is None else (value[0], value[1])


def _packed(row: Mapping[str, Any]) -> Packed:
    return Packed(**{**row, "key": PassageKey(*row["key"]), "visible": _span(row.get("visible"))})


def _citation(row: Mapping[str, Any]) -> Citation:
    """A key is kept as it is where it is malformed."""
    return Citation(**{**row, "key": as_key(row.get("key")), "evidence_span": _span(row.get("evidence_span"))})


def as_key(value: Any) -> Any:
    """The identity that a JSON value names; anything but three non-empty texts is returned as it came."""
    if isinstance(value, list | tuple) and len(value) == 3:
        source, version, chunk = value
        if isinstance(source, str) and isinstance(version, str) and isinstance(chunk, str):
            if source and version and chunk:
                return PassageKey(source, version, chunk)
    return value


def _token_scores(row: Mapping[str, Any]) -> TokenScores:
    return TokenScores(
        status=row["status"],
        log_prior=tuple(row["log_prior"]),
        logp=tuple(map(tuple, row["logp"])),
        token_spans=tuple((start, end) for start, end in row["token_spans"]),
    )
