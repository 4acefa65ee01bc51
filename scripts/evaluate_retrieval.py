"""Scores a retriever alone, with a reranker before and after; options in configs/evaluate_retrieval.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import atomic, build, config, schema
from ragx.experiments.evaluate import metric_line
from ragx.experiments.retrieval import evaluate_retrieval


@hydra.main(version_base="1.3", config_path="../configs", config_name="evaluate_retrieval")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints success@k against the gold passages of `data.questions` and writes all figures as JSON."""
    cfg = config.resolve(raw, schema.EvaluateRetrieval)
    config.save(cfg, config.output_directory())
    examples = build.examples(cfg.data.questions, data=cfg.data, require_answers=False)
    searched = cfg.retriever.kind in ("dense", "hybrid")
    retriever = build.retriever(cfg.retriever, directory=cfg.index.directory)
    if searched:
        build.require_index_of(cfg.retriever.query_encoder, retriever)
    encoder = build.query_encoder(cfg.retriever).to(build.device(cfg.index.device)) if searched else None
    metrics = evaluate_retrieval(
        retriever,
        examples,
        query_encoder=encoder,
        ks=cfg.success_at,
        filtered_by=cfg.retriever.filter.by_question,
        index_recall=cfg.index_recall,
        seed=cfg.seed,
    )
    output = Path(cfg.output or config.output_directory() / "metrics.json")
    with atomic.open_file(output) as handle:
        handle.write(json.dumps(metrics, indent=2) + "\n")
    for k, metric in metrics["success_at"].items():
        if "before" in metrics:
            print(metric_line(f"success_at.{k} before", metrics["before"]["success_at"][k]))
        print(metric_line(f"success_at.{k}", metric))
        if "lift" in metrics:
            print(metric_line(f"success_at.{k} lift", metrics["lift"][f"success_at.{k}"]))
    for k, metric in metrics.get("index_recall_at", {}).items():
        print(metric_line(f"index_recall_at.{k}", metric))
    print(output)


if __name__ == "__main__":
    main()
