"""One static page about runs, and the same tables as Markdown; options in configs/report.yaml."""

from __future__ import annotations

import hydra
from omegaconf import DictConfig

from ragx import config
from ragx.experiments.report.make import make_report
from ragx.schema_report import Report


@hydra.main(version_base="1.3", config_path="../configs", config_name="report")
@config.plain_errors
def main(raw: DictConfig) -> None:
    """Writes the page of `runs` and prints where it and its Markdown are."""
    cfg = config.resolve(raw, Report)
    output = cfg.output or config.output_directory() / "report.html"
    for path in make_report(cfg.runs, output, title=cfg.title, questions=cfg.questions):
        print(path)


if __name__ == "__main__":
    main()
