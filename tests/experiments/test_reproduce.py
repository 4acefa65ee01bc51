"""Rows of a reproduction: read, run, compared, written back, rendered; and the file that ships with the project."""

from __future__ import annotations

import json
import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from ragx.errors import DataError, RagxError
from ragx.experiments.reproduce import FOLDER, chosen, read_table, run_rows, write_table
from ragx.experiments.reproduce_tables import END, START, comparison, render, render_into

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "configs" / "reproduction.yaml"
HEAD = """# kept as it is
tables: {one: "Table 1: made up", two: "Table 2: empty"}
recipes:
  write:
    - python -c "print('{name}')"
  fail:
    - python -c "print('why it failed'); raise SystemExit(3)"
runs:
  good: {recipe: write, name: metrics}
  bad: {recipe: fail}
rows:
"""


def row(name: str, **given: Any) -> dict[str, Any]:
    return {
        "id": name, "table": "one", "model": "RAG", "column": name, "run": "good", "metric": "metrics.json:exact_match",
        "paper": 44.5, "ours": None, "tolerance": 0.5, "commit": None, "date": None, **given,
    }  # fmt: skip


def write(path: Path, *rows: dict[str, Any], head: str = HEAD) -> Path:
    lines = (f"  - {{{', '.join(f'{k}: {json.dumps(v)}' for k, v in values.items())}}}\n" for values in rows)
    path.write_text(head + "".join(lines))
    return path


@pytest.fixture
def made(tmp_path: Path) -> Callable[[float], None]:
    """Writes the metric of the run `good`."""

    def made(value: float) -> None:
        folder = tmp_path / FOLDER / "good"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").write_text(json.dumps({"exact_match": value}))

    return made


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({"ours": 44.0}, "OK"),
        ({"ours": 45.01}, "differs by +0.5"),
        ({"ours": 43.0}, "differs by -1.5"),
        ({}, "not run"),
        ({"ours": 44.5, "tolerance": None}, "no comparison"),
        ({"ours": 44.5, "paper": None}, "no comparison"),
    ],
)
def test_verdicts(tmp_path: Path, given: dict[str, Any], verdict: str) -> None:
    (found,) = read_table(write(tmp_path / "t.yaml", row("a", **given))).rows
    assert found.verdict == verdict
    assert comparison([found]).endswith(verdict)


def test_a_file_is_written_back_letter_by_letter(tmp_path: Path) -> None:
    for path in (write(tmp_path / "t.yaml", row("a"), row("b", ours=1.25)), SHIPPED):
        copy = tmp_path / "copy.yaml"
        write_table(copy, read_table(path))
        assert copy.read_text() == path.read_text()


def test_a_run_that_fails_spoils_no_other_and_shows_its_end(tmp_path: Path, made: Callable[[float], None]) -> None:
    made(0.4449)
    path = write(tmp_path / "t.yaml", row("a"), row("b", run="bad"), row("c", metric="metrics.json:f1"))
    table = read_table(path)
    done, failed = run_rows(table, [*table.rows[1:], table.rows[0]], root=tmp_path, reuse=True)
    assert (done["a"].ours, done["a"].verdict) == (44.49, "OK") and done["a"].date
    assert "exit status 3" in failed["b"] and "why it failed" in failed["b"]
    assert "f1 of" in failed["c"] and "must be a number, got None" in failed["c"]


def test_commands_are_run_once_for_all_rows_of_a_run(tmp_path: Path) -> None:
    count = "python -c \"f = open('count', 'a'); f.write('x')\""
    head = HEAD.replace("  fail:", f"  count:\n    - {json.dumps(count)}\n  fail:")
    head = head.replace("recipe: write", "recipe: count")
    table = read_table(write(tmp_path / "t.yaml", row("a"), row("b"), head=head))
    _, failed = run_rows(table, table.rows, root=tmp_path, reuse=False)
    assert (tmp_path / "count").read_text() == "x"
    assert "must be there after the run, got no such file" in failed["a"]


def test_reuse_reads_what_is_there_and_a_star_is_a_mean(tmp_path: Path) -> None:
    for seed, value in enumerate((0.9, 0.6)):
        folder = tmp_path / FOLDER / "bad" / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps({"a": {"2016-12": value}}))
    table = read_table(write(tmp_path / "t.yaml", row("a", run="bad", metric="seed-*/results.json:a.2016-12")))
    done, failed = run_rows(table, table.rows, root=tmp_path, reuse=True)
    assert done["a"].ours == 75.0 and not failed
    assert "exit status 3" in run_rows(table, table.rows, root=tmp_path, reuse=False)[1]["a"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a"), row("a")], r"t.yaml: rows.id: must be unique, got \['a'\] twice"),
        ([row("a", run="none")], r"t.yaml: a.run: must be one of `runs`, got 'none'"),
        ([row("a", table="none")], r"t.yaml: a.table: must be one of `tables`, got 'none'"),
        ([row("a", metric="metrics.json")], r"a.metric: must be a file, a colon and a dotted path"),
        ([{**row("a"), "papers": 1}], r"row must have the fields .*, got a difference in \['papers'\]"),
    ],
)
def test_bad_rows_are_refused(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(write(tmp_path / "t.yaml", *rows))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("rows: [\n", "file must be YAML"),
        ("tables: {}\nrows:\n", r"got none of \['recipes', 'runs'\]"),
        (HEAD.replace("recipe: fail", "recipe: other"), "runs.bad: run must name a recipe and give its variables"),
        (HEAD.replace(", name: metrics", ""), "runs.good: run must name a recipe and give its variables"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(write(tmp_path / "t.yaml", row("a"), head=head))


def test_rows_are_chosen_by_how_their_ids_begin(tmp_path: Path) -> None:
    rows = read_table(write(tmp_path / "t.yaml", row("a.1"), row("a.2"), row("b"))).rows
    assert [r.id for r in chosen(rows, ["a", "a.1"])] == ["a.1", "a.2"]
    with pytest.raises(RagxError, match="rows must begin the id of a row, got 'c'"):
        chosen(rows, ["b", "c"])


def test_tables_have_the_papers_layout_and_say_what_nobody_ran(tmp_path: Path) -> None:
    rows = [
        row("a", ours=44.6, commit="abc1234", date="2026-01-02"),
        row("b", ours=40.0, paper=44.5, commit="abc1234", date="2026-01-02"),
        row("c", model="BART"),
        row("d", model="own", paper=None),
    ]
    assert render(read_table(write(tmp_path / "t.yaml", *rows))).splitlines() == [
        "**Table 1: made up**",
        "",
        "| | | a | b | c | d |",
        "|---|---|---:|---:|---:|---:|",
        "| RAG | paper | 44.5 | 44.5 |  |  |",
        "|  | ours | 44.6 | 40.0 (differs by -4.5) |  |  |",
        "| BART | paper |  |  | 44.5 |  |",
        "|  | ours |  |  | not run |  |",
        "| own | ours |  |  |  | not run |",
        "",
        "2 of 4 cells were run; nobody ran the others. In percent.",
        "",
        "* `good`: commit abc1234, 2026-01-02",
    ]


def test_only_what_stands_between_the_markers_changes(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    render_into(page, "new\n")
    assert page.read_text() == f"before\n{START}\nnew\n{END}\nafter\n"
    for broken in ("no marker\n", f"{END}{START}\n", f"{START}{START}{END}\n"):
        page.write_text(broken)
        with pytest.raises(DataError, match="file must hold <!-- reproduction --> and .* once each"):
            render_into(page, "new\n")


def test_the_script_compares_writes_and_renders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(0.30)
    path = write(tmp_path / "t.yaml", row("a"), row("b", run="bad"))
    page = tmp_path / "page.md"
    page.write_text(f"{START}\n{END}\n")
    arguments = [f"table={path}", "rows=[a]", "reuse=true", f"render={page}", f"hydra.run.dir={tmp_path}/run"]
    monkeypatch.setattr(sys, "argv", ["reproduce.py", *arguments])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(str(ROOT / "scripts" / "reproduce.py"), run_name="__main__")
    assert "differs by -14.5" in capsys.readouterr().out
    assert [r.ours for r in read_table(path).rows] == [30.0, None]
    assert "30.0 (differs by -14.5)" in page.read_text()


def test_the_papers_figures_are_in_the_file_as_printed() -> None:
    table = read_table(SHIPPED)
    paper = {r.id: r.paper for r in table.rows}
    assert [paper[f"table1.{d}.rag_sequence"] for d in ("nq", "tqa", "wq", "ct")] == [44.5, 56.8, 45.2, 52.2]
    swaps = ("2016.2016", "2018.2018", "2018.2016", "2016.2018")
    assert [paper[f"hot_swap.{cell}"] for cell in swaps] == [70, 68, 12, 4]
    assert (paper["table2.fever3.label_accuracy.rag_token"], paper["table5.msmarco.rag_sequence"]) == (72.5, 83.5)
    assert paper["table6.fever3.label_accuracy.bm25.rag_token"] == 75.1
    assert paper["table6.wq.exact_match.learned.rag_token"] == 46.5
    assert {r.table for r in table.rows} == set(table.titles)
    assert all(r.ours is None or (r.commit and r.date) for r in table.rows)


def test_every_override_of_the_file_composes() -> None:
    """Misspelt keys and groups fail here; the files that the commands read need not be there."""
    commands = {command for commands in read_table(SHIPPED).commands.values() for command in commands}
    seen: set[tuple[str, str]] = set()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        for command in sorted(commands, key=lambda command: (-len(command.split()), command)):
            _, script, *overrides = shlex.split(command)
            # Paths of runs differ in each command and are no keys or groups.
            told = {(script, o.partition("=")[0] if "runs/reproduction" in o else o) for o in overrides}
            if not told <= seen:
                seen |= told
                compose(Path(script).stem, [o for o in overrides if not o.startswith("hydra.")])
    assert {Path(script).stem for script, _ in seen} == {"train", "generate", "evaluate", "hot_swap", "demo"}
