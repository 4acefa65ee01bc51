"""Pretrains dpr-nano: sentence-to-passage pairs with in-batch negatives.

Section 2.2; options in configs/pretrain_bi_encoder.yaml.
"""

from __future__ import annotations

import logging

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.experiments.pretrain import pretrain_bi_encoder
from ragx.schema_pretraining import Pretrain


@hydra.main(version_base="1.3", config_path="../configs", config_name="pretrain_bi_encoder")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Writes the checkpoint to `directory`; started again after a kill, it goes on where it stopped."""
    cfg = config.resolve(raw, Pretrain)
    config.save(cfg, config.output_directory())
    logging.getLogger("ragx").setLevel(logging.INFO)
    print(pretrain_bi_encoder(cfg, command="python scripts/pretrain_bi_encoder.py"))


if __name__ == "__main__":
    main()
