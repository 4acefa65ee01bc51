"""Reads passages in the form people have them and writes JSON lines; options in configs/import_passages.yaml."""

from __future__ import annotations

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.experiments import importing
from ragx.schema_import import ImportPassages


@hydra.main(version_base="1.3", config_path="../configs", config_name="import_passages")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Writes `output`, whole or not at all."""
    cfg = config.resolve(raw, ImportPassages)
    config.save(cfg, config.output_directory())
    print(f"{cfg.output}: {importing.passages(cfg)} passages")


if __name__ == "__main__":
    main()
