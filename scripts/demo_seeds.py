"""Mean and range of the demo's figures over seeds, as Markdown; options in configs/demo_seeds.yaml."""

from __future__ import annotations

import hydra
from hydra.utils import to_absolute_path
from omegaconf import DictConfig

from ragx import config, schema
from ragx.experiments.demo_seeds import read_runs, render


@hydra.main(version_base="1.3", config_path="../configs", config_name="demo_seeds")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Reads results.json of each run and prints the tables; opens no model."""
    cfg = config.resolve(raw, schema.DemoSeeds)
    print(render(read_runs([to_absolute_path(run) for run in cfg.runs])))


if __name__ == "__main__":
    main()
