"""How `make demo` ends: the citation audit of its answers, and of the answers that the other year's index gave.

    rag_sequence, rag_token   the test questions, answered from the index they are asked about
    stale                     questions on 2018-12 answered from the 2016-12 index: what is cited is out of date

Every audit is the work of `scripts/audit_citations.py` over files alone; its report.html opens in a browser.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ragx.data.world_leaders.facts import EDITIONS
from ragx.experiments.audit import run_audit
from ragx.experiments.audit_settings import audit_settings
from ragx.experiments.demo_results import DECODERS, predictions_path, questions_path, swapped_path
from ragx.limits import EMBEDDED
from ragx.schema_audit import AuditCitations

AUDITED = ("rag_sequence", "rag_token")
STALE = "stale"
FIGURES = ("coverage_any", "strict_support_rate", "resolvable_rate", "stale_rate", "correct_without_evidence")


def audit_demo(run_dir: Path) -> dict[str, dict[str, float | None]]:
    """Audits what is not audited yet, under `run_dir`/audit; returns the figures of `FIGURES` by audit."""
    figures = {}
    for name, config in _audits(run_dir).items():
        folder = run_dir / "audit" / name
        if not folder.exists():
            run_audit(config, folder)
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        figures[name] = {figure: _value(summary, figure) for figure in FIGURES}
    return figures


def render_audits(figures: dict[str, dict[str, float | None]], run_dir: Path) -> str:
    """The figures as a table, and where the pages are."""
    lines = [
        "Citation audit (stale: questions on 2018 answered from the 2016 index)",
        f"  {'figure':<26}" + "".join(f"{name:>14}" for name in figures),
    ]
    for figure in FIGURES:
        cells = (row[figure] for row in figures.values())
        lines.append(f"  {figure:<26}" + "".join(f"{'' if v is None else f'{v:.3f}':>14}" for v in cells))
    lines.append(f"  pages: {run_dir}/audit/*/report.html")
    return "\n".join(lines)


def _audits(run_dir: Path) -> dict[str, AuditCitations]:
    before, after = EDITIONS
    audits = {
        name: audit_settings(
            predictions_path(run_dir, name, DECODERS[name][0]),
            corpus=[f"{EMBEDDED}{before}"],
            gold=run_dir / "questions.jsonl",
        )
        for name in AUDITED
    }
    audits[STALE] = audit_settings(
        swapped_path(run_dir, index=before, questions=after),
        corpus=[f"{EMBEDDED}{name}" for name in EDITIONS],
        gold=questions_path(run_dir, after),
    )
    return audits


def _value(summary: dict[str, Any], figure: str) -> float | None:
    for section in summary["metrics"].values():
        if figure in section:
            value: float | None = section[figure]["value"]
            return value
    return None
