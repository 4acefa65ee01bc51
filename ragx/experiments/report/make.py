"""One static page about runs, and the same tables as Markdown, from files alone: no model, no index and no network.

    results  training  figure 2  figure 3  hot swap  ablations  citations  environment

One decision: a part that the runs do not hold stays on the page and says what command makes it, so that two pages are
always laid out alike. The same files give the same bytes; there is no date on a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragx import atomic
from ragx.errors import ConfigError
from ragx.experiments.report.audits import citations
from ragx.experiments.report.curves import training
from ragx.experiments.report.environment import environment
from ragx.experiments.report.figure_3 import figure_3
from ragx.experiments.report.files import Holdings, read_runs
from ragx.experiments.report.heat_maps import figure_2
from ragx.experiments.report.page import render_html, render_markdown
from ragx.experiments.report.parts import Section
from ragx.experiments.report.results import results
from ragx.experiments.report.swaps import hot_swap
from ragx.experiments.report.sweeps import ablations


def make_report(runs: Sequence[str | Path], output: str | Path, *, title: str, questions: int) -> tuple[Path, Path]:
    """Writes the page to `output` and the Markdown beside it, as `.md`.

    Args:
        runs: folders that scripts of ragx wrote.
        output: an .html file.
        title: of the page.
        questions: answers shown in figure 2, of each kind of model.

    Returns:
        The page and the Markdown file.

    Raises:
        ConfigError: `output` is no .html file, or as `read_runs`.
        DataError: as `read_runs`, or a file in the runs that lacks a field.
    """
    page = Path(output)
    if page.suffix != ".html":
        raise ConfigError([f"output must end in .html, got {page.name}. The Markdown is written beside it."])
    found = read_runs(runs)
    parts = sections(found, questions=questions)
    tables = page.with_suffix(".md")
    for path, text in (
        (page, render_html(title, found.runs, parts)),
        (tables, render_markdown(title, found.runs, parts)),
    ):
        with atomic.open_file(path) as handle:
            handle.write(text)
    return page, tables


def sections(found: Holdings, *, questions: int) -> list[Section]:
    """The parts of a page in their order."""
    return [
        results(found),
        training(found),
        figure_2(found, questions=questions),
        figure_3(found),
        hot_swap(found),
        ablations(found),
        citations(found),
        environment(found),
    ]
