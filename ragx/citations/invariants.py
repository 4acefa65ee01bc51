"""What must hold in every trace, I1 to I10; what does not is a finding, not an exception.

    I1 R <= S      I2 S <= C and permitted extra     I3 every key resolves      I4 no key twice in C or S
    I5 priors sum to 1      I6 tokens within the budget, B = W - F - O      I7 numbers are made on the final S
    I8 every key of C less S was dropped for one reason      I9 claims inside the answer, apart from each other
    I10 recorded posteriors equal those computed again

Beside them: `mixed_lineage` (passages of two parsers, chunkers, embeddings or indexes in one input) and `independence`
(labels by the system under test, or frozen after the run began). One decision: a finding says in what it was found, so
that it can be looked up; whether it fails the run is a gate's business.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ragx.citations.evidence import EvidenceStore
from ragx.citations.gold import Gold
from ragx.citations.posteriors import span_posterior, tokens_of
from ragx.citations.statuses import OUT_OF_CHAIN, UNRESOLVABLE, CitationResult
from ragx.citations.trace_records import Trace

TOLERANCE = 1e-4
CODES = (*(f"I{number}" for number in range(1, 11)), "mixed_lineage", "independence")


class Finding(NamedTuple):
    """One thing that is wrong with the record of a question.

    Attributes:
        code: I1 to I10, `mixed_lineage` or `independence`.
        detail: a short name of what is wrong.
        items: what it was found in: keys, numbers, claim ids.
    """

    code: str
    detail: str
    items: tuple[object, ...]


def findings(
    trace: Trace, cited: Sequence[CitationResult], store: EvidenceStore, gold: Gold | None, *, judge: str = ""
) -> list[Finding]:
    """Everything that does not hold, in a fixed order; `judge` is the id of the support judge."""
    return [
        *_chain(trace, cited),
        *_identity(trace, cited, store),
        *_numbers(trace),
        *_reference_map(trace, cited),
        *_dropped(trace),
        *_claim_spans(trace),
        *_posteriors(trace),
        *_lineage(trace, store),
        *_independence(trace, gold, judge),
    ]


def _chain(trace: Trace, cited: Sequence[CitationResult]) -> Iterator[Finding]:
    loose = [r.key for r in cited if r.key is not None and r.status in OUT_OF_CHAIN[:2]]
    if loose:
        yield Finding("I1", "cited_but_not_packed", tuple(dict.fromkeys(loose)))
    allowed = {candidate.key for candidate in trace.retrieved} | set(trace.extra_retrieval)
    loose = [packed.key for packed in trace.packed if packed.key not in allowed]
    if loose:
        yield Finding("I2", "packed_but_not_retrieved", tuple(dict.fromkeys(loose)))


def _identity(trace: Trace, cited: Sequence[CitationResult], store: EvidenceStore) -> Iterator[Finding]:
    retrieved = [candidate.key for candidate in trace.retrieved]
    packed = [row.key for row in trace.packed]
    every = {**dict.fromkeys(retrieved), **dict.fromkeys(packed)}
    unresolved = [key for key in every if store.resolve(key).status in UNRESOLVABLE]
    for result in cited:
        named = result.citation.key if result.key is None else result.key
        if result.status in UNRESOLVABLE and named is not None and named not in unresolved:
            unresolved.append(named)
    if unresolved:
        yield Finding("I3", "does_not_resolve", tuple(unresolved))
    for name, keys in (("C", retrieved), ("S", packed)):
        if len(set(keys)) < len(keys):
            explained = {row.key for row in trace.dropped if row.reason == "duplicate"} if name == "C" else set()
            twice = [key for key, count in Counter(keys).items() if count > 1 and key not in explained]
            if twice:
                yield Finding("I4", f"twice_in_{name}", tuple(twice))


def _numbers(trace: Trace) -> Iterator[Finding]:
    priors = [packed.prior for packed in trace.packed if packed.prior is not None]
    if priors and abs(math.fsum(priors) - 1) > TOLERANCE:
        yield Finding("I5", "priors_do_not_sum_to_1", (round(math.fsum(priors), 6),))
    budget = trace.budget
    if budget is None:
        return
    used = sum(packed.tokens or 0 for packed in trace.packed)
    if budget.budget != budget.window - budget.fixed - budget.reserve:
        yield Finding("I6", "budget_is_not_window_less_fixed_less_reserve", (budget.budget,))
    if used > budget.budget:
        yield Finding("I6", "over_budget", (used, budget.budget))
    elif budget.remaining != budget.budget - used:
        yield Finding("I6", "remaining_is_wrong", (budget.remaining, budget.budget - used))


def _reference_map(trace: Trace, cited: Sequence[CitationResult]) -> Iterator[Finding]:
    refs = sorted(packed.ref for packed in trace.packed)
    if refs != list(range(1, len(refs) + 1)):
        yield Finding("I7", "reference_map_stale", tuple(refs))
    by_ref = {packed.ref: packed.key for packed in trace.packed}
    stale = [
        (r.citation.ref, r.key)
        for r in cited
        if r.citation.key is not None and r.citation.ref is not None and by_ref.get(r.citation.ref) != r.key
    ]
    if stale:
        yield Finding("I7", "reference_map_stale", tuple(stale))


def _dropped(trace: Trace) -> Iterator[Finding]:
    packed = {row.key for row in trace.packed}
    left_out = [row.key for row in trace.retrieved if row.key not in packed]
    reasons = Counter(row.key for row in trace.dropped if row.reason != "duplicate") if left_out else Counter()
    unexplained = [key for key in dict.fromkeys(left_out) if reasons[key] != 1]
    if unexplained:
        yield Finding("I8", "dropped_without_one_reason", tuple(unexplained))


def _claim_spans(trace: Trace) -> Iterator[Finding]:
    spans = sorted((claim.span, claim.claim_id) for claim in trace.claims if claim.span is not None)
    outside = [name for span, name in spans if span[1] > len(trace.answer.text)]
    if outside:
        yield Finding("I9", "claim_outside_answer", tuple(outside))
    crossing = [later for (before, _), (after, later) in pairwise(spans) if after[0] < before[1]]
    if crossing:
        yield Finding("I9", "claims_overlap", tuple(crossing))


def _posteriors(trace: Trace) -> Iterator[Finding]:
    scores = trace.attribution
    recorded = [c for c in trace.citations if c.origin == "posterior" and c.posterior is not None]
    if scores is None or scores.status == "incomplete":
        if scores is not None and recorded:
            yield Finding("I10", "posterior_without_all_pairs", tuple(c.claim_id for c in recorded))
        return
    claims = {claim.claim_id: claim for claim in trace.claims}
    place = {packed.key: i for i, packed in enumerate(trace.packed)}
    kind = str(trace.model.get("kind", "rag_token"))
    wrong = []
    for citation in recorded:
        if citation.key in place and citation.posterior is not None:
            tokens = tokens_of(scores, claims[citation.claim_id].span, kind=kind)
            if abs(span_posterior(scores, tokens)[place[citation.key]] - citation.posterior) > TOLERANCE:
                wrong.append((citation.claim_id, citation.key))
    if wrong:
        yield Finding("I10", "posterior_is_not_what_it_was_computed_from", tuple(wrong))


def _lineage(trace: Trace, store: EvidenceStore) -> Iterator[Finding]:
    found: dict[str, set[str]] = {}
    for packed in trace.packed:
        evidence = store.get(packed.key)
        for name, version in evidence.lineage.items() if evidence is not None else ():
            if name != "checksum":
                found.setdefault(name, set()).add(str(version))
    mixed = sorted(name for name, versions in found.items() if len(versions) > 1)
    if mixed:
        yield Finding("mixed_lineage", ",".join(mixed), tuple(sorted(v for name in mixed for v in found[name])))


def _independence(trace: Trace, gold: Gold | None, judge: str) -> Iterator[Finding]:
    """The system under test judged or labelled its own answers, or labels were frozen after its run began."""
    systems = {str(trace.model[name]) for name in ("id", "kind", "ckpt", "weights") if trace.model.get(name)}
    if judge in systems:
        yield Finding("independence", "judge_is_the_system", (judge,))
    if gold is None:
        return
    if gold.labeller and gold.labeller in systems:
        yield Finding("independence", "labeller_is_the_system", (gold.labeller,))
    started = trace.model.get("started_at")
    if gold.frozen_at is not None and started is not None and gold.frozen_at > str(started):
        yield Finding("independence", "frozen_after_the_run_began", (gold.frozen_at, str(started)))
