"""Figure 3: figures against n_docs, the number of passages retrieved, from scripts/n_docs.py and from sweeps.

One decision: a sweep gives a curve for every setting of its other axes, and runs in folders seed-0, seed-1, ... are one
curve; the band of both is their range over seeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ragx.experiments.report.documents import Document
from ragx.experiments.report.files import Holdings
from ragx.experiments.report.parts import Block, Cell, Chart, Charts, Section, Table, mean_line, spread
from ragx.experiments.report.results import metric

N_DOCS = "n_docs"
FIGURES = 2  # of an answer that are drawn, the first ones of a task
Points = dict[float, list[float]]


def figure_3(found: Holdings) -> Section:
    """Curves and their numbers."""
    blocks: list[Block] = [*_of_runs(found.curves)]
    for sweep in found.sweeps:
        for axis in sweep.table("axes"):
            if axis.rpartition(".")[2] == N_DOCS:
                blocks += _of_sweep(sweep, axis)
    return Section(
        "figure-3",
        "Figure 3: how many passages are retrieved",
        "Figures against the number of passages; bands are the range over seeds.",
        blocks,
        command="python scripts/n_docs.py model.checkpoint=... or python scripts/ablate.py ablation=n_docs",
    )


def _of_runs(curves: Sequence[Document]) -> Iterator[Block]:
    """A chart for each figure with a line for each model, and a table of the figures at every point."""
    groups: dict[str, list[Document]] = {}
    for curve in curves:
        groups.setdefault(re.sub(r"/seed-\d+$", "", curve.name), []).append(curve)
    places = dict.fromkeys(place for curve in curves for place in _places(curve))
    charts = []
    for place in places:
        lines = [mean_line(name, _points(own, place), i) for i, (name, own) in enumerate(groups.items())]
        charts.append(Chart(_title(place), N_DOCS, [line for line in lines if line.x], marks=True))
    if charts:
        yield Charts("Figures of answers, and success@n_docs of their passages.", charts)
    for name, own in groups.items():
        yield _table(name, own, list(places))


def _places(curve: Document) -> list[tuple[str, ...]]:
    """The figures that are drawn: the first of the answers, and success@n_docs; () stands for the point itself."""
    own = [name for name, value in curve.table(next(iter(curve.values))).items() if "value" in value and value["n"]]
    return [*((name,) for name in own[:FIGURES]), ("success_at", "")]


def _title(place: tuple[str, ...]) -> str:
    return "success@n_docs" if len(place) > 1 else place[0].replace("_", " ")


def _at(point: str, place: tuple[str, ...]) -> tuple[str, ...]:
    return point, *(name or point for name in place)


def _value(curve: Document, point: str, place: tuple[str, ...]) -> float | None:
    """None where the curve has no such figure, or nothing was scored."""
    names = _at(point, place)
    return curve.number(*names, "value") if names[1] in curve.table(point) else None


def _points(curves: Sequence[Document], place: tuple[str, ...]) -> Points:
    points: Points = {}
    for curve in curves:
        for point in curve.values:
            value = _value(curve, point, place)
            if value is not None:
                points.setdefault(float(point), []).append(value)
    return points


def _table(name: str, curves: Sequence[Document], places: Sequence[tuple[str, ...]]) -> Table:
    """Of one run its intervals, of several their range."""
    rows = []
    for point in sorted({point for curve in curves for point in curve.values}, key=int):
        cells = []
        for place in places:
            values = [v for curve in curves if point in curve.values and (v := _value(curve, point, place)) is not None]
            one = len(curves) == 1 and values
            cells.append(metric(curves[0], *_at(point, place)) if one else spread(values))
        rows.append([Cell(point), *cells])
    return Table(f"Figures by n_docs: {name}", [N_DOCS, *map(_title, places)], rows)


def _of_sweep(sweep: Document, axis: str) -> Iterator[Charts]:
    """A chart for each metric with a line for each setting of the other axes; the numbers are in the sweep's table."""
    arms = [arm for arm in sweep.rows("arms") if _is_count(arm.table("settings").get(axis))]
    charts = []
    for name in sweep.names("metrics"):
        lines: dict[str, Points] = {}
        for arm in arms:
            values = [] if arm.table("metrics").get(name) is None else arm.get("metrics", name, "values")
            known = [value for value in values if value is not None]
            if known:
                lines.setdefault(_label(arm, axis), {})[float(arm.get("settings", axis))] = known
        drawn = [mean_line(label, points, number) for number, (label, points) in enumerate(lines.items())]
        charts += [Chart(name, axis, drawn, marks=True)] if drawn else []
    if charts:
        yield Charts(f"Sweep {sweep.get('name')} over {axis}; its numbers stand in the table of the sweep.", charts)


def _label(arm: Document, axis: str) -> str:
    others: Mapping[str, str] = {key: value for key, value in arm.table("settings").items() if key != axis}
    return ", ".join(f"{key}={value}" for key, value in others.items()) or N_DOCS


def _is_count(text: object) -> bool:
    return isinstance(text, str) and text.isdecimal()
