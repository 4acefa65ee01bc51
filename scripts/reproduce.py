"""The paper's figures beside ours: runs rows, compares, renders; options in configs/reproduce.yaml."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import hydra
from hydra.utils import get_original_cwd
from omegaconf import DictConfig

from ragx import config
from ragx.experiments.reproduce import chosen, read_table, run_rows, write_table
from ragx.experiments.reproduce_tables import comparison, render, render_into
from ragx.schema_experiments import Reproduce


@hydra.main(version_base="1.3", config_path="../configs", config_name="reproduce")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints every chosen row with its verdict; exit status 1 where one failed or differs."""
    cfg = config.resolve(raw, Reproduce)
    config.save(cfg, config.output_directory())
    logging.getLogger("ragx").setLevel(logging.INFO)
    table = read_table(cfg.table)
    rows = chosen(table.rows, cfg.rows) if cfg.rows else table.rows
    failed: dict[str, str] = {}
    if cfg.rows:
        done, failed = run_rows(table, rows, root=get_original_cwd(), reuse=cfg.reuse)
        table = replace(table, rows=[done.get(row.id, row) for row in table.rows])
        rows = chosen(table.rows, cfg.rows)
        write_table(cfg.table, table)
    print(comparison(rows))
    for row, reason in failed.items():
        print(f"\n{row} failed: {reason}")
    if cfg.render is not None:
        render_into(Path(cfg.render), render(table))
        print(cfg.render)
    if failed or any(row.verdict.startswith("differs") for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
