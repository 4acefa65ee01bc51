"""A page's sections written as HTML and as Markdown.

One decision: everything goes through a template that escapes it, save the drawings, which `charts` makes of numbers and
of names that matplotlib escapes. The page runs nothing and loads nothing; its policy forbids both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import jinja2
from markupsafe import Markup

from ragx.experiments.report.charts import draw
from ragx.experiments.report.parts import Answer, Cell, Chart, Charts, Section, Table


def render_html(title: str, runs: Sequence[str], sections: Sequence[Section]) -> str:
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ragx.experiments.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbered = iter(range(1, 10_000))

    def drawn(chart: Chart) -> Markup:
        return Markup(draw(chart, name=f"chart{next(numbered)}"))

    template = environment.get_template("page.html.j2")
    return template.render(title=title, runs=runs, sections=sections, draw=drawn) + "\n"


def render_markdown(title: str, runs: Sequence[str], sections: Sequence[Section]) -> str:
    """The tables, and the answers with their passages; of a chart the numbers at its ends."""
    lines = [f"# {_plain(title)}", "", f"Runs: {', '.join(map(_plain, runs))}", ""]
    for section in sections:
        lines += [f"## {_plain(section.title)}", "", _plain(section.intro), ""]
        if not section.blocks:
            lines += [f"Nothing in these runs. What makes it: `{section.command}`", ""]
        for block in section.blocks:
            if isinstance(block, Table):
                lines += _table(block)
            elif isinstance(block, Charts):
                lines += _charts(block)
            else:
                lines += _answer(block)
    return "\n".join(lines).rstrip() + "\n"


def _table(table: Table) -> Iterator[str]:
    yield f"**{_plain(table.caption)}**"
    yield ""
    yield f"| {' | '.join(map(_plain, table.columns))} |"
    yield "|" + "".join("---|" if i < table.labels else "---:|" for i in range(len(table.columns)))
    for row in table.rows:
        yield f"| {' | '.join(map(_cell, row))} |"
    yield ""
    if table.note:
        yield from (_plain(table.note), "")


def _charts(block: Charts) -> Iterator[str]:
    """Every line's first and last point."""
    rows = [
        [Cell(chart.title), Cell(line.name), _point(line.x[0], line.y[0]), _point(line.x[-1], line.y[-1])]
        for chart in block.charts
        for line in chart.lines
    ]
    yield from _table(Table(block.caption, ["curve", "of", "first point", "last point"], rows, labels=2))


def _point(x: float, y: float) -> Cell:
    return Cell(f"{y:.3f}", f"at {x:g}")


def _answer(answer: Answer) -> Iterator[str]:
    yield from (f"**{_plain(answer.question)}** {_plain(answer.answer)}", "", f"{_plain(answer.remark)}.", "")
    for table in answer.tables:
        yield from _table(table)
    for source in answer.sources:
        text = "".join(f"**{_plain(piece)}**" if marked else _plain(piece) for piece, marked in source.pieces)
        yield f"* {_plain(source.name)} {_plain(source.title)} ({_plain(source.place)}): {text}"
    yield ""


def _cell(cell: Cell) -> str:
    return _plain(cell.text) + (f" ({_plain(cell.note)})" if cell.note else "")


def _plain(text: str) -> str:
    """Text that Markdown shows letter by letter and in one line, HTML in it as well."""
    return re.sub(r"([\\`*_{}\[\]<>|#~&$])", r"\\\1", " ".join(text.split()))
