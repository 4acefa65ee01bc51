"""How well the model's own attribution names the passages that support its claims.

    attributed x supported     of every packed passage that was judged: a passage that the model used and that supports,
                               one that supports and was not used, one that was used and does not support, neither

One decision: posteriors come from the numbers of the teacher-forced pass where the trace has them, not from what was
written beside a citation, so that passages that were not cited have one too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ragx.citations.audit import Audited
from ragx.citations.judging import NOT_JUDGED
from ragx.citations.posteriors import entropy, span_gain, span_posterior, tokens_of
from ragx.citations.tally import Ratio, Score, mean
from ragx.records import PassageKey

Posteriors = Mapping[tuple[str, PassageKey], float]


def claim_posteriors(audited: Audited) -> Posteriors:
    """p(z|x, claim) of every packed passage, computed again where the trace has the numbers, else as recorded."""
    trace, scores = audited.trace, audited.trace.attribution
    if scores is None or scores.status == "incomplete":
        return {
            (result.citation.claim_id, result.key): result.citation.posterior
            for result in audited.citations
            if result.key is not None and result.citation.posterior is not None and not result.duplicate
        }
    kind = str(trace.model.get("kind", ""))
    found: dict[tuple[str, PassageKey], float] = {}
    for claim in trace.claims:
        if claim.worthy:
            posterior = span_posterior(scores, tokens_of(scores, claim.span, kind=kind))
            found.update(
                ((claim.claim_id, packed.key), float(r)) for packed, r in zip(trace.packed, posterior, strict=True)
            )
    return found


def attribution_scores(audited: Audited, posteriors: Posteriors) -> dict[str, Score]:
    """Rates and means of one question; empty where the model gave no attribution."""
    trace, scores = audited.trace, audited.trace.attribution
    if scores is None:
        return {}
    kind = str(trace.model.get("kind", ""))
    worthy = [claim for claim in audited.claims if claim.status != "exempt"]
    place = {packed.key: i for i, packed in enumerate(trace.packed)}
    agree = total = 0
    if scores.status != "incomplete":
        spans = {claim.claim_id: claim.span for claim in trace.claims}
        for result in audited.citations:
            if result.citation.delta is not None and result.key in place and not result.duplicate:
                tokens = tokens_of(scores, spans[result.citation.claim_id], kind=kind)
                gain = span_gain(scores, tokens, kind=kind)
                total += gain is not None
                agree += gain is not None and (gain[place[result.key]] > 0) == (result.citation.delta > 0)
    entropies = [
        entropy([posteriors[claim.claim.claim_id, packed.key] for packed in trace.packed])
        for claim in worthy
        if trace.packed and (claim.claim.claim_id, trace.packed[0].key) in posteriors
    ]
    average = mean(entropies)
    return {
        "diffuse_rate": Ratio(sum(claim.reason == "diffuse_posterior" for claim in worthy), len(worthy)),
        "trivial_rate": Ratio(len(worthy) if len(trace.packed) == 1 else 0, len(worthy)),
        "incomplete_rate": Ratio(len(worthy) if scores.status == "incomplete" else 0, len(worthy)),
        "posterior_entropy": None if average is None else round(average, 3),
        "gain_sign_agreement": Ratio(agree, total),
    }


def quadrants(audited: Audited) -> Iterable[str]:
    """attributed x supported of every packed passage for every claim, where that was judged."""
    attributed = {
        (result.citation.claim_id, result.key) for result in audited.citations if result.citation.origin == "posterior"
    }
    if not attributed and audited.trace.attribution is None:
        return
    for claim_id, key, label in audited.packed_labels:
        if label != NOT_JUDGED:
            left = "attributed" if (claim_id, key) in attributed else "not_attributed"
            yield f"{left}.{'supported' if label == 'full' else 'not_supported'}"
