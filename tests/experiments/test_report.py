"""The page about runs: its figures are those of the files, in HTML and Markdown alike; what is missing or wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from pathlib import Path

import pytest

from ragx.errors import ConfigError, DataError
from ragx.experiments.report.files import read_runs
from ragx.experiments.report.heat_maps import figure_2
from ragx.experiments.report.make import make_report
from tests.experiments import reported
from tests.experiments.reported import EVIL, Tables, markdown_tables, prediction, write, write_demo
from tests.scripts import run_script

SECTIONS = ("results", "training", "figure-2", "figure-3", "hot-swap", "ablations", "citations", "environment")


def made(output: Path, *runs: Path, questions: int = 3) -> tuple[Tables, str]:
    page, markdown = make_report(runs, output / "report.html", title=f"Title {EVIL}", questions=questions)
    return Tables(page.read_text(encoding="utf-8")), markdown.read_text(encoding="utf-8")


def table(whole: tuple[Tables, str], caption: str) -> list[list[str]]:
    """The only table whose caption begins so."""
    (found,) = (rows for name, rows in whole[0].found.items() if name.startswith(caption))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, str]:
    """Two seeds of a demo, a sweep, a curve of two seeds and an evaluated file."""
    root = tmp_path_factory.mktemp("runs")
    runs = [write_demo(root / f"demo-{seed}", seed=seed, match=0.75 + seed / 16) for seed in (1, 0)]
    runs.append(reported.write_sweep(root / "sweep"))
    for seed, add in enumerate((0.0, 0.25)):
        reported.write_curve(root / "curve" / f"seed-{seed}", values={1: 0.25 + add, 4: 0.5 + add})
    runs.append(root / "curve")
    table = {
        "exact_match": reported.metric(0.375),
        "success_at": {"1": reported.metric(None, n=0)},
        "by_kind": {"a.b": {"exact_match": reported.metric(0.1875)}},
        "difference": {"exact_match": {"value": 0.03125, "ci95": [-0.1, 0.2], "p_value": 0.25, "n": 9}},
    }
    write(root / "evaluated" / "metrics.json", table)
    runs.append(root / "evaluated")
    return made(root, *runs)


def test_html_and_markdown_hold_the_same_tables(whole: tuple[Tables, str]) -> None:
    page, markdown = whole
    tables = markdown_tables(markdown)
    charts = {caption for caption, rows in tables.items() if rows[0][0] == "curve"}
    assert len(page.found) >= 15 and len(charts) == 3
    assert {
        caption: [[" ".join(cell.split()) for cell in row] for row in rows] for caption, rows in page.found.items()
    } == {caption: rows for caption, rows in tables.items() if caption not in charts}


def test_the_results_have_the_digits_of_the_files_with_mean_range_and_intervals(whole: tuple[Tables, str]) -> None:
    """Seeds 1 and 0 in this order on the command line, in the order of the seeds on the page."""
    rows = table(whole, "Exact match on 9 test questions (")
    assert rows[0] == ["model", "decoder", "before training", "mean over seeds", "seed 0", "seed 1", "supported"]
    assert rows[1][:3] == ["rag_token", "token_beam", "0.250"]
    assert rows[1][3:6] == ["0.781 (0.750 to 0.812)", "0.750 (0.625 to 0.875)", "0.812 (0.688 to 0.938)"]
    assert rows[1][6] == "0.875 (0.875 to 0.875)"
    assert rows[3][2:] == ["", "0.000 (0.000 to 0.000)", "0.000 (0.000 to 0.000)", "0.000 (0.000 to 0.000)", "–"]
    after = [row[1:] for row in table(whole, "Retrieval, success@k")[1:]]
    assert after == [["0.500", "0.781 (0.750 to 0.812)"], ["0.625", "1.000 (1.000 to 1.000)"]]


def test_an_evaluated_file_is_shown_with_its_kinds_and_its_difference(whole: tuple[Tables, str]) -> None:
    assert [row[1] for row in table(whole, "Evaluated files")[1:]] == ["9", "0.375 (0.312 to 0.438)", "–"]
    assert table(whole, "By kind of question") == [["kind", "exact_match"], ["a.b", "0.188 (0.125 to 0.250)"]]
    assert table(whole, "Difference from another file")[1] == ["exact_match", "0.031 (-0.100 to 0.200)", "0.2500"]


def test_a_sweep_s_arms_failures_and_differences_are_shown(whole: tuple[Tables, str]) -> None:
    arms = table(whole, "Sweep n_docs (")
    assert arms[0] == ["arm", "seeds", "exact_match", "difference", "p", "f1", "difference from"]
    assert arms[1] == ["n_docs=1, model=rag_token", "2", "0.508 (± 0.031)", "baseline", "", "–", ""]
    assert arms[4][3:] == ["+0.062 (-0.125 to 0.250)", "0.0412", "–", f"{EVIL} again"]
    assert table(whole, "Jobs of n_docs without a result")[1:] == [
        ["job-3", f"failed: no memory {EVIL}"], ["job-4", "never ended"],
    ]  # fmt: skip
    assert "0.016" not in whole[1]  # a job's own metrics.json is not shown beside the sweep


def test_figure_3_is_drawn_of_curves_and_of_sweeps(whole: tuple[Tables, str]) -> None:
    assert table(whole, "Figures by n_docs") == [
        ["n_docs", "exact match", "success@n_docs"],
        ["1", "0.375 (0.250 to 0.500)", "0.062 (0.062 to 0.062)"],
        ["4", "0.625 (0.500 to 0.750)", "0.250 (0.250 to 0.250)"],
    ]
    sweep = markdown_tables(whole[1])["Sweep n_docs over model.n_docs; its numbers stand in the table of the sweep."]
    assert sweep[1:] == [
        ["exact_match", "model=rag_token", "0.508 (at 1)", "0.578 (at 10)"],
        ["exact_match", f"model={EVIL}", "0.508 (at 1)", "0.578 (at 10)"],
    ]


def test_the_hot_swap_matrix_is_as_dark_as_it_is_right(whole: tuple[Tables, str]) -> None:
    assert table(whole, "Exact match by index and questions")[1:] == [
        ["index 2016", "0.781 (0.750 to 0.812)", "0.125 (0.125 to 0.125)"],
        ["index 2018", "0.125 (0.125 to 0.125)", "0.781 (0.750 to 0.812)"],
    ]
    shades = [attrs["style"] for tag, attrs in whole[0].tags if tag == "td" and "style" in attrs]
    assert shades[-4:] == [f"background: rgba(11, 74, 162, {value})" for value in ("0.78", "0.12", "0.12", "0.78")]


def test_audits_are_summarized_over_seeds(whole: tuple[Tables, str]) -> None:
    assert table(whole, "Citation audits, mean and range over seeds") == [
        ["figure", "rag_token"],
        ["coverage any", "0.781 (0.750 to 0.812)"],
        ["exact match", "–"],
        ["questions", "18"],
        ["claims", "2,400"],
        ["citations", "22"],
    ]
    assert table(whole, "Claims by status, summed over seeds")[1:] == [["not judged", "4"], ["supported", "14"]]
    assert table(whole, "Gates")[1][1:] == [
        "coverage_any",
        "at least 0.8",
        "0.8125",
        "FAILED",
    ]  # seed 1 was named first


def test_a_heat_map_has_the_posteriors_of_figure_2(tmp_path: Path) -> None:
    """By hand: token 1 is .6 x .9 against .4 x .2, token 2 is .6 x .1 against .4 x .8; the answer .054 against .064."""
    tables = made(tmp_path, write_demo(tmp_path / "demo"))[0].found
    assert tables["p(passage | question, token), percent"] == [
        ["passage", "prior", "Sun", " rises"], ["[1]", "60", "87", "16"], ["[2]", "40", "13", "84"],
    ]  # fmt: skip
    assert tables["p(passage | question, answer), percent"] == [
        ["passage", "prior", "the answer"], ["[1]", "60", "46"], ["[2]", "40", "54"],
    ]  # fmt: skip


def test_figure_2_shows_accepted_answers_first_and_of_those_the_ones_whose_tokens_disagree(tmp_path: Path) -> None:
    folder = write_demo(tmp_path / "demo")
    flat = ((0.5, 0.5), (0.5, 0.5))
    asked = [
        prediction("flat", rows=flat, query="flat?"),
        prediction("wrong", query="wrong?", answer="Moon rises", rows=((0.99, 0.01), (0.01, 0.99))),
        prediction("open", query="open?"),
    ]
    reported.write_predictions(folder / "predictions" / "rag_token.token_beam.jsonl", asked)
    examples = [reported.Example(p.id, p.query, ("Sun rises",)) for p in asked]
    reported.write_examples(folder / "questions.jsonl", examples)
    found = read_runs([folder])
    assert [b.question for b in figure_2(found, questions=3).blocks[:3]] == ["open?", "flat?", "wrong?"]  # type: ignore[union-attr]
    assert "not an accepted answer (accepted: Sun rises)" in figure_2(found, questions=3).blocks[2].remark  # type: ignore[union-attr]
    assert figure_2(found, questions=0).blocks == []
    shutil.rmtree(folder / "predictions")
    assert figure_2(read_runs([folder]), questions=3).command.startswith("python scripts/generate.py")


def test_many_passages_are_cut_to_those_that_matter(tmp_path: Path) -> None:
    prior = (0.5, *[0.01] * 10, 0.4)
    rows = [(0.5, 0.5), *[(0.1, 0.1)] * 10, (0.5, 0.9)]
    folder = tmp_path / "run"
    reported.write_predictions(folder / "predictions.jsonl", [prediction(prior=prior, rows=rows)])
    page, _ = made(tmp_path, folder)
    table = page.found["p(passage | question, token), percent"]
    assert [row[0] for row in table] == ["passage", "[1]", "[2]", "[3]", "[4]", "[12]"]
    assert "Left out: 7 more passages." in page.text


def test_demos_of_other_settings_stand_apart(tmp_path: Path) -> None:
    runs = [write_demo(tmp_path / "a"), write_demo(tmp_path / "b", seed=1, n_docs=10)]
    found = made(tmp_path, *runs)[0].found
    captions = [caption for caption in found if caption.startswith("Exact match on")]
    assert len(captions) == 2 and captions[0].endswith("/a)") and captions[1].endswith("/b)")
    assert all("mean over seeds" not in found[caption][0] for caption in captions)


def test_a_run_that_has_little_says_what_makes_the_rest(tmp_path: Path) -> None:
    reported.write_steps(tmp_path / "train" / "metrics.jsonl", [2.0, None, 1.0])
    page, markdown = made(tmp_path, tmp_path / "train")
    commands = re.findall(r"Nothing in these runs\. What makes it: `(.*)`", markdown)
    assert len(commands) == 6 and all(command.startswith("python scripts/") for command in commands)
    assert page.text.count("Nothing in these runs.") == 6
    assert [attrs["id"] for tag, attrs in page.tags if tag == "section"] == list(SECTIONS)
    targets = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert targets == [f"#{name}" for name in SECTIONS]


def test_every_command_that_the_page_names_is_a_script(tmp_path: Path) -> None:
    reported.write_steps(tmp_path / "train" / "metrics.jsonl", [2.0])
    _, markdown = made(tmp_path, tmp_path / "train")
    scripts = set(re.findall(r"python (scripts/\w+\.py)", markdown))
    root = Path(__file__).parents[2]
    assert len(scripts) >= 6 and all((root / script).is_file() for script in scripts)


def test_what_stands_in_runs_is_text(whole: tuple[Tables, str], tmp_path: Path) -> None:
    page, markdown = whole
    named = made(tmp_path, write_demo(tmp_path / "<script>alert(1)<" / "script> & \"x'"))[0]
    for found in (page, named):
        tags = [tag for tag, _ in found.tags]
        assert "script" not in tags and "b" not in tags and "img" not in tags
        assert found.text.count(EVIL) >= 8  # in title, questions, passages
    assert "script> & \"x'" in named.text
    assert not re.search(r"(?<!\\)<", markdown)
    assert page.text.count(f"model={EVIL}") >= 2  # in the legend of a chart


def test_nothing_comes_from_elsewhere(whole: tuple[Tables, str]) -> None:
    names = ("src", "srcset", "data", "action", "xlink:href", "href")
    links = [attrs[name] or "" for _, attrs in whole[0].tags for name in names if name in attrs]
    assert links and all(link.startswith("#") for link in links)
    assert not {"script", "link", "iframe", "img", "object", "form"} & {tag for tag, _ in whole[0].tags}
    identifiers = [attrs["id"] for _, attrs in whole[0].tags if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))  # of several drawings as well


def test_the_same_runs_give_the_same_bytes_wherever_they_lie(tmp_path: Path) -> None:
    def bytes_of(root: Path) -> list[bytes]:
        runs = [write_demo(root / "runs" / "demo"), reported.write_sweep(root / "runs" / "sweep")]
        return [path.read_bytes() for path in make_report(runs, root / "report.html", title="T", questions=1)]

    first = bytes_of(tmp_path / "one")
    assert first == bytes_of(tmp_path / "two") and b"runs/demo" in first[0]


def test_no_host_and_no_folder_above_a_run_is_written(tmp_path: Path) -> None:
    _, markdown = made(tmp_path, write_demo(tmp_path / "demo"))
    settings = markdown_tables(markdown)
    rows = next(rows for caption, rows in settings.items() if caption.startswith("Settings"))
    assert ["index.directory", ".../b/c"] in rows
    assert "home" not in markdown and socket.gethostname() not in markdown and str(tmp_path) not in markdown
    assert ["run", "python", "torch"] == settings["Versions the runs recorded"][0]


def test_what_the_runs_were_made_with_is_shown_once_where_it_is_alike(tmp_path: Path) -> None:
    """Two runs, one of which was continued with another library; the page says which is which."""
    here = {"commit": "abc1234", "changed": False, "versions": {"torch": "2.9"}, "cpus": 8, "gpus": ["H200", "H200"]}
    newer = {**here, "versions": {"torch": "2.10"}}
    for name, found in (("one", [here, newer]), ("two", [here])):
        write_demo(tmp_path / name)
        write(tmp_path / name / "environment.json", {"environments": found})
    page = made(tmp_path, tmp_path / "one", tmp_path / "two")
    first, second = (f"{tmp_path.name}/{name}" for name in ("one", "two"))
    assert table(page, f"What the runs were made with ({first}, {second})") == [
        ["key", "value"],
        ["commit", "abc1234"],
        ["changed", "false"],
        ["versions.torch", f"{first}: 2.9; {first}: 2.10; {second}: 2.9"],
        ["cpus", "8"],
        ["gpus", "[H200, H200]"],
    ]
    made_by = dict(row for row in table(page, "What made this page"))
    assert made_by["cpus"] == str(os.cpu_count()) and made_by["versions.torch"]


BAD = {
    "torn": ("results.json", '{"exact_match": ', "results.json: file must be JSON, got: Expecting value"),
    "list": ("metrics.json", "[]", "metrics.json: file must be a JSON object, got list"),
    "no field": ("results.json", '{"exact_match": {}, "exact_match_by_kind": {}}', "seed: must be there, got nothing"),
    "no number": (
        "results.json",
        '{"matrix": {"a": {"a": {"value": "high"}}}, "matched": {}, "mismatched": {}}',
        "matrix.a.a.value: must be a finite number or null, got high",
    ),
    "not finite": (
        "metrics.json",
        '{"exact_match": {"value": NaN, "n": 1, "ci95": null}}',
        "exact_match.value: must be a finite number or null, got nan",
    ),
    "steps": ("metrics.jsonl", '{"loss": 1}\n', "metrics.jsonl: lines must be objects with a step"),
    "environment": ("environment.json", "{}", "environment.json: environments: must be there, got nothing"),
    "yaml": ("config.yaml", "a: [", "config.yaml: file must be YAML, got"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_cannot_be_read_is_named_with_its_field(case: str, tmp_path: Path) -> None:
    name, text, message = BAD[case]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        made(tmp_path, tmp_path / "run")
    assert not (tmp_path / "report.html").exists()


def test_folders_that_are_no_runs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "results.json").write_text('{"accuracy": 0.5}')
    (tmp_path / "foreign" / "questions.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(ConfigError, match=r"runs must hold results.json, .* got .*foreign without"):
        read_runs([tmp_path / "foreign"])
    with pytest.raises(ConfigError, match=r"runs must name folders that are there, got .*nowhere"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="runs must name at least one folder, got none"):
        read_runs([])
    demo = write_demo(tmp_path / "demo")
    with pytest.raises(ConfigError, match=r"runs must be different folders, got .*demo twice"):
        read_runs([demo, demo])
    with pytest.raises(ConfigError, match=r"output must end in .html, got report.md"):
        make_report([demo], tmp_path / "report.md", title="T", questions=1)


def test_a_foreign_file_beside_known_ones_is_left_out(tmp_path: Path) -> None:
    demo = write_demo(tmp_path / "demo")
    (demo / "other").mkdir()
    (demo / "other" / "results.json").write_text(json.dumps({"accuracy": 0.4375}))
    assert "0.438" not in made(tmp_path, demo)[1]


def test_two_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [write_demo(tmp_path / name / "runs" / "demo", seed=i) for i, name in enumerate("ab")]
    assert read_runs(runs).runs == [str(run) for run in runs]


def test_the_script_writes_both_files_and_refuses_what_is_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_demo(tmp_path / "runs" / "demo")
    assert run_script("report", folder=tmp_path, into="report") == 0
    page, markdown = (tmp_path / "runs" / "report" / f"report.{end}" for end in ("html", "md"))
    assert capsys.readouterr().out.split() == [str(page), str(markdown)]
    assert "Runs: runs/demo\n" in markdown.read_text(encoding="utf-8") and page.is_file()
    assert run_script("report", "runs=[runs/nothing]", "output=mine.html", folder=tmp_path) == 2
    assert "error: runs must name folders that are there" in capsys.readouterr().err
    assert not (tmp_path / "mine.html").exists()
