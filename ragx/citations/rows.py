"""The lines of claims.jsonl, citations.jsonl and stages.jsonl.

One decision: floats are written with six decimals and nothing depends on when or where the audit ran, so that the same
input gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ragx.citations.audit import Audited, ClaimResult
from ragx.citations.redaction import Redaction
from ragx.citations.statuses import OUT_OF_CHAIN, UNRESOLVABLE, CitationResult

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


def to_line(row: Mapping[str, Any]) -> str:
    """One JSON line, with its line feed."""
    return _encode(row) + "\n"


def rounded(value: float | None) -> float | None:
    """Six decimals; never -0.0."""
    return None if value is None else round(float(value), 6) + 0.0


def claim_row(audited: Audited, claim: ClaimResult, redaction: Redaction) -> dict[str, Any]:
    """A line of claims.jsonl; `checks` answers three questions apart: is it there, is the answer right, is it said."""
    own = [r for r in audited.citations if r.citation.claim_id == claim.claim.claim_id and not r.duplicate]
    return {
        "qid": audited.trace.qid,
        "claim_id": claim.claim.claim_id,
        "text": redaction.claim(claim),
        "span": claim.claim.span,
        "type": claim.claim.type,
        "status": claim.status,
        "strict_status": None if claim.status == "exempt" else claim.strict,
        "reason": claim.reason,
        "covered": claim.covered,
        "checks": {
            "exists": all(r.status not in UNRESOLVABLE for r in own) if own else None,
            "correct": audited.correct,
            "supported": claim.together,
        },
        "group": claim.group,
        "group_fraction": rounded(claim.group_fraction),
        "conflicts": [redaction.key(key) for key in claim.conflicts],
        "alce_recall": claim.recall,
        "alce_precision": claim.precision,
        "partial_aware_precision": claim.partial_precision,
        "citations": [r.number for r in own],
    }


def citation_row(audited: Audited, result: CitationResult, redaction: Redaction) -> dict[str, Any]:
    """A line of citations.jsonl; `opens` is where the exact text is found."""
    citation = result.citation
    hidden = redaction.restricted(result.key)
    shown = result.original if redaction.shows(result.original) and not hidden else None
    return {
        "qid": audited.trace.qid,
        "claim_id": citation.claim_id,
        "number": result.number,
        "key": redaction.key(citation.key if result.key is None else result.key),
        "ref": citation.ref,
        "origin": citation.origin,
        "status": result.status,
        "valid": result.valid,
        "label": result.label,
        "judge": result.judge,
        "duplicate": result.duplicate,
        "granularity": result.granularity,
        "posterior": rounded(citation.posterior),
        "delta": rounded(citation.delta),
        "prior": rounded(citation.prior),
        "evidence_span": citation.evidence_span,
        "quote": None if hidden or citation.quote is None else redaction.text(citation.quote),
        "notes": result.notes,
        "opens": None if shown is None else _place(shown, citation.evidence_span if shown is result.evidence else None),
    }


def stage_row(audited: Audited, redaction: Redaction) -> dict[str, Any]:
    """A line of stages.jsonl: what was there, what reached the generator, what was cited, and where the rest went."""
    trace = audited.trace
    return {
        "qid": trace.qid,
        "question": redaction.text(trace.question),
        "as_of": trace.as_of,
        "task": trace.task,
        "category": trace.category or (audited.gold.category if audited.gold is not None else ""),
        "answer": redaction.answer(audited),
        "status": trace.answer.status,
        "reason_code": trace.answer.reason_code,
        "correct": audited.correct,
        "model": dict(trace.model),
        "decode": dict(trace.decode),
        "retrieved": [redaction.key(candidate.key) for candidate in trace.retrieved],
        "packed": [redaction.key(packed.key) for packed in trace.packed],
        "cited": [redaction.key(key) for key in dict.fromkeys(r.key for r in audited.citations) if key is not None],
        "not_in_chain": [redaction.key(r.key) for r in audited.citations if r.status in OUT_OF_CHAIN],
        "dropped": [[redaction.key(row.key), row.reason] for row in trace.dropped],
        "truncated": [redaction.key(packed.key) for packed in trace.packed if packed.truncated],
        "budget": None if trace.budget is None else [trace.budget.budget, trace.budget.remaining, trace.budget.unit],
        "losses": [{**loss._asdict(), "reasons": list(loss.reasons)} for loss in audited.losses],
        "findings": [[code, detail, redaction.items(items)] for code, detail, items in audited.findings],
    }


def _place(evidence: Any, span: tuple[int, int] | None) -> dict[str, Any]:
    passage = evidence.passage
    start, end = span or (0, len(passage.text))
    offset = None if passage.span is None else [passage.span[0] + start, passage.span[0] + end]
    return {"key": list(passage.key), "uri": evidence.uri or None, "span": [start, end], "in_source": offset,
            **dict(evidence.place)}  # fmt: skip
