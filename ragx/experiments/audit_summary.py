"""summary.json: every figure of an audit with its base and interval.

    {"metrics": {"validity": {"resolvable_rate": {value, n, n_null, ci95, level, cases}, ...}, "support": ..., ...},
     "counts": {...}, "abstention": {...}, "posterior": {...}, "by": {"model": {"rag_token": {...}}, ...}}

One decision: nothing is imputed. A question that has nothing to say about a figure is in its n_null; a figure without
any is null.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ragx.citations.metrics import abstention, auroc, expected_calibration_error
from ragx.citations.provenance_metrics import f1_of
from ragx.citations.rows import rounded
from ragx.citations.tally import QuestionScores, Ratio
from ragx.evaluation.significance import aggregate_ratio

SECTIONS = {
    "validity": (
        "resolvable_rate", "invalid_rate", "in_chain_rate", "stale_rate", "hash_verified_rate", "duplicate_rate",
        "well_formed_marker_rate",
    ),
    "support": (
        "coverage_any", "coverage_any_lower", "coverage_any_upper", "strict_support_rate", "supported_rate",
        "group_support_rate", "group_fraction", "cited_claim_rate",
    ),
    "precision": (
        "alce_recall", "alce_precision", "partial_aware_precision", "trec_weighted_precision", "trec_weighted_recall",
        "trec_strict_precision", "trec_strict_recall",
    ),
    "provenance": (
        "rprec_page", "rprec_chunk", "group_recall_retrieved", "group_recall_packed", "group_recall_cited",
        "kilt_recall_at_1", "kilt_recall_at_5", "kilt_recall_at_10", "success_at_1", "success_at_5", "success_at_10",
        "gold_title_at_1", "gold_title_at_10", "kilt_exact_match", "kilt_f1", "kilt_accuracy", "fever_score",
        "fever_accuracy", "fever_precision", "fever_recall",
    ),
    "answer": (
        "exact_match", "f1", "accuracy", "correct_without_evidence", "answered_without_claims", "reason_accuracy",
    ),
    "attribution": (
        "diffuse_rate", "trivial_rate", "incomplete_rate", "posterior_entropy", "gain_sign_agreement",
    ),
}  # fmt: skip
HEADLINE = (
    "coverage_any", "strict_support_rate", "supported_rate", "alce_recall", "alce_precision", "resolvable_rate",
    "exact_match",
)  # fmt: skip
MEANING = {
    "coverage_any": "claims with one valid citation that fully supports them, of those judged",
    "coverage_any_lower": "the same, counting what was not judged as unsupported",
    "coverage_any_upper": "the same, counting what was not judged as supported",
    "strict_support_rate": "claims whose citations are all valid and together support them, of those judged",
    "supported_rate": "claims that their valid citations together support, of those judged",
    "alce_recall": "sentences that their citations together support, a mean over answers",
    "alce_precision": "citations that such a support needs or that suffice alone, a mean over answers",
    "resolvable_rate": "citations that can be looked up with their text as it was recorded",
    "exact_match": "answers equal to an accepted one",
}


NAMES = tuple(name for names in SECTIONS.values() for name in names)
_PLACE = {name: i for i, name in enumerate(NAMES)}
_shared: dict[tuple[str, str], tuple[str, str]] = {}


class Addend(NamedTuple):
    """What one question adds to the figures, small enough to send from process to process.

    Attributes:
        groups: what the question belongs to: (table, name).
        numbers: hits and cases of every name in `NAMES`, float64; 0 and 0 where it has nothing to say. A score of a
            question is hits of one case.
        micro: bit i is set where it gave the figure `NAMES[i]` as a ratio.
        counted: what happened in it, with how often.
        pairs: (posterior, whether the passage supports the claim), of judged passages.
        outcome: (answerable, answered); None without gold data.
    """

    groups: tuple[tuple[str, str], ...]
    numbers: bytes
    micro: int
    counted: tuple[tuple[tuple[str, str], int], ...]
    pairs: tuple[tuple[float, bool], ...]
    outcome: tuple[bool, bool] | None


def addend(question: QuestionScores) -> Addend:
    """The scores of one question in the form that figures add up."""
    numbers, micro = array("d", bytes(16 * len(NAMES))), 0
    for name, value in question.values.items():
        place = _PLACE.get(name)
        if place is None or value is None:
            continue
        if isinstance(value, Ratio):
            micro |= 1 << place
            numbers[2 * place], numbers[2 * place + 1] = value
        else:
            numbers[2 * place], numbers[2 * place + 1] = value, 1.0
    # One object for equal pairs, which a pickle of many questions then holds once.
    counted = tuple((_shared.setdefault(pair, pair), n) for pair, n in Counter(question.counted).items())
    return Addend(question.groups, numbers.tobytes(), micro, counted, question.pairs, question.outcome)


class Figures:
    """What all questions add up to; takes in one question at a time and keeps two numbers a figure of it."""

    def __init__(self) -> None:
        self.n_questions = 0
        self._numbers = array("d")
        self._micro = 0
        self._members: dict[tuple[str, str], array[int]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._outcomes: Counter[tuple[bool, bool]] = Counter()
        self._posteriors, self._supporting = array("d"), array("b")

    def add(self, question: Addend) -> None:
        """Takes in one question."""
        self._numbers.frombytes(question.numbers)
        self._micro |= question.micro
        for group in question.groups:
            self._members.setdefault(group, array("q")).append(self.n_questions)
        for pair, n in question.counted:
            self._counts[pair] += n
        if question.outcome is not None:
            self._outcomes[question.outcome] += 1
        for posterior, supporting in question.pairs:
            self._posteriors.append(posterior)
            self._supporting.append(supporting)
        self.n_questions += 1

    def summary(self, *, seed: int) -> dict[str, Any]:
        """Every figure; the order in which questions came makes no difference."""
        metrics = {section: {name: self._metric(name, seed) for name in names} for section, names in SECTIONS.items()}
        provenance = metrics["provenance"]
        fever_f1 = f1_of(provenance["fever_precision"]["value"], provenance["fever_recall"]["value"])
        counts: dict[str, dict[str, int]] = {}
        for (table, name), count in sorted(self._counts.items()):
            counts.setdefault(table, {})[name] = count
        scored = sorted(zip(self._posteriors, map(bool, self._supporting), strict=True))
        outcomes = abstention(self._outcomes)
        return {
            "n_questions": self.n_questions,
            "n_claims": sum(counts.get("claim_status", {}).values()),
            "n_citations": sum(counts.get("citation_status", {}).values()),
            "metrics": metrics,
            "counts": counts,
            "fever_evidence_f1": rounded(fever_f1),
            "abstention": {
                name: rounded(value) if isinstance(value, float) else value for name, value in outcomes.items()
            },
            "posterior": {
                "auroc": rounded(auroc(scored)),
                "expected_calibration_error": rounded(expected_calibration_error(scored)),
                "n": len(scored),
            },
            "by": self._by(seed),
        }

    def _metric(self, name: str, seed: int, rows: Sequence[int] | None = None) -> dict[str, Any]:
        """One figure: micro where questions give ratios, macro where they give numbers."""
        place = _PLACE[name]
        pairs = np.asarray(self._numbers).reshape(-1, len(NAMES), 2)[:, place]
        pairs = pairs if rows is None else pairs[np.asarray(rows)]
        found = aggregate_ratio(pairs, seed=seed)
        return {
            "value": rounded(found.value),
            "n": found.n,
            "n_null": found.n_null,
            "ci95": None if found.ci95 is None else [rounded(bound) for bound in found.ci95],
            "level": "micro" if self._micro >> place & 1 else "macro",
            "cases": int(pairs[:, 1].sum()),
        }

    def _by(self, seed: int) -> dict[str, Any]:
        """The headline figures of each model, task, category and origin of citations."""
        table: dict[str, dict[str, Any]] = {}
        for (kind, name), rows in sorted(self._members.items()):
            row = {headline: self._metric(headline, seed, rows) for headline in HEADLINE}
            table.setdefault(kind, {})[name] = {"n_questions": len(rows), **row}
        return table
