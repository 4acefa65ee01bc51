"""The audit of one question, claim by claim.

    exempt | uncited | invalid_citation | supported | supported_with_conflict | contradicted | partially_supported
      | not_judged | unsupported

Two readings of a claim with good and bad citations stand side by side: `covered` (one valid, fully supporting citation
is enough) and `strict` (one invalid citation spoils it). One decision: the status itself looks at the valid citations,
all of them together first, and is `invalid_citation` only where none is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragx.citations.evidence import EvidenceStore
from ragx.citations.gold import Gold
from ragx.citations.invariants import Finding, findings
from ragx.citations.judging import NOT_JUDGED, Support
from ragx.citations.metrics import alce_precision, alce_recall, fraction_of_group, partial_aware_precision
from ragx.citations.stages import StageLoss, stage_losses
from ragx.citations.statuses import Chain, CitationResult, audit_citations
from ragx.citations.trace_records import Claim, Trace
from ragx.records import PassageKey

STATUSES = (
    "exempt", "uncited", "invalid_citation", "contradicted", "supported", "supported_with_conflict",
    "partially_supported", "unsupported", NOT_JUDGED,
)  # fmt: skip


class ClaimResult(NamedTuple):
    """What the audit says of one claim.

    Attributes:
        claim: as it stands in the trace.
        status: of `STATUSES`.
        strict: `supported`, `unsupported`, `not_judged` or `invalid_citation`.
        reason: why an `uncited` claim has no citation, where the trace says so.
        covered: whether one valid citation fully supports it by itself; None where that was not judged.
        together: whether its valid citations together do; None where that was not judged.
        group: whether they hold a sufficient group; None where no group is known.
        group_fraction: the largest share of a group that they hold.
        conflicts: passages, cited or packed, that contradict a claim that has support.
        recall, precision: ALCE's, per claim and per citation; invalid ones last.
        partial_precision: Liu's, per citation.
        labels: of its citations in order, duplicates removed; the status where a citation is invalid.
    """

    claim: Claim
    status: str
    strict: str = "unsupported"
    reason: str | None = None
    covered: bool | None = False
    together: bool | None = False
    group: bool | None = None
    group_fraction: float | None = None
    conflicts: tuple[PassageKey, ...] = ()
    recall: float | None = 0.0
    precision: tuple[float | None, ...] = ()
    partial_precision: tuple[float | None, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audited:
    """What the audit says of one question.

    Attributes:
        trace, gold: what was audited.
        correct: whether the answer is an accepted one; None where that is not known.
        claims, citations: in the order of the trace.
        losses: where the evidence was lost, for what gold groups are known.
        findings: invariants that do not hold.
        packed_labels: (worthy claim, packed passage, label) where that was judged; empty where it was not asked.
    """

    trace: Trace
    gold: Gold | None
    correct: bool | None
    claims: tuple[ClaimResult, ...]
    citations: tuple[CitationResult, ...]
    losses: tuple[StageLoss, ...]
    findings: tuple[Finding, ...]
    packed_labels: tuple[tuple[str, PassageKey, str], ...]


def audit_trace(
    trace: Trace,
    gold: Gold | None,
    store: EvidenceStore,
    support: Support,
    *,
    correct: bool | None = None,
    judge_packed: bool = True,
) -> Audited:
    """Audits one question; the same input gives the same result whatever else is audited.

    Args:
        support: of this question.
        correct: whether the answer is an accepted one.
        judge_packed: whether passages that were packed and not cited are judged too: contradictions among them, and
            support that was there and not attributed, are seen only then.
    """
    chain = Chain.of(trace)
    cited = audit_citations(trace, chain, store, support)
    by_claim: dict[str, list[CitationResult]] = {claim.claim_id: [] for claim in trace.claims}
    for result in cited:
        if not result.duplicate:
            by_claim[result.citation.claim_id].append(result)
    labels: list[tuple[str, PassageKey, str]] = []
    if judge_packed:
        readable = [key for key in chain.packed if _is_readable(key, trace, store)]
        worthy = [claim for claim in trace.claims if claim.worthy]
        labels = support.judged(worthy, readable)
    against = [(claim_id, key) for claim_id, key, label in labels if label == "contradict"]
    return Audited(
        trace=trace,
        gold=gold,
        correct=correct,
        claims=tuple(_audit_claim(claim, by_claim[claim.claim_id], against, trace, support) for claim in trace.claims),
        citations=tuple(cited),
        losses=tuple(stage_losses(trace, cited, gold, store)) if gold is not None and gold.answerable else (),
        findings=tuple(findings(trace, cited, store, gold, judge=support.judge_id)),
        packed_labels=tuple(labels),
    )


def _is_readable(key: PassageKey, trace: Trace, store: EvidenceStore) -> bool:
    resolution = store.resolve(key)
    evidence = resolution.evidence if resolution.status == "resolved" else None
    return evidence is not None and evidence.visible_to(trace.principal)


def _audit_claim(
    claim: Claim,
    cited: Sequence[CitationResult],
    against: Sequence[tuple[str, PassageKey]],
    trace: Trace,
    support: Support,
) -> ClaimResult:
    valid = [result for result in cited if result.valid]
    n_invalid = len(cited) - len(valid)
    keys = [result.key for result in valid if result.key is not None]
    labels = [result.status for result in valid]
    every = frozenset(keys)
    together = support.enough(claim, every) if keys else False
    groups = support.groups(claim)
    fraction = fraction_of_group(groups, every)
    against_it = [r.key for r in valid if r.status == "contradict" and r.key is not None]
    against_it += [key for claim_id, key in against if claim_id == claim.claim_id and key not in against_it]
    status = _status(claim, cited, labels, together, bool(fraction), bool(against_it))

    def enough(some: frozenset[PassageKey]) -> bool | None:
        return support.enough(claim, some)

    covered = True if "full" in labels else None if NOT_JUDGED in labels else False
    strict = {True: "supported", False: "unsupported", None: NOT_JUDGED}[together]
    return ClaimResult(
        claim=claim,
        status=status,
        strict="invalid_citation" if n_invalid else strict,
        reason=_uncited_reason(trace) if status == "uncited" else None,
        covered=covered,
        together=together,
        group=any(group <= every for group in groups) if groups else None,
        group_fraction=fraction,
        conflicts=tuple(against_it) if together or status == "contradicted" else (),
        recall=alce_recall(keys, n_invalid=n_invalid, enough=enough),
        precision=tuple(alce_precision(keys, n_invalid=n_invalid, enough=enough)),
        partial_precision=tuple(partial_aware_precision(labels, n_invalid=n_invalid, together=together)),
        labels=tuple(result.status for result in cited),
    )


def _status(
    claim: Claim,
    cited: Sequence[CitationResult],
    labels: Sequence[str],
    together: bool | None,
    some_of_a_group: bool,
    contradicted: bool,
) -> str:
    if not claim.worthy:
        return "exempt"
    if not cited:
        return "uncited"
    if not labels:
        return "invalid_citation"
    if together:
        return "supported_with_conflict" if contradicted else "supported"
    if "contradict" in labels:
        return "contradicted"
    if "partial" in labels or some_of_a_group:
        return "partially_supported"
    return NOT_JUDGED if together is None or NOT_JUDGED in labels else "unsupported"


def _uncited_reason(trace: Trace) -> str | None:
    scores = trace.attribution
    if scores is None:
        return None
    if scores.status == "incomplete":
        return "attribution_incomplete"
    return "trivial_attribution" if len(trace.packed) == 1 else "diffuse_posterior"
