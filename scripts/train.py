"""Trains query encoder and generator together on questions and answers (section 2.4); options in configs/train.yaml."""

from __future__ import annotations

import hydra
from omegaconf import DictConfig

from ragx import build, config, schema
from ragx.environment import is_first_process
from ragx.experiments.train_answers import answers_of
from ragx.training.loop import train
from ragx.training.tracking import answered_by


@hydra.main(version_base="1.3", config_path="../configs", config_name="train")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Trains in the folder of the run and prints the checkpoint; the same `hydra.run.dir` again resumes that run."""
    cfg = config.resolve(raw, schema.Train)
    run_dir = config.output_directory()
    examples = build.examples(cfg.data.train, data=cfg.data, targets=True)
    dev = cfg.data.dev
    dev_examples = None if dev is None else build.examples(dev, data=cfg.data, targets=True)
    settings = cfg.training.settings(seed=cfg.experiment.seed)
    card = {"Run": {"name": cfg.experiment.name, "questions": cfg.data.train, "seed": settings.seed}}
    model = build.model(cfg)
    build.check_labels(cfg.data, model.generator)
    if not (run_dir / "checkpoints" / "last").exists():  # a run that is refused must not rename what was done
        config.save(cfg, run_dir)
    with answered_by(answers_of):
        result = train(model, examples, settings=settings, run_dir=run_dir, dev_examples=dev_examples, card=card)
    if is_first_process():
        print(f"{result.checkpoint}: step {result.step}, metrics in {result.metrics_path}")


if __name__ == "__main__":
    main()
