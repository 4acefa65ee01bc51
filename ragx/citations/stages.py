"""Where the evidence of a claim was lost.

    not_in_corpus -> retrieval_miss -> packing_miss -> visibility_miss -> citation_miss -> ok

One decision: a claim is as far as the sufficient group that got furthest, since one whole group is enough; a half of
each of two groups is nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ragx.citations.evidence import EvidenceStore
from ragx.citations.gold import QUESTION, Gold, Keys
from ragx.citations.statuses import CitationResult
from ragx.citations.trace_records import Trace
from ragx.records import PassageKey

STAGES = ("not_in_corpus", "retrieval_miss", "packing_miss", "visibility_miss", "citation_miss", "ok")


class StageLoss(NamedTuple):
    """What became of the evidence of one gold claim.

    Attributes:
        claim_id: `*` for the question as a whole.
        stage: of `STAGES`, where the furthest group was lost.
        reasons: why passages of that group were dropped, at `packing_miss`.
        in_retrieved, in_packed, in_cited: whether a whole group is in C, S and R.
    """

    claim_id: str
    stage: str
    reasons: tuple[str, ...]
    in_retrieved: bool
    in_packed: bool
    in_cited: bool


def stage_losses(trace: Trace, cited: Collection[CitationResult], gold: Gold, store: EvidenceStore) -> list[StageLoss]:
    """One row for each claim, or the question, whose sufficient groups are known."""
    if not gold.groups:
        return []
    retrieved = {candidate.key for candidate in trace.retrieved} | set(trace.extra_retrieval)
    packed = {row.key for row in trace.packed} | set(trace.extra_retrieval)
    seen = {key for key in packed if _is_seen(trace, gold, key)}
    losses = []
    for claim_id in sorted(gold.groups):
        groups = gold.groups[claim_id]
        own = {r.key for r in cited if r.valid and r.key is not None and claim_id in (QUESTION, r.citation.claim_id)}
        steps = [(any(group <= reached for group in groups), reached) for reached in (retrieved, packed, seen, own)]
        in_corpus = [group for group in groups if all(key in store for key in group)]
        whole = [flag for flag, _ in steps]
        stage = next((name for name, flag in zip(STAGES[1:], whole, strict=False) if not flag), "ok")
        if not in_corpus and not whole[0]:
            stage = "not_in_corpus"
        reasons = _reasons(trace, groups, retrieved, packed) if stage == "packing_miss" else ()
        losses.append(StageLoss(claim_id, stage, reasons, whole[0], whole[1], whole[3]))
    return losses


def _is_seen(trace: Trace, gold: Gold, key: PassageKey) -> bool:
    """Whether the part that supports, or any part where that is not known, reached the generator."""
    row = next((row for row in trace.packed if row.key == key), None)
    if row is None or row.visible is None:
        return True
    span = gold.spans.get(key)
    return row.visible[0] < row.visible[1] if span is None else row.visible[0] <= span[0] <= span[1] <= row.visible[1]


def _reasons(
    trace: Trace, groups: tuple[Keys, ...], retrieved: set[PassageKey], packed: set[PassageKey]
) -> tuple[str, ...]:
    """Why the group that was retrieved whole and lost the least is not whole any more."""
    lost = min((group - packed for group in groups if group <= retrieved), key=lambda keys: (len(keys), sorted(keys)))
    by_key = {row.key: row.reason for row in trace.dropped if row.reason != "duplicate"}
    return tuple(sorted({by_key.get(key, "unexplained") for key in lost}))
