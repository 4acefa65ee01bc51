"""The citation audit of a run, from its files alone: no model, no index, no torch but for a judge.

    lines of input -> audited one by one, by any number of processes -> sorted by question -> summary, gates, report

    claims.jsonl  citations.jsonl  stages.jsonl  summary.json  summary.md  report.html  manifest.json  (errors.jsonl)

One decision: the folder appears whole or not at all, and the same input gives the same bytes, whatever the order of its
lines and however many processes share the work.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragx import atomic
from ragx.citations.claims import SPLITTER, SPLITTER_VERSION
from ragx.citations.evidence import EvidenceStore
from ragx.citations.redaction import Redaction, salt_of
from ragx.citations.report import render_html, render_markdown
from ragx.citations.report_views import question_view
from ragx.citations.rows import to_line
from ragx.citations.support import build_judge
from ragx.errors import DataError
from ragx.experiments.audit_gates import Gate, check_gates
from ragx.experiments.audit_inputs import digest, parser_of, read_corpus, read_dates, read_gold
from ragx.experiments.audit_pairing import check_some_meet
from ragx.experiments.audit_reading import Question, Spool, read_all, uncollected
from ragx.experiments.audit_summary import HEADLINE, MEANING, Figures
from ragx.experiments.audit_worker import Auditor
from ragx.jsonl import read_lines
from ragx.schema_audit import AuditCitations, LeastConfig, MostConfig

SCHEMA = "ragx-audit-v1"
FROZEN = "frozen"


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Attributes:
        summary: as in summary.json.
        gates: those asked for, with their outcome.
        directory: where everything was written.
    """

    summary: Mapping[str, Any]
    gates: Sequence[Gate]
    directory: Path

    @property
    def passed(self) -> bool:
        """Whether every gate was passed."""
        return all(gate.passed for gate in self.gates)


def run_audit(config: AuditCitations, directory: str | Path) -> AuditResult:
    """Audits a file of traces or predictions and writes the report's folder.

    Raises:
        DataError: naming file, line and field: input that cannot be read (with `lenient` only what is not one record),
            a qid or claim id that stands twice, or, with `require_nonempty`, no question at all.
        ConfigError: a corpus, gold source or judge that does not exist.
        RagxError: two passages of one identity, or gold of other questions than were answered.
    """
    with uncollected():
        auditor = _build(config)
    with atomic.directory(directory) as folder, Spool() as spool:
        return _audit(config, auditor, spool, folder, Path(directory))


def _audit(config: AuditCitations, auditor: Auditor, spool: Spool, folder: Path, directory: Path) -> AuditResult:
    """Audits into `folder`, which will be `directory`."""
    figures = Figures()
    read = read_all(auditor, spool, figures, workers=config.workers, lenient=config.lenient)
    if not read.questions and config.require_nonempty:
        raise DataError("file must hold at least one question, got none. Give the output of a run", path=auditor.path)
    check_some_meet(auditor.golds, [question.qid for question in read.questions])
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "n_error": len(read.errors),
        **figures.summary(seed=config.seed),
        "meaning": MEANING,
        "judge": config.judge if auditor.judge is None else auditor.judge.id,
        "warnings": _warnings(config, len(read.questions), len(read.errors)),
    }
    gates = check_gates(summary, fail_under=_asked(config.fail_under), maximum=_asked(config.max), strict=config.strict)
    summary["gates"] = [gate._asdict() for gate in gates]
    spool.write_sorted(folder, read.questions)
    if read.errors:
        rows = sorted((error.line or 0, error.field, str(error)) for error in read.errors)
        _write(folder / "errors.jsonl", "".join(to_line({"line": n, "field": f, "error": e}) for n, f, e in rows))
    _write(folder / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    _write(folder / "summary.md", render_markdown(summary))
    views = _views(config, auditor, read.questions)
    _write(folder / "report.html", render_html(summary, views, headline=HEADLINE))
    _write(folder / "manifest.json", json.dumps(_manifest(config, summary["judge"]), indent=1) + "\n")
    return AuditResult(summary, gates, directory)


def _build(config: AuditCitations) -> Auditor:
    store = read_corpus(config.corpus)
    judge = (
        None if config.judge == FROZEN else build_judge(config.judge, checkpoint=config.nli, labels=config.nli_labels)
    )
    salt = config.redaction_salt.encode() if config.redaction_salt else salt_of(_restricted_texts(store))
    return Auditor(
        path=Path(config.predictions),
        parse=parser_of(config.predictions, dates=read_dates(config.gold), claims=config.claims, task=config.task),
        store=store,
        golds=read_gold(config.gold),
        judge=judge,
        judge_packed=config.judge_packed,
        per_sentence=config.trec_per_sentence,
        salt=salt,
    )


def _restricted_texts(store: EvidenceStore) -> Iterator[str]:
    return (json.dumps([*item.key, item.passage.text]) for item in store if item.passage.acl)


def _views(config: AuditCitations, auditor: Auditor, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """The questions that the page shows, gravest first; their lines are read and audited once more."""
    ordered = sorted(questions, key=lambda question: (-question.concern, question.qid))[: config.report_questions]
    place = {question.line: i for i, question in enumerate(ordered)}
    views: dict[int, dict[str, Any]] = {}
    for line, raw in read_lines(config.predictions) if place else ():
        if line in place:
            audited, _ = auditor.audited(line, raw)
            redaction = Redaction(audited, auditor.store, salt=auditor.salt)
            views[place[line]] = question_view(audited, redaction, auditor.store, anchor=f"q{place[line] + 1}")
    return [views[i] for i in sorted(views)]


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        handle.write(text)


def _asked(bounds: LeastConfig | MostConfig) -> dict[str, float]:
    return {name: value for name, value in asdict(bounds).items() if value is not None}


def _warnings(config: AuditCitations, n_questions: int, n_errors: int) -> list[str]:
    warnings = []
    if not n_questions:
        warnings.append("There is no question in the file, so every figure is without a value.")
    if n_errors:
        warnings.append(f"{n_errors} lines could not be read and are in no figure; errors.jsonl lists them.")
    if config.gold is None:
        warnings.append("There are no gold data, so figures on provenance, answers and abstention have no value.")
    if config.judge == FROZEN:
        warnings.append("Only frozen labels judge support; what nobody labelled is not judged.")
    return warnings


def _manifest(config: AuditCitations, judge: str) -> dict[str, Any]:
    """What the audit was made from and how; the number of processes changes nothing and is not part of it."""
    settings = (
        "nli_labels",
        "claims",
        "task",
        "judge_packed",
        "trec_per_sentence",
        "lenient",
        "strict",
        "report_questions",
        "seed",
    )
    return {
        "schema": SCHEMA,
        "inputs": {
            "predictions": digest(config.predictions),
            "corpus": [digest(source) for source in config.corpus],
            "gold": None if config.gold is None else digest(config.gold),
        },
        "settings": {name: getattr(config, name) for name in settings},
        "gates": {"fail_under": _asked(config.fail_under), "max": _asked(config.max)},
        "judge": judge,
        "splitter": [SPLITTER, SPLITTER_VERSION],
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }
