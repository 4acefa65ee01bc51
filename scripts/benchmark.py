"""Measures ours beside the peer: `work=loss|train|train_text|decode|decode_text|encode|search|open|swap`.

Options in configs/benchmark.yaml.
"""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.report import table
from ragx.experiments.benchmarks.run import benchmark


@hydra.main(version_base="1.3", config_path="../configs", config_name="benchmark")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints each row as it is measured, then the table, and writes the rows with the machine's facts as JSON."""
    cfg = config.resolve(raw, Benchmark)
    config.save(cfg, config.output_directory())
    output = Path(cfg.out or config.output_directory() / "benchmark.json")
    rows = benchmark(cfg, output=output, tell=lambda line: print(line, flush=True))
    print(f"\n{table(rows)}\n\n{output}")


if __name__ == "__main__":
    main()
