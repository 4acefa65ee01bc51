"""Rows of a reproduction: read, run, compared, written back, rendered; and the file that ships with the project."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from ragx.errors import DataError, RagxError
from ragx.experiments.reproduce import FOLDER, chosen, read_table, run_rows, write_table
from ragx.experiments.reproduce_tables import END, START, comparison, render, render_into
from tests.scripts import ROOT, run_script

SHIPPED = ROOT / "configs" / "reproduction.yaml"
HEAD = """# kept as it is
tables: {one: "Table 1: made up", two: "Table 2: empty", three: "Table 3: never run"}
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
        "paper": 44.5, "ours": None, "low": None, "high": None, "tolerance": 0.5, "commit": None, "date": None, **given,
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


SEEDED = HEAD.replace(
    "  fail:", "  seeded:\n    - python -c \"f = open('ran', 'a'); f.write('{seed} {folder} ')\"\n  fail:"
).replace("good: {recipe: write, name: metrics}", "good: {recipe: seeded, seeds: [0, 1]}")


def result(root: Path, seed: int, value: float) -> None:
    folder = root / FOLDER / "good" / f"seed-{seed}"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"a": {"2016-12": value}}))


def test_a_run_with_seeds_is_run_once_a_seed_and_gives_mean_and_range(tmp_path: Path) -> None:
    result(tmp_path, 0, 0.9)
    result(tmp_path, 1, 0.6)
    table = read_table(write(tmp_path / "t.yaml", row("a", metric="results.json:a.2016-12"), head=SEEDED))
    done, failed = run_rows(table, table.rows, root=tmp_path, reuse=False)
    assert (done["a"].ours, done["a"].low, done["a"].high) == (75.0, 60.0, 90.0) and not failed
    folders = [f"{FOLDER.as_posix()}/good/seed-{seed}" for seed in (0, 1)]
    assert (tmp_path / "ran").read_text().split() == ["0", folders[0], "1", folders[1]]


def test_reuse_runs_only_the_seeds_that_are_not_there_and_no_mean_leaves_one_out(tmp_path: Path) -> None:
    result(tmp_path, 0, 0.9)
    table = read_table(write(tmp_path / "t.yaml", row("a", metric="results.json:a.2016-12"), head=SEEDED))
    done, failed = run_rows(table, table.rows, root=tmp_path, reuse=True)
    assert (tmp_path / "ran").read_text().split()[0::2] == ["1"]
    assert not done and "seed-1/results.json must be there after the run" in failed["a"]


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
        row("a", ours=44.6, low=44.1, high=45.0, commit="abc1234", date="2026-01-02"),
        row("b", run="bad", ours=40.0, paper=44.5, commit="abc1234", date="2026-01-02"),
        row("c", model="BART"),
        row("d", model="own", paper=None),
        row("e", table="three"),
    ]
    assert render(read_table(write(tmp_path / "t.yaml", *rows))).splitlines() == [
        "**Table 1: made up**",
        "",
        "| | | a | b | c | d |",
        "|---|---|---:|---:|---:|---:|",
        "| RAG | paper | 44.5 | 44.5 |  |  |",
        "|  | ours | 44.6 (44.1 - 45.0) | 40.0 (differs by -4.5) |  |  |",
        "| BART | paper |  |  | 44.5 |  |",
        "|  | ours |  |  | not run |  |",
        "| own | ours |  |  |  | not run |",
        "",
        "2 of 5 cells were run; nobody ran the others. In percent.",
        "No cell was run of: Table 3 (1).",
        "",
        "* `good`, `bad`: commit abc1234, 2026-01-02",
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: Callable[[float], None]
) -> None:
    made(0.30)
    path = write(tmp_path / "t.yaml", row("a"), row("b", run="bad"))
    page = tmp_path / "page.md"
    page.write_text(f"{START}\n{END}\n")
    given = ["table=t.yaml", "rows=[a]", "reuse=true", "render=page.md"]
    assert run_script("reproduce", *given, folder=tmp_path) == 1
    assert "differs by -14.5" in capsys.readouterr().out
    assert [r.ours for r in read_table(path).rows] == [30.0, None]
    assert "30.0 (differs by -14.5)" in page.read_text()


MODELS = {"BART": "closed_book", "RAG-Token": "rag_token", "RAG-Sequence": "rag_sequence"}
COLUMNS = (
    "nq.exact_match", "tqa.exact_match", "wq.exact_match", "ct.regex_match", "jeopardy.bleu_1", "jeopardy.q_bleu_1",
    "msmarco.rouge_l", "msmarco.bleu_1", "fever3.label_accuracy", "fever2.label_accuracy",
)  # fmt: skip
# As printed in arXiv:2005.11401v4. FEVER has one figure for both RAG models, here RAG-Token's.
TABLE_1 = {"RAG-Token": (44.1, 55.2, 45.5, 50.0), "RAG-Sequence": (44.5, 56.8, 45.2, 52.2)}
TABLE_2 = {
    "BART": (15.1, 19.7, 38.2, 41.6, 64.0, 81.1),
    "RAG-Token": (17.3, 22.2, 40.1, 41.5, 72.5, 89.5),
    "RAG-Sequence": (14.7, 21.4, 40.8, 44.2),
}
TABLE_5 = {"Gold": (89.6, 90.0), "BART": (70.7, 32.4), "RAG-Token": (77.8, 46.8), "RAG-Sequence": (83.5, 53.8)}
TABLE_6 = {
    ("bm25", "RAG-Token"): (29.7, 41.5, 32.1, 33.1, 17.5, 22.3, 55.5, 48.4, 75.1, 91.6),
    ("bm25", "RAG-Sequence"): (31.8, 44.1, 36.6, 33.8, 11.1, 19.5, 56.5, 46.9),
    ("frozen", "RAG-Token"): (37.8, 50.1, 37.1, 51.1, 16.7, 21.7, 55.9, 49.4, 72.9, 89.4),
    ("frozen", "RAG-Sequence"): (41.2, 52.1, 41.8, 52.6, 11.8, 19.6, 56.7, 47.3),
    ("learned", "RAG-Token"): (43.5, 54.8, 46.5, 51.9, 17.9, 22.6, 56.2, 49.4, 74.5, 90.6),
    ("learned", "RAG-Sequence"): (44.0, 55.8, 44.9, 53.4, 15.3, 21.5, 57.2, 47.5),
}


def test_the_papers_figures_are_in_the_file_as_printed() -> None:
    rows = read_table(SHIPPED).rows
    paper = {r.id: r.paper for r in rows if not r.id.startswith("nano.")}
    printed: dict[str, float] = {}
    for model, values in TABLE_1.items():
        printed |= {f"table1.{c.split('.')[0]}.{MODELS[model]}": v for c, v in zip(COLUMNS[:4], values, strict=True)}
    for model, values in TABLE_2.items():
        printed |= {f"table2.{c}.{MODELS[model]}": v for c, v in zip(COLUMNS[4:], values, strict=False)}
    for model, values in TABLE_5.items():
        name = MODELS.get(model, "gold")
        printed |= {f"table5.{c}.{name}": v for c, v in zip(("msmarco", "jeopardy"), values, strict=True)}
    for (retriever, model), values in TABLE_6.items():
        printed |= {f"table6.{c}.{retriever}.{MODELS[model]}": v for c, v in zip(COLUMNS, values, strict=False)}
    swaps = {"2016.2016": 70.0, "2018.2018": 68.0, "2018.2016": 12.0, "2016.2018": 4.0}
    printed |= {f"hot_swap.{cell}": v for cell, v in swaps.items()}
    assert {name: value for name, value in paper.items() if value is not None} == printed
    assert {name.split(".")[0] for name, value in paper.items() if value is None} == {"figure2", "figure3"}


def test_the_file_has_no_figure_without_its_origin_and_no_empty_table() -> None:
    table = read_table(SHIPPED)
    assert {r.table for r in table.rows} == set(table.titles)
    assert all(r.ours is None or (r.commit and r.date) for r in table.rows)
    assert {r.run for r in table.rows} == set(table.runs)
    assert all((r.low is None) == (r.ours is None or len(table.runs[r.run]) == 1) for r in table.rows)
    one = "nano.retrieval"  # no seed in it
    nano = [row for row in table.rows if row.id.startswith("nano.")]
    assert all(len(table.runs[row.run]) == 3 or row.run.startswith(one) for row in nano)


def test_every_override_of_the_file_composes() -> None:
    """Misspelt keys and groups fail here; the files that the commands read need not be there."""
    jobs = [job for jobs in read_table(SHIPPED).runs.values() for job in jobs]
    commands = {command for job in jobs for command in job.commands}
    seen: set[tuple[str, str]] = set()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "configs")):
        for command in sorted(commands, key=lambda command: (-len(command.split()), command)):
            _, script, *overrides = shlex.split(command)
            # Paths of runs differ in each command and are no keys or groups.
            told = {(script, o.partition("=")[0] if "runs/reproduction" in o else o) for o in overrides}
            if not told <= seen:
                seen |= told
                compose(Path(script).stem, [o for o in overrides if not o.startswith("hydra.")])
    scripts = {Path(script).stem for script, _ in seen}
    assert scripts >= {
        "build_index",
        "train",
        "generate",
        "evaluate",
        "evaluate_retrieval",
        "n_docs",
        "hot_swap",
        "demo",
    }
