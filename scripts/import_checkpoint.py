"""Turns a published RAG checkpoint into one of our checkpoint folders; options in configs/import_checkpoint.yaml."""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import config, schema
from ragx.errors import CheckpointError
from ragx.training.checkpoint import save_checkpoint
from ragx.training.rag_checkpoint import import_rag


@hydra.main(version_base="1.3", config_path="../configs", config_name="import_checkpoint")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Reads `source`, a folder or hub name, and writes `directory`, which must be new."""
    cfg = config.resolve(raw, schema.ImportCheckpoint)
    config.save(cfg, config.output_directory())
    if Path(cfg.directory).exists():
        raise CheckpointError(f"directory must be new, got {cfg.directory}. Name another, or remove that one.")
    model = import_rag(cfg.source, kind=cfg.kind, max_input_length=cfg.max_input_length)
    directory = save_checkpoint(model, cfg.directory, card={"Origin": f"Imported from {cfg.source}."})
    print(f"{directory}: {model.kind} over {model.n_docs} passages, from {cfg.source}")


if __name__ == "__main__":
    main()
