"""Audits the citations of a predictions or trace file; opens no model; options in configs/audit_citations.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.citations.report import render_markdown
from ragx.experiments.audit import run_audit
from ragx.experiments.audit_diff import compare, evidence_swap
from ragx.schema_audit import AuditCitations


@hydra.main(version_base="1.3", config_path="../configs", config_name="audit_citations")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Writes the report's folder and prints its tables; exit status 1 where a gate failed, 2 on bad input."""
    cfg = config.resolve(raw, AuditCitations)
    config.save(cfg, config.output_directory())
    result = run_audit(cfg, Path(cfg.output or config.output_directory() / "audit"))
    print(render_markdown(result.summary))
    if cfg.compare_with is not None:
        changes = compare(cfg.compare_with, result.directory)
        print(json.dumps({name: changes[name] for name in ("figures", "paired", "moves", "unchanged")}, indent=1))
    if cfg.swapped is not None:
        print(json.dumps(evidence_swap(cfg.predictions, cfg.swapped), indent=1))
    print(result.directory / "report.html")
    if not result.passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
