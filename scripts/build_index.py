"""Encodes a corpus once and builds its frozen index (section 2.2); options in configs/build_index.yaml."""

from __future__ import annotations

import hydra
from omegaconf import DictConfig

from ragx import build, config, schema
from ragx.environment import is_first_process


@hydra.main(version_base="1.3", config_path="../configs", config_name="build_index")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Builds `index.directory` from `data.passages`, whole or not at all."""
    cfg = config.resolve(raw, schema.BuildIndex)
    config.save(cfg, config.output_directory())
    manifest = build.index(cfg)
    if is_first_process():
        print(f"{cfg.index.directory}: {manifest.count} passages of edition {manifest.edition}, {manifest.kind}")


if __name__ == "__main__":
    main()
