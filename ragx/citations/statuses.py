"""The status of every citation: the first that applies, and everything before a label is invalid.

    malformed, out_of_range -> unknown_source | unknown_version | unknown_chunk | tombstoned
      -> span_out_of_range | quote_mismatch | hash_mismatch | hash_missing -> derived_only -> forbidden
      -> not_retrieved | not_packed | outside_visible_span -> stale | not_yet_valid
      -> full | partial | none | contradict | not_judged

One decision: a citation that is invalid for its date or its place in the chain is still judged, since "is it there",
"is it current" and "does it say so" are three questions. One whose text cannot be trusted or may not be read is not.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

from ragx.citations.evidence import Evidence, EvidenceStore
from ragx.citations.judging import NOT_JUDGED, Support
from ragx.citations.trace_records import Citation, Claim, Packed, Trace
from ragx.records import PassageKey

LABELS = ("full", "partial", "none", "contradict", NOT_JUDGED)
UNRESOLVABLE = ("malformed", "out_of_range", "unknown_source", "unknown_version", "unknown_chunk", "tombstoned")
UNTRUSTED = ("span_out_of_range", "quote_mismatch", "hash_mismatch", "hash_missing", "derived_only")
OUT_OF_CHAIN = ("not_retrieved", "not_packed", "outside_visible_span")
OUT_OF_DATE = ("stale", "not_yet_valid")
INVALID = (*UNRESOLVABLE, *UNTRUSTED, "forbidden", *OUT_OF_CHAIN, *OUT_OF_DATE)


class CitationResult(NamedTuple):
    """What the audit says of one citation.

    Attributes:
        citation: as it was made.
        number: its place in the trace, from 1.
        key: the identity it names, also through its display number; None where it names none.
        status: the first of the module's list that applies.
        label: the support, also of a citation that is out of date or out of the chain; None where it was not asked.
        judge: who judged.
        duplicate: whether the claim cites this passage already; left out of every denominator but the duplicate rate.
        evidence: what the corpus holds; what the reader is shown of a derived text is `original`.
        original: where the exact text is.
        granularity: how exactly it points: span, page, section, chunk or a whole source.
        notes: remarks that change no status: of the marker, `superseded`, `hash_unrecorded`.
    """

    citation: Citation
    number: int
    key: PassageKey | None
    status: str
    label: str | None
    judge: str
    duplicate: bool
    evidence: Evidence | None
    original: Evidence | None
    granularity: str | None
    notes: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """Whether it may count as support at all."""
        return self.status in LABELS


@dataclass(frozen=True, slots=True)
class Chain:
    """C, S and permitted further retrieval of a trace, for look-ups."""

    packed: dict[PassageKey, Packed]
    by_ref: dict[int, PassageKey]
    retrieved: frozenset[PassageKey]
    extra: frozenset[PassageKey]

    @classmethod
    def of(cls, trace: Trace) -> Chain:
        """The chain of one trace."""
        return cls(
            packed={packed.key: packed for packed in trace.packed},
            by_ref={packed.ref: packed.key for packed in trace.packed},
            retrieved=frozenset(candidate.key for candidate in trace.retrieved),
            extra=frozenset(trace.extra_retrieval),
        )


def audit_citations(trace: Trace, chain: Chain, store: EvidenceStore, support: Support) -> list[CitationResult]:
    """Every citation of a trace, in its order."""
    claims = {claim.claim_id: claim for claim in trace.claims}
    seen: set[tuple[str, object]] = set()
    results = []
    for number, citation in enumerate(trace.citations, start=1):
        key = citation.key
        if key is None and isinstance(citation.ref, int):
            key = chain.by_ref.get(citation.ref)
        named = (citation.claim_id, key if isinstance(key, PassageKey) else repr((citation.key, citation.ref)))
        duplicate = named in seen
        seen.add(named)
        claim = claims[citation.claim_id]
        results.append(_audit(trace, chain, store, support, (number, citation, claim, key, duplicate)))
    return results


def _audit(
    trace: Trace,
    chain: Chain,
    store: EvidenceStore,
    support: Support,
    cited: tuple[int, Citation, Claim, object, bool],
) -> CitationResult:
    number, citation, claim, key, duplicate = cited
    packed = chain.packed.get(key) if isinstance(key, PassageKey) else None
    notes = [citation.note] if citation.note else []
    if key is None:
        numbered = citation.ref is not None or citation.note
        status = "out_of_range" if numbered else "malformed"
        return CitationResult(citation, number, None, status, None, "", duplicate, None, None, None, tuple(notes))
    resolution = store.resolve(key, sha256=packed.sha256 if packed else None)
    evidence = resolution.evidence
    known = key if isinstance(key, PassageKey) and resolution.status != "malformed" else None
    status = _first_fault(trace, chain, citation, known, resolution.status, evidence)
    label, judge, granularity = None, "", None
    if evidence is not None:
        granularity = _granularity(citation, evidence)
        currency = store.currency(evidence, trace.as_of)
        if currency == "superseded":
            notes.append(currency)
        if resolution.resolved and not resolution.verified:
            notes.append("hash_unrecorded")
        if known is not None and status not in (*UNRESOLVABLE, *UNTRUSTED, "forbidden"):
            label, judge = support.label(claim, known)
            if status == "":
                status = currency if currency in OUT_OF_DATE else label
    return CitationResult(
        citation=citation,
        number=number,
        key=known,
        status=status,
        label=label,
        judge=judge,
        duplicate=duplicate,
        evidence=evidence,
        original=resolution.original,
        granularity=granularity,
        notes=tuple(notes),
    )


def _first_fault(
    trace: Trace, chain: Chain, citation: Citation, key: PassageKey | None, resolved: str, evidence: Evidence | None
) -> str:
    """The first fault before dates and labels; "" where there is none."""
    if key is None or evidence is None or resolved in UNRESOLVABLE:
        return resolved
    fault = _misquoted(citation, evidence.passage.text) if resolved not in ("hash_mismatch", "hash_missing") else ""
    if fault or resolved != "resolved":
        return fault or resolved
    if not evidence.visible_to(trace.principal):
        return "forbidden"
    if key in chain.extra:
        return ""
    packed = chain.packed.get(key)
    if packed is None:
        return "not_packed" if key in chain.retrieved else "not_retrieved"
    span, visible = citation.evidence_span, packed.visible
    if span is not None and visible is not None and not visible[0] <= span[0] <= span[1] <= visible[1]:
        return "outside_visible_span"
    return ""


def _misquoted(citation: Citation, text: str) -> str:
    span, quote = citation.evidence_span, citation.quote
    if span is not None and span[1] > len(text):
        return "span_out_of_range"
    if quote is not None and _folded(quote) not in _folded(text if span is None else text[slice(*span)]):
        return "quote_mismatch"
    return ""


def _folded(text: str) -> str:
    """Letter by letter, white space and line breaks aside: lines of a language without spaces join without one."""
    return "".join(unicodedata.normalize("NFC", text).split())


def _granularity(citation: Citation, evidence: Evidence) -> str:
    if citation.evidence_span is not None or citation.quote:
        return "span"
    for name in ("page", "section"):
        if evidence.place.get(name):
            return name
    return "chunk" if evidence.passage.span is not None else "source"
