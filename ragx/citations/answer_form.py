"""The answer object `ka-answer-v1`, and the gate that a proposed one must pass.

    {"schema_version": "ka-answer-v1", "status": "answered" | "abstained", "answer", "amount_yuan", "citations",
     "reason_code"}                                                                     in this order, compact

One decision: the gate answers four questions one by one, since each can be yes while another is no: is the object well
formed, do the cited lines exist, is the amount the one in force, do the cited lines support it. A true amount with a
wrong citation passes three and fails the fourth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ragx.citations.composer import REASONS, Request, address
from ragx.citations.documents import Document, Library
from ragx.citations.judges.exact_span import ExactSpanJudge
from ragx.citations.trace_records import Answer, Candidate, Citation, Claim, Packed, Trace
from ragx.records import PassageKey

SCHEMA = "ka-answer-v1"
FIELDS = ("schema_version", "status", "answer", "amount_yuan", "citations", "reason_code")
_CITATION_FIELDS = ("source", "version", "chunk", "start_line", "end_line", "text")


@dataclass(frozen=True, slots=True)
class Checks:
    """What holds of a proposed answer; the later ones are False where the object is not well formed.

    Attributes:
        schema: the fields, their kinds and their agreement.
        exists: every cited line stands where the citation says, and there is at least one.
        value: the amount is that of the documents in force.
        support: the cited documents are in force and whole, state the amount, and hold the answer word for word. A
            paraphrase fails: this gate reads words, not meaning.
    """

    schema: bool
    exists: bool
    value: bool
    support: bool


def answer_object(trace: Trace, library: Library) -> dict[str, Any]:
    """The object of a composed answer or abstention."""
    quoted = [library[citation.key] for citation in trace.citations]
    answered = trace.answer.status == "answered"
    shown = f"{trace.answer.text} {''.join(f'[{address(document)}]' for document in quoted)}"
    return {
        "schema_version": SCHEMA,
        "status": trace.answer.status,
        "answer": shown if answered else None,
        "amount_yuan": _yuan(quoted) if answered else None,
        "citations": [_citation(document) for document in quoted],
        "reason_code": trace.answer.reason_code,
    }


def to_json(answer: Mapping[str, Any]) -> str:
    """The compact text of an answer object."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def check_answer(answer: Mapping[str, Any], request: Request, library: Library) -> Checks:
    """Asks a proposed answer the four questions; an abstention needs none but the first."""
    if not is_well_formed(answer):
        return Checks(schema=False, exists=False, value=False, support=False)
    if answer["status"] == "abstained":
        return Checks(schema=True, exists=True, value=True, support=True)
    cited = [_cited(citation, library) for citation in answer["citations"]]
    exists = bool(cited) and None not in cited
    documents = [document for document in cited if document is not None]
    in_force = [
        document
        for matter in request.matters
        for document in library.in_force(matter, as_of=request.as_of, principal=request.principal)
    ]
    return Checks(
        schema=True,
        exists=exists,
        value=answer["amount_yuan"] == _yuan(in_force),
        support=exists and _supports(answer, documents, request, library),
    )


def is_well_formed(answer: Mapping[str, Any]) -> bool:
    """Whether an object has the form: every field, of its kind, agreeing with its status."""
    if set(answer) != set(FIELDS) or answer["schema_version"] != SCHEMA or not isinstance(answer["citations"], list):
        return False
    amount, text, reason = answer["amount_yuan"], answer["answer"], answer["reason_code"]
    if any(
        not isinstance(citation, dict) or set(citation) != set(_CITATION_FIELDS) for citation in answer["citations"]
    ):
        return False
    if answer["status"] == "abstained":
        return text is None and amount is None and not answer["citations"] and reason in REASONS
    number = amount is None or (isinstance(amount, int | float) and not isinstance(amount, bool))
    return answer["status"] == "answered" and isinstance(text, str) and bool(text.strip()) and number and reason is None


def trace_of_answer(answer: Mapping[str, Any], request: Request) -> Trace:
    """A proposed answer as a trace, for the audit: what it cites counts as what it was given."""
    keys = [PassageKey(citation["source"], citation["version"], citation["chunk"]) for citation in answer["citations"]]
    keys = list(dict.fromkeys(keys))
    text = _body(answer)
    claims = (Claim(f"{request.qid}.c1", text, (0, len(text))),) if text else ()
    return Trace(
        qid=request.qid,
        question=request.question,
        answer=Answer(answer["status"], text, answer["reason_code"]),
        retrieved=tuple(Candidate(i, key, 0.0) for i, key in enumerate(keys, start=1)),
        packed=tuple(Packed(i, i, key) for i, key in enumerate(keys, start=1)),
        claims=claims,
        citations=tuple(Citation(f"{request.qid}.c1", key, ref=i) for i, key in enumerate(keys, start=1)),
        as_of=request.as_of,
        principal=request.principal,
        task=request.task,
        category=request.category,
        model={"kind": "external", "id": "proposal"},
    )


def _body(answer: Mapping[str, Any]) -> str:
    """The answer without the addresses shown at its end."""
    text = answer["answer"] or ""
    while text.endswith("]") and "[" in text:
        text = text[: text.rindex("[")].rstrip()
    return text


def _citation(document: Document) -> dict[str, Any]:
    first, last = document.lines
    return {**document.key._asdict(), "start_line": first, "end_line": last, "text": document.text}


def _cited(citation: Mapping[str, Any], library: Library) -> Document | None:
    """The document whose lines a citation gives, letter by letter; None where they do not stand there."""
    document = library.get(PassageKey(citation["source"], citation["version"], citation["chunk"]))
    if document is None or (citation["start_line"], citation["end_line"]) != document.lines:
        return None
    return document if citation["text"] == document.text else None


def _supports(answer: Mapping[str, Any], cited: Sequence[Document], request: Request, library: Library) -> bool:
    applies = all(library.applies(document, as_of=request.as_of, principal=request.principal) for document in cited)
    whole = all(document.complete for document in cited)
    passages = [document.evidence.passage for document in cited]
    verbatim = ExactSpanJudge().judge(_body(answer), passages) == "full"
    return applies and whole and verbatim and answer["amount_yuan"] == _yuan(cited)


def _yuan(documents: Sequence[Document]) -> int | float | None:
    """The one amount in yuan that the documents state; None where they state none or several."""
    stated = {value for document in documents for value, unit in document.amounts() if unit == "CNY"}
    if len(stated) != 1:
        return None
    value: Decimal = next(iter(stated))
    return int(value) if value == value.to_integral_value() else float(value)
