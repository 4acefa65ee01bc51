"""Measures the support judges against people on labelled claims; options in configs/judge_agreement.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import atomic, config
from ragx.experiments.judge_agreement import as_markdown, judge_agreement, load_nli, offline_judges, read_claims, split
from ragx.experiments.wrong_answers import read_short_answers
from ragx.schema_audit import JudgeAgreement


@hydra.main(version_base="1.3", config_path="../configs", config_name="judge_agreement")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints AUC, precision, recall and kappa of every judge and writes them as JSON and Markdown."""
    cfg = config.resolve(raw, JudgeAgreement)
    config.save(cfg, config.output_directory())
    claims = read_claims(cfg.claims) if cfg.passages is None else read_short_answers(cfg.claims, cfg.passages)
    tune, report = split(claims, tune_sets=cfg.tune_sets)
    nli = load_nli(cfg.nli_checkpoint, labels=cfg.nli_labels)
    results = judge_agreement(tune, report, offline_judges(tune, nli=nli))
    output = Path(cfg.output or config.output_directory() / "judge_agreement.json")
    with atomic.open_file(output) as handle:
        handle.write(json.dumps(results, indent=2) + "\n")
    table = as_markdown(results)
    with atomic.open_file(output.with_suffix(".md")) as handle:
        handle.write(table)
    print(table)
    print(output)


if __name__ == "__main__":
    main()
