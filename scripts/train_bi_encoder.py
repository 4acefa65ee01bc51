"""Trains query and passage encoder on questions with passages, as DPR; options in configs/train_bi_encoder.yaml."""

from __future__ import annotations

import logging
import sys

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.environment import is_first_process
from ragx.experiments import train_bi_encoder
from ragx.schema_bi_encoder import TrainBiEncoder


@hydra.main(version_base="1.3", config_path="../configs", config_name="train_bi_encoder")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Trains in the folder of the run and prints the checkpoint; the same `hydra.run.dir` again resumes that run."""
    cfg = config.resolve(raw, TrainBiEncoder)
    run_dir = config.output_directory()
    logging.getLogger("ragx").setLevel(logging.INFO)
    if not (run_dir / "checkpoints" / "last").exists():  # a run that is refused must not rename what was done
        config.save(cfg, run_dir)
    command = " ".join(["python", "scripts/train_bi_encoder.py", *sys.argv[1:]])
    result = train_bi_encoder.run(cfg, run_dir=run_dir, command=command)
    if not is_first_process():
        return
    figure = "" if result.best_value is None else f", {cfg.training.best_metric} {result.best_value:.4g}"
    print(f"{result.checkpoint}: step {result.step}{figure}, metrics in {result.metrics_path}")


if __name__ == "__main__":
    main()
