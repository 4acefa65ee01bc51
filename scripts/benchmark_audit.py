"""Seconds and memory of the citation audit by the number of answers; options in configs/benchmark_audit.yaml."""

from __future__ import annotations

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.experiments.audit_benchmark import measure
from ragx.schema_audit import BenchmarkAudit


@hydra.main(version_base="1.3", config_path="../configs", config_name="benchmark_audit")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints one row for each size as it is measured, and writes all to benchmark_audit.json."""
    cfg = config.resolve(raw, BenchmarkAudit)
    folder = config.output_directory()
    config.save(cfg, folder)
    print(f"{'answers':>8} {'seconds':>8} {'cpu s':>7} {'MiB, at most':>13}")
    for row in measure(folder, cfg.sizes, workers=cfg.workers, seed=cfg.seed):
        print(f"{row['answers']:>8} {row['seconds']:>8.1f} {row['cpu_s']:>7.1f} {row['mib']:>13.0f}", flush=True)
    print(folder / "benchmark_audit.json")


if __name__ == "__main__":
    main()
