"""What a page is made of, as plain values: sections of tables, charts and answers with their passages.

One decision: a section is built once and written twice, as HTML and as Markdown, so that the two cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what stands in it; "" is an empty cell.
        note: what stands small after it: an interval, a range.
        shade: 0 (white) to 1 (dark), of a heat map.
    """

    text: str
    note: str = ""
    shade: float | None = None


@dataclass(frozen=True)
class Table:
    """A table with its caption.

    Attributes:
        columns: their heads.
        rows: as many cells each.
        labels: how many columns at the left are text, the first of them heading its row; numbers stand right.
        note: a sentence under it.
        folded: whether a page shows it only when asked.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    labels: int = 1
    note: str = ""
    folded: bool = False

    @property
    def shaded(self) -> bool:
        """Whether it is a heat map."""
        return any(cell.shade is not None for row in self.rows for cell in row)


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        x, y: its points; gaps are left out of both.
        low, high: the band around it, where there is one.
        number: decides its color, dash and mark, alike in all charts of a page.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    number: int = 0


def mean_line(name: str, points: Mapping[float, Sequence[float]], number: int) -> Line:
    """The mean of each point's values, with their range as a band where there are several."""
    x = sorted(points)
    y = [math.fsum(points[at]) / len(points[at]) for at in x]
    if all(len(values) < 2 for values in points.values()):
        return Line(name, x, y, number=number)
    return Line(name, x, y, [min(points[at]) for at in x], [max(points[at]) for at in x], number)


@dataclass(frozen=True)
class Chart:
    """A chart of lines.

    Attributes:
        log: whether the scale of y is logarithmic.
        zero: whether it begins at 0.
        marks: whether every point is marked, for few points.
    """

    kind: ClassVar[str] = "chart"
    title: str
    x_label: str
    lines: Sequence[Line]
    log: bool = False
    zero: bool = False
    marks: bool = False


@dataclass(frozen=True)
class Charts:
    """Charts side by side, with one caption."""

    kind: ClassVar[str] = "charts"
    caption: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Source:
    """A passage as a page shows it.

    Attributes:
        name: its number, as in the tables above it.
        place: what identifies it.
        pieces: its text, cut where the cited part begins and ends; True marks that part.
    """

    name: str
    title: str
    place: str
    pieces: Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class Answer:
    """A question, its answer, what the answer's tokens say of the passages (figure 2), and the passages."""

    kind: ClassVar[str] = "answer"
    question: str
    answer: str
    remark: str
    tables: Sequence[Table]
    sources: Sequence[Source]


Block = Table | Charts | Answer


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        id: its anchor.
        intro: what it shows, in a sentence or two.
        command: what makes it, where the runs hold nothing for it.
    """

    id: str
    title: str
    intro: str
    blocks: Sequence[Block] = field(default_factory=tuple)
    command: str = ""


def figure(value: float | None) -> str:
    """A share or score as all pages write it; a figure nobody could compute is a dash."""
    return "–" if value is None else f"{value:.3f}"


def interval(bounds: Sequence[float] | None) -> str:
    """A 95% interval."""
    return "" if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def spread(values: Sequence[float]) -> Cell:
    """Mean and range of several runs, one value where there is one run."""
    mean = figure(sum(values) / len(values)) if values else "–"
    return Cell(mean, f"{min(values):.3f} to {max(values):.3f}" if len(values) > 1 else "")
