"""The main job, end to end, on the embedded knowledge base: `make demo`; options in configs/demo.yaml."""

from __future__ import annotations

import logging

import hydra
from omegaconf import DictConfig

from ragx import config, schema
from ragx.experiments.demo import run_demo
from ragx.experiments.demo_tables import render


@hydra.main(version_base="1.3", config_path="../configs", config_name="demo")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Runs what is missing in `run_dir`, prints the tables and where the rest is."""
    cfg = config.resolve(raw, schema.Demo)
    logging.getLogger("ragx").setLevel(logging.INFO)
    results = run_demo(cfg)
    print(render(results, cfg.run_dir))


if __name__ == "__main__":
    main()
