"""Training curves: the loss, and whether the retriever still matters (appendix H of the paper).

    loss            -log p(y|x), nats a question (or a token, as the run reduces it)
    KL              of posterior to prior, nats; 0 is a query encoder that learns nothing
    entropies       of prior and posterior, nats; log K is flat
    distinct top-1  share of a batch's questions with a top-1 passage of their own

One decision: a run is drawn as at most `POINTS` means of as many steps each, since single batches of a dozen questions
are too noisy to read; a band is the range over runs that differ in their seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragx.experiments.report.files import Holdings, Training
from ragx.experiments.report.parts import Cell, Chart, Charts, Line, Section, Table, figure, mean_line
from ragx.experiments.report.results import experiments, of_runs

POINTS = 40
Row = Mapping[str, Any]
Quantity = Callable[[Row], float | None]


def _field(name: str) -> Quantity:
    return lambda row: row.get(name)


def _distinct(row: Row) -> float | None:
    return row["distinct_top1"] / row["queries"] if row.get("queries") and "distinct_top1" in row else None


QUANTITIES: tuple[tuple[str, Quantity, bool], ...] = (  # title, value of a row, logarithmic scale
    ("Loss, nats", _field("loss"), True),
    ("KL of posterior to prior, nats", _field("kl_posterior_prior"), False),
    ("Entropy of the prior, nats", _field("prior_entropy"), False),
    ("Entropy of the posterior, nats", _field("posterior_entropy"), False),
    ("Share of questions with a top-1 passage of their own", _distinct, False),
    ("Gradient norm of the query encoder", _field("grad_norm/query_encoder"), True),
)


def training(found: Holdings) -> Section:
    """The curves of every training, and what it began and ended with."""
    groups = _groups(found)
    wanted = [*QUANTITIES, *((name, _field(name), False) for name in _evaluated(groups))]
    charts = [chart for title, read, log in wanted if (chart := _chart(title, read, groups, log=log)).lines]
    width = max((_width(run.rows) for runs in groups.values() for run in runs), default=1)
    caption = "Every point is one step" if width == 1 else f"Every point is the mean of {width} steps"
    several = any(len(runs) > 1 for runs in groups.values())
    caption += "; a line is the mean over seeds and its band their range." if several else "."
    return Section(
        "training",
        "Training",
        "Whether the loss went down, and whether the retriever still mattered meanwhile. KL 0 with an open posterior "
        "is a generator that does not care which passage it reads; the entropies are at most log n_docs.",
        [Charts(caption, charts), _ends(groups)] if charts else [],
        command="python scripts/train.py model=rag_sequence",
    )


def _groups(found: Holdings) -> dict[str, list[Training]]:
    """Trainings by name; those of one model in demos that differ in the seed alone stand under one."""
    demos = experiments(found)
    owners = {demo.run: group for group in demos for demo in group}
    groups: dict[str, list[Training]] = {}
    for run in found.trainings:
        name = f"{run.run}/{run.place}".rstrip("/")
        if run.run in owners:
            name = run.place.rpartition("/")[2] + (of_runs(found, owners[run.run]) if len(demos) > 1 else "")
        if run.rows:
            groups.setdefault(name, []).append(run)
    return groups


def _evaluated(groups: Mapping[str, Sequence[Training]]) -> list[str]:
    """Metrics of the development questions that a run has."""
    names = (key for runs in groups.values() for run in runs for row in run.rows for key in row)
    return [name for name in dict.fromkeys(names) if name.startswith("eval/")]


def _chart(title: str, read: Quantity, groups: Mapping[str, Sequence[Training]], *, log: bool) -> Chart:
    lines = [_line(name, runs, read, number) for number, (name, runs) in enumerate(groups.items())]
    evaluated = title.startswith("eval/")
    shown = [line for line in lines if line.x]
    return Chart(title, "step", shown, log=log, zero=not evaluated, marks=evaluated)


def _line(name: str, runs: Sequence[Training], read: Quantity, number: int) -> Line:
    """The mean over runs at the points that all of them have, and their range."""
    curves = [_curve(run.rows, read) for run in runs]
    points = {x: [curve[x] for curve in curves] for x in curves[0] if all(x in curve for curve in curves)}
    return mean_line(name, points, number)


def _curve(rows: Sequence[Row], read: Quantity) -> dict[float, float]:
    """Step -> mean of the `_width` steps that end there; what no step of them has is a gap."""
    width = _width(rows)
    bins: dict[float, list[float]] = {}
    for row in rows:
        value = read(row)
        if isinstance(value, int | float) and math.isfinite(value):
            bins.setdefault(math.ceil(row["step"] / width) * width, []).append(value)
    return {step: math.fsum(values) / len(values) for step, values in bins.items()}


def _width(rows: Sequence[Row]) -> int:
    return max(1, math.ceil(len(rows) / POINTS))


def _ends(groups: Mapping[str, Sequence[Training]]) -> Table:
    """The loss at both ends of every run, as the curves have it."""
    rows = []
    for name, runs in groups.items():
        for run in runs:
            curve = list(_curve(run.rows, _field("loss")).values())
            ends = (curve[0], curve[-1]) if curve else (None, None)
            last = run.rows[-1]
            cells = [figure(ends[0]), figure(ends[1]), str(last["step"]), str(last.get("skipped_steps", ""))]
            rows.append([Cell(name), Cell(run.run), *map(Cell, cells)])
    columns = ["model", "run", "loss at first", "loss at last", "steps", "skipped"]
    return Table("Loss at the two ends of each run (means as in the curves)", columns, rows, labels=2, folded=True)
