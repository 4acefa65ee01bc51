"""The scores of one audited question, by the names they have in summary.json.

    validity      can what was cited be looked up, is it of the chain, of the date, of the reader
    support       do the citations of a claim support it
    provenance    did the ranking and the citations hold the gold passages
    answer        is the answer right, and was there evidence for it

One decision: what nobody judged is in no numerator and in no denominator; `coverage_any_lower` and `_upper` count it
both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ragx.citations.attribution_scores import attribution_scores, claim_posteriors, quadrants
from ragx.citations.audit import Audited, ClaimResult
from ragx.citations.gold import QUESTION
from ragx.citations.judging import NOT_JUDGED
from ragx.citations.metrics import trec_support
from ragx.citations.provenance_metrics import Fever, fever_score, kilt_recall_at, kilt_score
from ragx.citations.statuses import OUT_OF_CHAIN, OUT_OF_DATE, UNRESOLVABLE, UNTRUSTED, CitationResult
from ragx.citations.tally import AnswerScores, QuestionScores, Ratio, Score, mean
from ragx.kilt import r_precision
from ragx.records import PassageKey

RANKS = (1, 5, 10)


def score(audited: Audited, answer: AnswerScores, *, per_sentence: str = "best") -> QuestionScores:
    """What one question adds.

    Args:
        answer: how right its answer is.
        per_sentence: TREC's rule for a sentence with several citations: best, first or union.
    """
    trace, gold = audited.trace, audited.gold
    worthy = [claim for claim in audited.claims if claim.status != "exempt"]
    cited = [result for result in audited.citations if not result.duplicate]
    posteriors = claim_posteriors(audited)
    values: dict[str, Score] = {
        **_validity(audited, cited),
        **_support(worthy, cited, trace.answer.status, per_sentence),
        **_provenance(audited, answer),
        **_answer(audited, answer, worthy),
        **attribution_scores(audited, posteriors),
    }
    counted = [
        ("answer_status", trace.answer.status),
        *(("citation_status", result.status) for result in cited),
        *(("claim_status", claim.status) for claim in audited.claims),
        *(("granularity", result.granularity) for result in cited if result.granularity is not None),
        *(("judge", result.judge or NOT_JUDGED) for result in cited if result.label is not None),
        *(("stage", loss.stage) for loss in audited.losses),
        *(("drop_reason", reason) for loss in audited.losses for reason in loss.reasons),
        *(("finding", finding.code) for finding in audited.findings),
        *(("quadrant", name) for name in quadrants(audited)),
        *(("correct_and_supported", name) for name in _correct_and_supported(audited, worthy)),
        *(("marker_note", r.citation.note) for r in audited.citations if r.citation.note),
    ]
    category = trace.category or (gold.category if gold is not None else "")
    origins = sorted({result.citation.origin for result in cited})
    groups = [("model", str(trace.model.get("kind", ""))), ("task", trace.task), ("category", category)]
    groups += [("origin", origin) for origin in origins]
    outcome = None
    if gold is not None and trace.answer.status in ("answered", "abstained"):
        outcome = (gold.answerable, trace.answer.status == "answered")
    labels = {(claim_id, key): label for claim_id, key, label in audited.packed_labels}
    pairs = tuple(
        (posterior, labels[place] == "full")
        for place, posterior in posteriors.items()
        if labels.get(place, NOT_JUDGED) != NOT_JUDGED
    )
    return QuestionScores(trace.qid, tuple(g for g in groups if g[1]), values, tuple(counted), pairs, outcome)


def _validity(audited: Audited, cited: Sequence[CitationResult]) -> dict[str, Score]:
    n = len(cited)
    found = [result for result in cited if result.status not in (*UNRESOLVABLE, *UNTRUSTED)]
    return {
        "resolvable_rate": Ratio(len(found), n),
        "invalid_rate": Ratio(sum(not result.valid for result in cited), n),
        "in_chain_rate": Ratio(
            sum(r.status not in OUT_OF_CHAIN and r.status != "forbidden" for r in found), len(found)
        ),
        "stale_rate": Ratio(sum(result.status in OUT_OF_DATE for result in found), len(found)),
        "hash_verified_rate": Ratio(sum("hash_unrecorded" not in result.notes for result in found), len(found)),
        "duplicate_rate": Ratio(len(audited.citations) - n, len(audited.citations)),
        "forbidden": Ratio(sum(result.status == "forbidden" for result in cited), n),
        "well_formed_marker_rate": _well_formed(audited.citations),
    }


def _well_formed(citations: Iterable[CitationResult]) -> Ratio:
    inline = [result for result in citations if result.citation.origin == "inline"]
    return Ratio(sum(result.citation.note is None for result in inline), len(inline))


def _support(
    worthy: Sequence[ClaimResult], cited: Sequence[CitationResult], status: str, per_sentence: str
) -> dict[str, Score]:
    n = len(worthy)
    covered = [claim.covered for claim in worthy]
    strict = [claim.strict for claim in worthy]
    groups = [claim.group for claim in worthy if claim.group is not None]
    fractions = [claim.group_fraction for claim in worthy if claim.group_fraction is not None]
    precision = [value for claim in worthy for value in claim.precision]
    partial = [value for claim in worthy for value in claim.partial_precision]
    labels = [claim.labels for claim in worthy]
    together = [claim.together for claim in worthy]
    trec = trec_support(labels, together=together, per_sentence=per_sentence)
    return {
        "coverage_any": Ratio(covered.count(True), n - covered.count(None)),
        "coverage_any_lower": Ratio(covered.count(True), n),
        "coverage_any_upper": Ratio(covered.count(True) + covered.count(None), n),
        "strict_support_rate": Ratio(strict.count("supported"), n - strict.count(NOT_JUDGED)),
        "supported_rate": Ratio(
            sum(claim.status.startswith("supported") for claim in worthy),
            n - sum(claim.status == NOT_JUDGED for claim in worthy),
        ),
        "group_support_rate": Ratio(sum(groups), len(groups)),
        "group_fraction": Ratio(sum(fractions), len(fractions)),
        "cited_claim_rate": Ratio(sum(claim.status != "uncited" for claim in worthy), n),
        "alce_recall": mean([claim.recall for claim in worthy]),
        "alce_precision": mean(precision),
        "partial_aware_precision": mean(partial),
        **{f"trec_{name}": value for name, value in trec.items()},
    }


def _provenance(audited: Audited, answer: AnswerScores) -> dict[str, Score]:
    gold = audited.gold
    groups = gold.groups.get(QUESTION, ()) if gold is not None else ()
    if gold is not None and not groups:
        groups = tuple(group for _, sets in sorted(gold.groups.items()) for group in sets)
    if gold is None or not groups:
        return {}
    trace, losses = audited.trace, audited.losses
    ranked = [candidate.key for candidate in trace.retrieved]
    pages = [key.source for key in ranked]
    gold_pages = [frozenset(key.source for key in group) for group in groups]
    named = frozenset().union(*groups)
    page = r_precision(pages, gold_pages)
    titles = frozenset().union(*gold_pages)
    found: dict[str, Score] = {
        "rprec_page": page,
        "rprec_chunk": r_precision(ranked, groups),
        "group_recall_retrieved": mean([float(loss.in_retrieved) for loss in losses]),
        "group_recall_packed": mean([float(loss.in_packed) for loss in losses]),
        "group_recall_cited": mean([float(loss.in_cited) for loss in losses]),
        "kilt_exact_match": kilt_score(answer.exact_match, page),
        "kilt_f1": kilt_score(answer.f1, page),
        "kilt_accuracy": kilt_score(answer.accuracy, page),
        "gold_title_at_1": float(bool(titles & set(pages[:1]))),
        "gold_title_at_10": float(bool(titles & set(pages[:10]))),
    }
    for k in RANKS:
        found[f"kilt_recall_at_{k}"] = kilt_recall_at(ranked, groups, k)
        found[f"success_at_{k}"] = float(bool(named & set(ranked[:k])))
    if gold.label is not None:
        found.update(_fever(audited, groups))
    return found


def _fever(audited: Audited, groups: Sequence[frozenset[PassageKey]]) -> dict[str, Score]:
    gold = audited.gold
    assert gold is not None and gold.label is not None
    cited = [result.key for result in audited.citations if result.valid and result.key is not None]
    fever: Fever = fever_score(predicted=audited.trace.answer.text, label=gold.label, cited=cited, groups=groups)
    return {
        "fever_score": fever.strict,
        "fever_accuracy": fever.accuracy,
        "fever_precision": fever.precision,
        "fever_recall": fever.recall,
    }


def _answer(audited: Audited, answer: AnswerScores, worthy: Sequence[ClaimResult]) -> dict[str, Score]:
    gold, given = audited.gold, audited.trace.answer
    reason = None
    if gold is not None and gold.reason_code is not None and given.status == "abstained":
        reason = float(given.reason_code == gold.reason_code)
    return {
        "exact_match": answer.exact_match,
        "f1": answer.f1,
        "accuracy": answer.accuracy,
        "correct_without_evidence": answer.without_evidence,
        "answered_without_claims": float(given.status == "answered" and not worthy),
        "reason_accuracy": reason,
    }


def _correct_and_supported(audited: Audited, worthy: Sequence[ClaimResult]) -> Iterable[str]:
    if audited.correct is None or not worthy or any(claim.together is None for claim in worthy):
        return
    supported = all(claim.together for claim in worthy)
    yield f"{'correct' if audited.correct else 'wrong'}.{'supported' if supported else 'not_supported'}"
