"""What the report shows of one question, as plain values for the template (figure 2 of the paper).

    answer    its claims in place, each with its status and the passages it cites
    heat map  p(z|x, tokens) of every passage (rows) and token (columns): a token at a time for RAG-Token, all tokens so
              far for RAG-Sequence
    passages  cited ones in full, with the part that was read and the exact span that is cited

One decision: nothing reaches a template that the reader may not see; redaction happens here and not in the markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from ragx.citations.audit import Audited, ClaimResult
from ragx.citations.evidence import Evidence, EvidenceStore
from ragx.citations.posteriors import token_posterior
from ragx.citations.redaction import Redaction
from ragx.citations.statuses import CitationResult
from ragx.records import PassageKey

TOKENS_PER_TABLE = 12
MAX_TOKENS = 120


def question_view(audited: Audited, redaction: Redaction, store: EvidenceStore, *, anchor: str) -> dict[str, Any]:
    """The values of one question; `anchor` starts every id in it."""
    trace = audited.trace
    names = _names(audited)
    claims = [_claim_view(audited, claim, redaction, names, anchor) for claim in audited.claims]
    return {
        "anchor": anchor,
        "qid": trace.qid,
        "question": redaction.text(trace.question),
        "as_of": trace.as_of,
        "status": trace.answer.status,
        "reason": trace.answer.reason_code,
        "correct": audited.correct,
        "accepted": [redaction.text(answer) for answer in audited.gold.answers] if audited.gold is not None else [],
        "model": trace.model.get("kind"),
        "segments": _segments(audited, redaction, claims),
        "claims": claims,
        "heat": _heat_map(audited, redaction, names),
        "passages": [_passage_view(audited, key, redaction, store, (names[key], anchor)) for key in names],
        "losses": [(loss.claim_id, loss.stage, ", ".join(loss.reasons)) for loss in audited.losses],
        "findings": [(f.code, f.detail, _listed(redaction.items(f.items))) for f in audited.findings],
    }


def _names(audited: Audited) -> dict[PassageKey, str]:
    """Display name of each passage: its number where it was packed, else a letter; cited ones first."""
    packed = {row.key: str(row.ref) for row in audited.trace.packed}
    cited = [result.key for result in audited.citations if result.key is not None]
    loose = [key for key in dict.fromkeys(cited) if key not in packed]
    names = {**packed, **{key: f"x{i}" for i, key in enumerate(loose, start=1)}}
    shown = [key for key in names if key in cited] + [key for key in names if key not in cited]
    return {key: names[key] for key in shown}


def _claim_view(
    audited: Audited, claim: ClaimResult, redaction: Redaction, names: dict[PassageKey, str], anchor: str
) -> dict[str, Any]:
    own = [r for r in audited.citations if r.citation.claim_id == claim.claim.claim_id and not r.duplicate]
    return {
        "text": redaction.claim(claim),
        "status": claim.status,
        "strict": claim.strict,
        "reason": claim.reason,
        "conflicts": [names.get(key, "?") for key in claim.conflicts],
        "citations": [_citation_view(result, names, anchor) for result in own],
    }


def _citation_view(result: CitationResult, names: dict[PassageKey, str], anchor: str) -> dict[str, Any]:
    name = names.get(result.key) if result.key is not None else None
    written = result.citation.ref if result.citation.ref is not None else "?"
    return {
        "name": name or str(written),
        "href": f"#{anchor}-p{name}" if name else None,
        "status": result.status,
        "label": result.label if result.label != result.status else None,
        "valid": result.valid,
        "judge": result.judge,
        "posterior": result.citation.posterior,
        "delta": result.citation.delta,
        "prior": result.citation.prior,
        "notes": ", ".join(result.notes),
    }


def _segments(audited: Audited, redaction: Redaction, claims: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answer in pieces, each with the claim it is; one piece without a claim where claims have no clear place."""
    text = audited.trace.answer.text
    placed = sorted((result.claim.span, i) for i, result in enumerate(audited.claims) if result.claim.span is not None)
    clear = all(before[1] <= after[0] for (before, _), (after, _) in pairwise(placed))
    clear = clear and len(placed) == len(audited.claims) and all(span[1] <= len(text) for span, _ in placed)
    if redaction.hides_answer or not clear:
        return [{"text": redaction.answer(audited), "claim": None}]
    pieces: list[dict[str, Any]] = []
    position = 0
    for (start, end), i in placed:
        pieces.append({"text": text[position:start], "claim": None})
        pieces.append({"text": text[start:end], "claim": claims[i]})
        position = end
    pieces.append({"text": text[position:], "claim": None})
    return [piece for piece in pieces if piece["text"] or piece["claim"]]


def _heat_map(audited: Audited, redaction: Redaction, names: dict[PassageKey, str]) -> dict[str, Any] | None:
    trace, scores = audited.trace, audited.trace.attribution
    if scores is None or scores.status != "complete" or not scores.token_spans or redaction.hides_answer:
        return None
    kind = str(trace.model.get("kind", "rag_token"))
    rows = token_posterior(scores, kind=kind)[:MAX_TOKENS]
    tokens = [trace.answer.text[slice(*span)] or "\u00b7" for span in scores.token_spans[:MAX_TOKENS]]
    blocks = []
    for start in range(0, len(tokens), TOKENS_PER_TABLE):
        block = range(start, min(start + TOKENS_PER_TABLE, len(tokens)))
        blocks.append(
            {
                "tokens": [tokens[j] for j in block],
                "rows": [
                    {
                        "name": names[packed.key],
                        "prior": packed.prior,
                        "cells": [round(100 * float(rows[j][z])) for j in block],
                    }
                    for z, packed in enumerate(trace.packed)
                ],
            }
        )
    return {"blocks": blocks, "running": kind == "rag_sequence", "cut": len(scores.token_spans) > MAX_TOKENS}


def _passage_view(
    audited: Audited, key: PassageKey, redaction: Redaction, store: EvidenceStore, named: tuple[str, str]
) -> dict[str, Any]:
    name, anchor = named
    evidence = store.get(key)
    results = [result for result in audited.citations if result.key == key]
    packed = next((row for row in audited.trace.packed if row.key == key), None)
    view: dict[str, Any] = {
        "id": f"{anchor}-p{name}",
        "name": name,
        "cited": bool(results),
        "key": redaction.key(key) if redaction.restricted(key) else "{}@{}#{}".format(*key),
        "prior": packed.prior if packed is not None else None,
        "restricted": redaction.restricted(key),
        "title": "",
        "pieces": [],
        "place": "",
        "truncated": packed is not None and packed.truncated,
        "derived": evidence is not None and evidence.kind == "derived",
    }
    if evidence is None or redaction.restricted(key):
        return view
    visible = packed.visible if packed is not None and packed.visible is not None else None
    return {
        **view,
        "title": evidence.passage.title,
        "place": _place(evidence),
        "pieces": _pieces(evidence, results, visible),
    }


def _pieces(
    evidence: Evidence, results: Iterable[CitationResult], visible: tuple[int, int] | None
) -> list[dict[str, Any]]:
    """The text cut where the cited spans and the part that was read begin and end."""
    text = evidence.passage.text
    spans = [_span(result, text) for result in results]
    marks = [span for span in spans if span is not None and span[0] <= span[1] <= len(text)]
    read = visible or (0, len(text))
    cuts = sorted({0, len(text), *read, *(bound for span in marks for bound in span)})
    return [
        {
            "text": text[start:end],
            "marked": any(a <= start and end <= b for a, b in marks),
            "read": read[0] <= start and end <= read[1],
        }
        for start, end in pairwise(cuts)
        if start < end <= len(text)
    ]


def _span(result: CitationResult, text: str) -> tuple[int, int] | None:
    if result.citation.evidence_span is not None:
        return result.citation.evidence_span
    quote = result.citation.quote
    start = text.find(quote) if quote else -1
    return (start, start + len(quote)) if quote and start >= 0 else None


def _place(evidence: Evidence) -> str:
    span = evidence.passage.span
    parts = [f"{name} {value}" for name, value in evidence.place.items()]
    parts += [f"code points {span[0]}-{span[1]} of the source"] if span is not None else []
    dates = [evidence.passage.valid_from, evidence.passage.valid_to]
    parts += [f"valid {dates[0] or '...'} to {dates[1] or '...'}"] if any(dates) else []
    return "; ".join([*parts, *filter(None, [evidence.publisher, evidence.uri])])


def _listed(items: Sequence[object]) -> str:
    return "; ".join("@".join(map(str, item)) if isinstance(item, list) else str(item) for item in items)
