"""The rows of a reproduction as Markdown tables in the paper's layout, and between the markers of a file.

One decision: paper and ours stand one under the other in the columns of the paper, so that a table can be laid beside
the original. What nobody ran is written as such, and a table of which nobody ran a cell is only named.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragx import atomic
from ragx.errors import DataError
from ragx.experiments.reproduce import Row, Table

START, END = "<!-- reproduction -->", "<!-- /reproduction -->"
NOT_RUN = "not run"


def render(table: Table) -> str:
    """Every table of the file of which a cell was run, and how many of its cells somebody ran."""
    parts, missing = [], []
    for name, title in table.titles.items():
        rows = [row for row in table.rows if row.table == name]
        if any(row.ours is not None for row in rows):
            parts += [f"**{title}**", "", *_lines(rows), ""]
        elif rows:
            missing.append(f"{title.split(':')[0]} ({len(rows)})")
    ran = [row for row in table.rows if row.ours is not None]
    parts.append(f"{len(ran)} of {len(table.rows)} cells were run; nobody ran the others. In percent.")
    parts += [f"No cell was run of: {', '.join(missing)}."] if missing else []
    made: dict[tuple[str, str], list[str]] = {}
    for row in ran:
        made.setdefault((row.date or "", row.commit or "unknown"), []).append(f"`{row.run}`")
    origins = (f"* {', '.join(dict.fromkeys(made[key]))}: commit {key[1]}, {key[0]}" for key in sorted(made))
    parts += ["", *origins] if made else []
    return "\n".join(parts) + "\n"


def _lines(rows: Sequence[Row]) -> list[str]:
    columns = list(dict.fromkeys(row.column for row in rows))
    lines = [f"| | | {' | '.join(columns)} |", "|---|---|" + "---:|" * len(columns)]
    for model in dict.fromkeys(row.model for row in rows):
        cells = {row.column: row for row in rows if row.model == model}
        paper = [_number(cells[c].paper) if c in cells else "" for c in columns]
        if any(paper):
            lines.append(f"| {model} | paper | {' | '.join(paper)} |")
        ours = [_ours(cells[c]) if c in cells else "" for c in columns]
        lines.append(f"| {'' if any(paper) else model} | ours | {' | '.join(ours)} |")
    return lines


def _ours(row: Row) -> str:
    if row.ours is None:
        return NOT_RUN
    spread = "" if row.low is None else f" ({_number(row.low)} - {_number(row.high)})"
    return _number(row.ours) + spread + (f" ({row.verdict})" if row.verdict.startswith("differs") else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def comparison(rows: Sequence[Row]) -> str:
    """One line a row: paper, ours, and whether they agree."""
    width = max((len(row.id) for row in rows), default=0)
    return "\n".join(f"{row.id:<{width}} {_number(row.paper):>6} {_number(row.ours):>6}  {row.verdict}" for row in rows)


def render_into(path: str | Path, text: str) -> None:
    """Puts `text` between the markers of a file, and leaves the rest as it is.

    Raises:
        DataError: the markers are not there, or not once each and in order.
    """
    path = Path(path)
    whole = path.read_text(encoding="utf-8")
    if whole.count(START) != 1 or whole.count(END) != 1 or whole.index(START) > whole.index(END):
        raise DataError(
            f"file must hold {START} and {END} once each, in this order. Add them where it belongs", path=path
        )
    before, after = whole.split(START)[0], whole.split(END)[1]
    with atomic.open_file(path) as handle:
        handle.write(f"{before}{START}\n{text}{END}{after}")
