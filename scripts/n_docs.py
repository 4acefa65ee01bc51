"""Answers and scores with 1 to 50 passages a question (figure 3); options in configs/n_docs.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import hydra
from omegaconf import DictConfig

from ragx import atomic, build, config, schema
from ragx.experiments.evaluate import metric_line
from ragx.experiments.n_docs import n_docs_curve


@hydra.main(version_base="1.3", config_path="../configs", config_name="n_docs")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Prints the first figure and success@n_docs at each point; the same `output` again goes on where it stopped."""
    cfg = config.resolve(raw, schema.NDocs)
    config.save(cfg, config.output_directory())
    output = Path(cfg.output or config.output_directory() / "results.json")
    examples = build.examples(cfg.data.questions, data=cfg.data)[: cfg.max_questions]
    model = build.model(cfg).to(build.device(cfg.decoding.device))
    curve = n_docs_curve(
        model,
        examples,
        output.parent / "predictions",
        n_docs=cfg.n_docs,
        decoder=build.decoder(cfg.decoding.decoder, model.kind),
        settings=cfg.decoding.settings(),
        task=cfg.data.task,
        batch_size=cfg.decoding.batch_size,
    )
    with atomic.open_file(output) as handle:
        handle.write(json.dumps(curve, indent=2) + "\n")
    for point, metrics in curve.items():
        figure = next(iter(metrics))
        print(f"n_docs {point:>3}  {metric_line(figure, metrics[figure])}")
        print(f"            {metric_line(f'success_at.{point}', metrics['success_at'][point])}")
    print(output)


if __name__ == "__main__":
    main()
