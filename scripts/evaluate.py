"""Scores a predictions file (section 4); opens no model and no index; options in configs/evaluate.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from ragx import atomic, build, config, schema
from ragx.data.predictions import read_predictions
from ragx.experiments.evaluate import compare, evaluate, metric_line, titled


def figures(table: dict[str, Any], name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every figure with its dotted name, tables by kind apart."""
    if "value" in table:
        yield name, table
    else:
        for part, value in table.items():
            if part != "by_kind":
                yield from figures(value, f"{name}.{part}" if name else part)


@hydra.main(version_base="1.3", config_path="../configs", config_name="evaluate")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints the metrics of `predictions` against `data.questions`, and their difference from those of `compare`."""
    cfg = config.resolve(raw, schema.Evaluate)
    config.save(cfg, config.output_directory())
    predictions = read_predictions(cfg.predictions)
    examples = build.examples(cfg.data.questions, data=cfg.data)
    examples = titled(examples, build.stream(cfg.data)) if cfg.gold_titles else examples
    settings: dict[str, Any] = {"task": cfg.data.task, "ks": cfg.success_at, "seed": cfg.seed}
    metrics = evaluate(predictions, examples, **settings)
    if cfg.compare is not None:
        metrics["difference"] = compare(predictions, read_predictions(cfg.compare), examples, **settings)
    output = Path(cfg.output or config.output_directory() / "metrics.json")
    with atomic.open_file(output) as handle:
        handle.write(json.dumps(metrics, indent=2) + "\n")
    for name, metric in figures(metrics):
        if metric["value"] is not None or not name.startswith(("title_", "r_precision")):
            print(metric_line(name, metric))
    print(output)


if __name__ == "__main__":
    main()
