"""Builds an index from passages and vectors that somebody else made; options in configs/import_index.yaml."""

from __future__ import annotations

import logging

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.experiments import importing
from ragx.schema_import import ImportIndex


@hydra.main(version_base="1.3", config_path="../configs", config_name="import_index")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Writes `index.directory`, whole or not at all."""
    cfg = config.resolve(raw, ImportIndex)
    config.save(cfg, config.output_directory())
    logging.getLogger("ragx").setLevel(logging.INFO)
    manifest = importing.index(cfg)
    print(f"{cfg.index.directory}: {manifest.count} passages of edition {manifest.edition}, {manifest.kind}")


if __name__ == "__main__":
    main()
