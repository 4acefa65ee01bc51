"""Answers questions and keeps the evidence (section 2.5); options in configs/generate.yaml."""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import build, config, schema
from ragx.experiments.predict import predict_to_file


@hydra.main(version_base="1.3", config_path="../configs", config_name="generate")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Writes one prediction a question: answer, log p(y|x), passages with prior and posterior, citations.

    The same `output` again goes on where an interrupted run stopped.
    """
    cfg = config.resolve(raw, schema.Generate)
    config.save(cfg, config.output_directory())
    output = Path(cfg.output or config.output_directory() / "predictions.jsonl")
    questions = build.examples(cfg.data.questions, data=cfg.data, require_answers=False)
    model = build.model(cfg).to(build.device(cfg.decoding.device))
    build.check_labels(cfg.data, model.generator)
    config.save(cfg, config.output_directory(), ignored=model.generator.generation_defaults)
    predict_to_file(
        model,
        questions,
        output,
        decoder=build.decoder(cfg.decoding.decoder, model.kind),
        settings=cfg.decoding.settings(),
        batch_size=cfg.decoding.batch_size,
        labels=cfg.decoding.labels,
        provenance={"checkpoint": cfg.model.checkpoint, "questions": cfg.data.questions},
    )
    print(f"{output}: {len(questions)} predictions")


if __name__ == "__main__":
    main()
