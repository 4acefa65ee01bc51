"""The schema of the citation audit, apart from the others because it needs neither torch nor a model's settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from ragx.citations.from_predictions import CLAIM_MODES
from ragx.citations.metrics import PER_SENTENCE
from ragx.limits import all_at_least, at_least, file, files, folder, one_of, output


@dataclass
class LeastConfig:
    """Gates: the least value of a figure of summary.json; null asks nothing."""

    coverage_any: float | None = None
    coverage_any_lower: float | None = None
    strict_support_rate: float | None = None
    supported_rate: float | None = None
    group_support_rate: float | None = None
    cited_claim_rate: float | None = None
    alce_recall: float | None = None
    alce_precision: float | None = None
    partial_aware_precision: float | None = None
    resolvable_rate: float | None = None
    in_chain_rate: float | None = None
    exact_match: float | None = None
    rprec_page: float | None = None
    kilt_exact_match: float | None = None
    fever_score: float | None = None


@dataclass
class MostConfig:
    """Gates: the most citations or claims of a status, or findings; null asks nothing."""

    forbidden: int | None = None
    invalid: int | None = None
    stale: int | None = None
    not_yet_valid: int | None = None
    tombstoned: int | None = None
    hash_mismatch: int | None = None
    derived_only: int | None = None
    not_packed: int | None = None
    not_retrieved: int | None = None
    contradicted: int | None = None
    unsupported: int | None = None
    uncited: int | None = None
    not_judged: int | None = None
    findings: int | None = None
    independence: int | None = None
    n_error: int | None = None


@dataclass
class AuditCitations:
    """Schema of configs/audit_citations.yaml.

    Attributes:
        predictions: traces (`ragx-trace-v1`) or predictions of ragx, by their first line.
        corpus: the passages that may be cited, one or more files or embedded editions.
        gold: `ragx-gold-v1`, a question file, or embedded questions.
        judge, nli: who judges what nobody labelled; `frozen` is nobody. `nli` is the checkpoint of an entailment model.
        nli_labels: what its outputs mean, in order, where their names do not say.
        claims, task: how predictions are cut into claims.
        fail_under, max: gates.
        compare_with: the folder of an earlier audit.
        swapped: traces or predictions of the same questions over swapped evidence.
    """

    predictions: str = file()
    corpus: list[str] = files()  # noqa: RUF009 (a field, as the others are)
    gold: str | None = file()
    judge: str = one_of("frozen", "exact_span", "constraints", "lexical", "nli", "composite")
    nli: str | None = folder()
    nli_labels: list[str] = MISSING
    claims: str = one_of(*CLAIM_MODES)
    task: str = MISSING
    judge_packed: bool = MISSING
    trec_per_sentence: str = one_of(*PER_SENTENCE)
    lenient: bool = MISSING
    strict: bool = MISSING
    require_nonempty: bool = MISSING
    workers: int = at_least(1)
    report_questions: int = at_least(0)
    redaction_salt: str | None = MISSING
    seed: int = at_least(0)
    fail_under: LeastConfig = field(default_factory=LeastConfig)
    max: MostConfig = field(default_factory=MostConfig)
    compare_with: str | None = folder()
    swapped: str | None = file()
    output: str | None = folder()


@dataclass
class JudgeAgreement:
    """Schema of configs/judge_agreement.yaml."""

    claims: str = file()
    passages: str | None = file()
    tune_sets: list[str] = MISSING
    nli_checkpoint: str | None = folder()
    nli_labels: list[str] = MISSING
    output: str | None = output()


@dataclass
class Compose:
    """Schema of configs/compose.yaml."""

    documents: str | None = file()
    requests: str | None = file()
    output: str | None = folder()


@dataclass
class BenchmarkAudit:
    """Schema of configs/benchmark_audit.yaml.

    Attributes:
        sizes: answers of each run.
        workers: processes.
    """

    sizes: list[int] = all_at_least(1)  # noqa: RUF009 (a field, as the others are)
    workers: int = at_least(1)
    seed: int = at_least(0)


SCRIPTS = (AuditCitations, JudgeAgreement, Compose, BenchmarkAudit)
