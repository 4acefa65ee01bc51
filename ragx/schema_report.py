"""The schema of the report about runs; neither torch nor a model's settings are needed."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from ragx.limits import at_least, folder, output


@dataclass
class Report:
    """Schema of configs/report.yaml.

    Attributes:
        runs: folders of demos, sweeps and single scripts' runs.
        title: of the page.
        questions: answers of each kind of model in figure 2.
        output: the page; its Markdown is written beside it.
    """

    runs: list[str] = folder()  # noqa: RUF009 (a field, as the others are)
    title: str = MISSING
    questions: int = at_least(0)
    output: str | None = output()


SCRIPTS = (Report,)
