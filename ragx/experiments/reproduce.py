"""The paper's figures beside ours, each with the command that makes it (after Pyserini's two-click reproductions).

    row  =  id, run, metric, paper, ours, tolerance, commit, date        run  =  a recipe of commands and its variables

    run the commands -> read the metric -> |ours - paper| <= tolerance ? -> write it into the same file -> render

A run with `seeds` is its recipe once a seed, each in a folder seed-<seed> of its own; its rows are means with a range.

One decision: the file of rows is the only place a figure stands in; the tables of the README are made from it. A row
that nobody ran has no value and says so.
"""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragx import atomic
from ragx.environment import commit_of
from ragx.errors import DataError, RagxError

logger = logging.getLogger(__name__)
FOLDER = Path("runs") / "reproduction"
_ROWS = "rows:\n"
_SECTIONS = ("tables", "recipes", "runs", "rows")
_TAIL = 1500  # characters of a failed command's output that are shown


@dataclass(frozen=True)
class Row:
    """One cell of one table.

    Attributes:
        id: unique.
        table, model, column: its place.
        run: which run makes it; several rows may share one.
        metric: a file below the folder of the run, a colon, a dotted path in it. Of a run with seeds it is the mean.
        paper, ours: in percent; None where the paper prints none, where nobody ran it.
        low, high: the range over the seeds; None of a run without.
        tolerance: in points; None where the two are not to be compared.
        commit, date: of `ours`.
    """

    id: str
    table: str
    model: str
    column: str
    run: str
    metric: str
    paper: float | None
    ours: float | None
    low: float | None
    high: float | None
    tolerance: float | None
    commit: str | None
    date: str | None

    @property
    def verdict(self) -> str:
        """`not run`, `no comparison`, `OK`, or by how much ours differs."""
        if self.ours is None:
            return "not run"
        if self.paper is None or self.tolerance is None:
            return "no comparison"
        difference = round(self.ours - self.paper, 6)
        return "OK" if abs(difference) <= self.tolerance else f"differs by {difference:+.1f}"


@dataclass(frozen=True)
class Job:
    """A run, or one seed of it: its folder, and the commands that fill it, ready to be started."""

    folder: Path
    commands: Sequence[str]


@dataclass(frozen=True)
class Table:
    """The file of rows.

    Attributes:
        titles: of the tables, in their order.
        runs: the jobs of each run, one a seed.
        rows: in the order of the file.
        head: everything above the rows, kept letter by letter.
    """

    titles: Mapping[str, str]
    runs: Mapping[str, Sequence[Job]]
    rows: Sequence[Row]
    head: str


def read_table(path: str | Path) -> Table:
    """Reads a file of rows.

    Raises:
        DataError: no YAML, a section or field that is missing or unknown, an id that stands twice, or a run, recipe or
            table that is not there.
    """
    path = Path(path)
    text = path.read_text(encoding="utf-8")
    try:
        content: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (OmegaConfBaseException, ValueError) as error:
        raise DataError(f"file must be YAML, got: {str(error).splitlines()[0]}. Mend it", path=path) from error
    except Exception as error:  # the parser's own exceptions, which OmegaConf lets through
        raise DataError(f"file must be YAML, got: {str(error).splitlines()[0]}. Mend it", path=path) from error
    missing = [name for name in _SECTIONS if not isinstance(content, dict) or name not in content]
    if missing or _ROWS not in text:
        raise DataError(f"file must have the sections {', '.join(_SECTIONS)}, got none of {missing}. Add it", path=path)
    rows = [_row(values, content, path) for values in content["rows"]]
    twice = {row.id for i, row in enumerate(rows) if row.id in {other.id for other in rows[:i]}}
    if twice:
        raise DataError(f"must be unique, got {sorted(twice)} twice. Rename one", path=path, field="rows.id")
    runs = {name: _jobs(name, run, content["recipes"], path) for name, run in content["runs"].items()}
    return Table(content["tables"], runs, rows, text[: text.index(_ROWS) + len(_ROWS)])


def _row(values: Mapping[str, Any], content: Mapping[str, Any], path: Path) -> Row:
    names = {field.name for field in fields(Row)}
    if set(values) != names:
        wrong = sorted(names.symmetric_difference(values))
        raise DataError(f"row must have the fields {sorted(names)}, got a difference in {wrong}. Mend it", path=path)
    row = Row(**values)
    for field, name, section in (("table", row.table, "tables"), ("run", row.run, "runs")):
        if name not in content[section]:
            message = f"must be one of `{section}`, got {name!r}. Add it there"
            raise DataError(message, path=path, field=f"{row.id}.{field}")
    if row.metric.count(":") != 1:
        message = f"must be a file, a colon and a dotted path, got {row.metric!r}. Write it so"
        raise DataError(message, path=path, field=f"{row.id}.metric")
    return row


def _jobs(name: str, run: Mapping[str, Any], recipes: Mapping[str, Sequence[str]], path: Path) -> list[Job]:
    folder = FOLDER / name
    places = [(folder / f"seed-{seed}", {"seed": seed}) for seed in run.get("seeds", [])] or [(folder, {})]
    try:
        return [
            Job(
                place,
                [command.format(**{**run, **seed, "folder": place.as_posix()}) for command in recipes[run["recipe"]]],
            )
            for place, seed in places
        ]
    except KeyError as error:
        message = f"run must name a recipe and give its variables, got none of {error}. Add it"
        raise DataError(message, path=path, field=f"runs.{name}") from error


def write_table(path: str | Path, table: Table) -> None:
    """Writes the rows back, one a line, under an unchanged head."""
    lines = (f"  - {{{', '.join(f'{k}: {json.dumps(v)}' for k, v in asdict(row).items())}}}\n" for row in table.rows)
    with atomic.open_file(path) as handle:
        handle.write(table.head + "".join(lines))


def chosen(rows: Sequence[Row], prefixes: Sequence[str]) -> list[Row]:
    """The rows whose id begins with one of the prefixes.

    Raises:
        RagxError: a prefix of no row.
    """
    for prefix in prefixes:
        if not any(row.id.startswith(prefix) for row in rows):
            raise RagxError(f"rows must begin the id of a row, got {prefix!r}. See the ids in the file")
    return [row for row in rows if row.id.startswith(tuple(prefixes))]


def run_rows(
    table: Table, rows: Sequence[Row], *, root: str | Path, reuse: bool
) -> tuple[dict[str, Row], dict[str, str]]:
    """Runs what makes the rows, each run once; a run that fails spoils no other.

    Args:
        root: the folder the commands are started in.
        reuse: read the metric files that are there.

    Returns:
        The rows with a new value by id, and why the others have none.
    """
    root = Path(root)
    done: dict[str, Row] = {}
    failed: dict[str, str] = {}
    commit, day = commit_of(root), date.today().isoformat()
    for run in dict.fromkeys(row.run for row in rows):
        wanted = [row for row in rows if row.run == run]
        for job in table.runs[run]:
            if not (reuse and all(_file(row, job, root).exists() for row in wanted)):
                error = _run(run, job.commands, root)
                if error is not None:
                    failed |= {row.id: error for row in wanted}
        for row in wanted:
            if row.id in failed:
                continue
            try:
                values = [_value(row, _file(row, job, root)) for job in table.runs[run]]
            except RagxError as problem:
                failed[row.id] = str(problem)
            else:
                low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
                ours = round(fmean(values), 2)
                done[row.id] = replace(row, ours=ours, low=low, high=high, commit=commit, date=day)
    return done, failed


def _run(name: str, commands: Sequence[str], root: Path) -> str | None:
    """Why a job failed, None where it did not."""
    for command in commands:
        logger.info("%s: %s", name, command)
        words = [sys.executable if word == "python" else word for word in shlex.split(command)]
        ended = subprocess.run(
            words, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if ended.returncode != 0:
            return f"{command}\nended with exit status {ended.returncode}:\n{ended.stdout[-_TAIL:].strip()}"
    return None


def _file(row: Row, job: Job, root: Path) -> Path:
    return root / job.folder / row.metric.split(":")[0]


def _value(row: Row, file: Path) -> float:
    """The metric in percent."""
    path = row.metric.split(":")[1]
    if not file.exists():
        raise RagxError(f"{row.id}: {file} must be there after the run, got no such file. Mend the row")
    value: Any = json.loads(file.read_text(encoding="utf-8"))
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RagxError(f"{row.id}: {path} of {file} must be a number, got {value!r}. Mend the row")
    return round(100 * float(value), 2)
