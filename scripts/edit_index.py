"""Deletes, adds and re-versions passages of a built index; options in configs/edit_index.yaml."""

from __future__ import annotations

import logging

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.experiments import importing
from ragx.schema_import import EditIndex


@hydra.main(version_base="1.3", config_path="../configs", config_name="edit_index")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Changes `index.directory`; what is deleted is gone at once, text that it has is not encoded again."""
    cfg = config.resolve(raw, EditIndex)
    config.save(cfg, config.output_directory())
    logging.getLogger("ragx").setLevel(logging.INFO)
    deleted, manifest = importing.edit(cfg)
    print(f"{cfg.index.directory}: {deleted} deleted; built of {manifest.count} of edition {manifest.edition}")


if __name__ == "__main__":
    main()
