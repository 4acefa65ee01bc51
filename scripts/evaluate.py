"""Scores a predictions file (section 4); opens no model and no index; options in configs/evaluate.yaml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from ragx import atomic, build, config, schema
from ragx.data.predictions import read_predictions
from ragx.experiments.evaluate import evaluate


def line(name: str, metric: dict[str, Any]) -> str:
    """One metric as a line: value, interval, how many questions."""
    if metric["value"] is None:
        return f"{name:<26} not scored (n_null {metric['n_null']})"
    low, high = metric["ci95"]
    return f"{name:<26} {metric['value']:.3f}  [{low:.3f}, {high:.3f}]  n {metric['n']}"


@hydra.main(version_base="1.3", config_path="../configs", config_name="evaluate")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints the metrics of `predictions` against `data.questions` and writes them as JSON."""
    cfg = config.resolve(raw, schema.Evaluate)
    config.save(cfg, config.output_directory())
    metrics = evaluate(
        read_predictions(cfg.predictions), build.examples(cfg.data.questions), ks=cfg.success_at, seed=cfg.seed
    )
    output = Path(cfg.output or config.output_directory() / "metrics.json")
    with atomic.open_file(output) as handle:
        handle.write(json.dumps(metrics, indent=2) + "\n")
    for name, value in metrics.items():
        if name in ("success_at", "recall_at"):
            for k, metric in value.items():
                print(line(f"{name}.{k}", metric))
        elif name != "by_kind":
            print(line(name, value))
    print(output)


if __name__ == "__main__":
    main()
