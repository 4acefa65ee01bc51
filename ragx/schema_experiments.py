"""The schemas of scripts that run other scripts or read their runs; neither torch nor a model's settings are needed."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from ragx.limits import file, output


@dataclass
class Reproduce:
    """Schema of configs/reproduce.yaml.

    Attributes:
        table: the file of rows; what was measured is written into it.
        rows: run the rows whose id starts with one of these.
        reuse: take a metric file that is there instead of running its commands again.
        render: a Markdown file whose tables between the markers are made anew.
    """

    table: str = file()
    rows: list[str] = MISSING
    reuse: bool = MISSING
    render: str | None = output()


SCRIPTS = (Reproduce,)
