"""Swaps the index between two dated dumps of real text (section 4.5); options in configs/hot_swap_dumps.yaml."""

from __future__ import annotations

import json

import hydra
from omegaconf import DictConfig

from ragx import atomic, config
from ragx.experiments.dumps.run import hot_swap_dumps
from ragx.experiments.dumps.tables import render
from ragx.schema_dumps import HotSwapDumps


@hydra.main(version_base="1.3", config_path="../configs", config_name="hot_swap_dumps")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints success@k, exact match and stale citations by dump and date, and writes all figures as JSON."""
    cfg = config.resolve(raw, HotSwapDumps)
    folder = config.output_directory()
    config.save(cfg, folder)
    results = hot_swap_dumps(cfg, folder)
    with atomic.open_file(folder / "results.json") as handle:
        handle.write(json.dumps(results, indent=1) + "\n")
    print(render(results))
    print(folder / "results.json")


if __name__ == "__main__":
    main()
