"""Charts as SVG that stands inside a page: text stays text, nothing is loaded, the same values give the same bytes.

One decision: lines differ in dash and mark as well as in color, so that a chart is read in black and white too.
"""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ragx.experiments.report.parts import Chart, Line

SIZE = (4.4, 3.1)  # inches; small, so that its text is still read when a phone scales it down
COLORS = ("#0b4aa2", "#b3410e", "#1a6e46", "#7a2f87", "#4f5660", "#8a6d00", "#0c7489", "#a3164f")  # on white: 4.5:1
DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)), (0, (8, 2)))
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
COLUMN = 22  # characters of a name in one of two columns of a legend
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ragx",
    "font.family": ["DejaVu Sans"],  # measures the text; the page's own font draws it
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#5b5f66",
    "text.parse_math": False,
}


def draw(chart: Chart, *, name: str) -> str:
    """An <svg> element without its title, which the page writes; every id in it opens with `name`."""
    with _settings():
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for line in chart.lines:
            _plot(axes, line, marked=chart.marks)
        axes.set_xlabel(chart.x_label)
        axes.grid(axis="y", color="#e3e5e8", linewidth=0.7)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        _scale(axes, chart)
        if len(chart.lines) > 1:
            short = max(len(line.name) for line in chart.lines) <= COLUMN
            figure.legend(loc="outside lower left", ncols=2 if short else 1, frameon=False, handlelength=3)
        handle = io.StringIO()
        figure.savefig(handle, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _embedded(handle.getvalue(), chart, name)


@contextmanager
def _settings() -> Iterator[None]:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # what a user has set at home is no part of a page
        matplotlib.rcParams.update(SETTINGS)
        yield


def _plot(axes: Axes, line: Line, *, marked: bool) -> None:
    color, dash = COLORS[line.number % len(COLORS)], DASHES[line.number % len(DASHES)]
    mark = MARKS[line.number % len(MARKS)] if marked or len(line.x) == 1 else None
    axes.plot(
        line.x,
        line.y,
        color=color,
        linestyle=dash,
        linewidth=1.7,
        marker=mark,
        markersize=4.5,
        label=_wrapped(line.name),
    )
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.15, linewidth=0)


def _wrapped(name: str) -> str:
    """A name in lines that fit under the chart."""
    return "\n".join(textwrap.wrap(name, 2 * COLUMN)) or " "


def _scale(axes: Axes, chart: Chart) -> None:
    """Numbers written in full, 0.1 and not 10 to the power of -1."""
    if chart.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
        if chart.zero:
            axes.set_ylim(bottom=0)


def _embedded(text: str, chart: Chart, name: str) -> str:
    """The element alone: no prologue, no style sheet that would hold for the page, ids of its own, the page's font."""
    element = text[text.index("<svg") :]
    element = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", element, count=1, flags=re.DOTALL)
    element = re.sub(r'\bid="', f'id="{name}-', element)
    element = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", element)
    element = element.replace("font-family: 'DejaVu Sans'; ", "").replace("; font-family: 'DejaVu Sans'", "")
    head, rest = element.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{html.escape(chart.title)}">{rest}'
