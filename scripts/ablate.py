"""Sweeps over one setting or several: train, answer, evaluate each, one table; options in configs/ablate.yaml."""

from __future__ import annotations

import logging

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ragx import config
from ragx.experiments.ablations import run_job
from ragx.experiments.ablations_sweep import as_given, failing_alone, run_sweep, settings_of
from ragx.schema_ablation import Ablate


@hydra.main(version_base="1.3", config_path="../configs", config_name="ablate")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """One job of the sweep; Hydra calls it once a combination."""
    logging.getLogger("ragx").setLevel(logging.INFO)
    run_dir = config.output_directory()
    with failing_alone(run_dir):
        cfg = config.resolve(raw, Ablate)
        run_job(cfg, run_dir=run_dir, overrides=settings_of(as_given(HydraConfig.get().overrides.task)))


if __name__ == "__main__":
    status, table = run_sweep(main)
    if table:
        print(table)
    raise SystemExit(status)
