"""The table of a sweep from files written by hand: spread over seeds, pairs with a baseline, what failed or is lost."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from ragx.errors import RagxError
from ragx.evaluation.significance import paired_bootstrap
from ragx.experiments.ablations_summary import summarize
from ragx.experiments.ablations_sweep import job_folder, settings_of
from ragx.experiments.ablations_tables import markdown, write_tables

METRICS = ["exact_match", "success_at.1"]
QUESTIONS = [f"q{number}" for number in range(8)]


def job(sweep: Path, right: set[int] | None, **settings: Any) -> dict[str, Any]:
    """A finished job that answers the questions `right`; None is a job that left nothing."""
    overrides = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    folder = job_folder(overrides)
    if right is not None:
        (sweep / folder).mkdir(parents=True)
        rows = {question: float(number in right) for number, question in enumerate(QUESTIONS)}
        mean = {"value": len(right) / 8, "n": 8, "n_null": 0, "ci95": [0, 1]}
        unscored = {"value": None, "n": 0, "n_null": 8, "ci95": None}
        result = {
            "folder": folder,
            "overrides": settings_of(overrides),
            "seed": settings["experiment__seed"],
            "metrics": {"exact_match": mean, "success_at.1": unscored},
        }
        (sweep / folder / "result.json").write_text(json.dumps(result))
        scores = {"exact_match": rows, "success_at.1": dict.fromkeys(QUESTIONS)}
        (sweep / folder / "scores.json").write_text(json.dumps(scores))
    return {"folder": folder, "overrides": settings_of(overrides)}


def asked(sweep: Path, jobs: list[dict[str, Any]], **baseline: str) -> None:
    marks = {key.replace("__", "."): value for key, value in baseline.items()}
    content = {"format": 1, "name": "try", "metrics": METRICS, "baseline": marks, "jobs": jobs}
    (sweep / "sweep.json").write_text(json.dumps(content))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two axes and two seeds; one arm has lost a seed, another one both."""
    jobs = [
        job(tmp_path, {0, 1, 2, 3}, model__n_docs=5, training__steps=2, experiment__seed=0),
        job(tmp_path, {0, 1, 2, 3, 4, 5}, model__n_docs=5, training__steps=2, experiment__seed=1),
        job(tmp_path, {0, 1, 2, 3, 4, 5, 6, 7}, model__n_docs=10, training__steps=2, experiment__seed=0),
        job(tmp_path, None, model__n_docs=10, training__steps=2, experiment__seed=1),
        job(tmp_path, {0}, model__n_docs=5, training__steps=4, experiment__seed=0),
        job(tmp_path, {0, 1}, model__n_docs=5, training__steps=4, experiment__seed=1),
        job(tmp_path, set(), model__n_docs=10, training__steps=4, experiment__seed=0),
        job(tmp_path, {7}, model__n_docs=10, training__steps=4, experiment__seed=1),
    ]
    asked(tmp_path, jobs, model__n_docs="5")
    return tmp_path


def arm(summary: dict[str, Any], label: str) -> dict[str, Any]:
    return next(found for found in summary["arms"] if found["arm"] == label)


def test_mean_and_deviation_over_seeds(sweep: Path) -> None:
    summary = summarize(sweep)
    assert summary["axes"] == {"model.n_docs": ["5", "10"], "training.steps": ["2", "4"]}
    assert [found["arm"] for found in summary["arms"]] == [
        "n_docs=5, steps=2", "n_docs=10, steps=2", "n_docs=5, steps=4", "n_docs=10, steps=4",
    ]  # fmt: skip
    first = arm(summary, "n_docs=5, steps=2")
    assert first["seeds"] == [0, 1] and first["metrics"]["success_at.1"] is None
    assert first["metrics"]["exact_match"] == {
        "mean": pytest.approx((4 / 8 + 6 / 8) / 2),
        "std": pytest.approx(stdev([4 / 8, 6 / 8])),
        "values": [4 / 8, 6 / 8],
        "n": 8,
    }
    assert arm(summary, "n_docs=10, steps=2")["metrics"]["exact_match"]["std"] is None  # one seed


def test_an_arm_is_compared_with_the_baseline_that_is_otherwise_alike(sweep: Path) -> None:
    summary = summarize(sweep)
    assert [found["is_baseline"] for found in summary["arms"]] == [True, False, True, False]
    assert arm(summary, "n_docs=10, steps=4")["compared_with"] == "n_docs=5, steps=4"
    found = arm(summary, "n_docs=10, steps=4")["difference"]
    first = {question: (0 + (number == 7)) / 2 for number, question in enumerate(QUESTIONS)}
    second = {question: ((number == 0) + (number in (0, 1))) / 2 for number, question in enumerate(QUESTIONS)}
    expected = paired_bootstrap(first, second)
    assert found["value"] == pytest.approx((0 + 1 / 8) / 2 - (1 / 8 + 2 / 8) / 2)
    assert (found["p_value"], found["n"], found["seeds"]) == (expected.p_value, 8, [0, 1])
    assert arm(summary, "n_docs=5, steps=4")["difference"] is None


def test_only_seeds_that_both_have_are_compared(sweep: Path) -> None:
    found = arm(summarize(sweep), "n_docs=10, steps=2")["difference"]
    assert found["seeds"] == [0] and found["value"] == pytest.approx(8 / 8 - 4 / 8)  # not 8/8 - 5/8


def test_a_corpus_figure_is_compared_by_its_counts(tmp_path: Path) -> None:
    jobs = []
    for n_docs, counts in ((5, [[1, 4], [0, 2]]), (10, [[3, 4], [2, 2]])):
        jobs.append(job(tmp_path, set(), model__n_docs=n_docs, experiment__seed=0))
        scores = {"distinct_trigrams": dict(zip(QUESTIONS, counts, strict=False))}
        (tmp_path / jobs[-1]["folder"] / "scores.json").write_text(json.dumps(scores))
        path = tmp_path / jobs[-1]["folder"] / "result.json"
        result = json.loads(path.read_text())
        result["metrics"]["distinct_trigrams"] = {"value": 0.5, "n": 2}
        path.write_text(json.dumps(result))
    asked(tmp_path, jobs, model__n_docs="5")
    content = json.loads((tmp_path / "sweep.json").read_text())
    (tmp_path / "sweep.json").write_text(json.dumps({**content, "metrics": ["distinct_trigrams"]}))
    found = arm(summarize(tmp_path), "n_docs=10")["difference"]
    assert found["value"] == pytest.approx(5 / 6 - 1 / 6)


def test_what_failed_and_what_is_missing_is_named_and_not_counted(sweep: Path) -> None:
    jobs = json.loads((sweep / "sweep.json").read_text())["jobs"]
    (sweep / jobs[5]["folder"] / "failure.json").write_text(
        '{"error": "E: no", "told": "no | no", "trace": "Traceback"}'
    )
    summary = summarize(sweep)
    assert [found["folder"] for found in summary["missing"]] == [jobs[3]["folder"]]
    (failed,) = summary["failed"]
    assert (failed["folder"], failed["error"]) == (jobs[5]["folder"], "E: no")
    assert arm(summary, "n_docs=5, steps=4")["seeds"] == [0]
    text = markdown(summary)
    assert (
        "```\nno | no\n```" in text
        and "Traceback" not in text
        and f"start the sweep again: {jobs[3]['folder']}" in text
    )


def test_the_tables_say_the_same(sweep: Path) -> None:
    summary = summarize(sweep)
    write_tables(summary, sweep)
    assert json.loads((sweep / "summary.json").read_text()) == json.loads(json.dumps(summary))
    lines = (sweep / "summary.md").read_text().splitlines()
    head = "| model.n_docs | training.steps | seeds | exact_match | success_at.1 | difference in exact_match | p |"
    assert lines[0] == "### try" and lines[2] == head
    assert lines[4] == "| 5 | 2 | 2 | .625 ± .177 |  | baseline |  |"
    assert lines[5].startswith("| 10 | 2 | 1 | 1.000 |  | +0.500 (")
    with (sweep / "summary.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["seeds"] for row in rows] == ["2", "1", "2", "2"]
    assert float(rows[0]["exact_match.mean"]) == pytest.approx(0.625) and rows[0]["is_baseline"] == "True"
    assert float(rows[1]["difference"]) == pytest.approx(0.5) and rows[1]["exact_match.std"] == ""


def test_a_sweep_without_baseline_compares_nothing(sweep: Path) -> None:
    jobs = json.loads((sweep / "sweep.json").read_text())["jobs"]
    asked(sweep, jobs)
    summary = summarize(sweep)
    assert all(found["difference"] is None and not found["is_baseline"] for found in summary["arms"])
    assert "difference" not in markdown(summary)


def test_a_folder_without_a_sweep_is_named(tmp_path: Path) -> None:
    with pytest.raises(RagxError, match=r"sweep must be a folder with sweep.json, got .* without. Run scripts/ablate"):
        summarize(tmp_path)


def test_a_folder_is_named_after_its_overrides_and_told_from_all_others() -> None:
    name = job_folder(["ablation/source=bm25", "data.train=/a/b c.jsonl", "experiment.seed=0"])
    assert name.startswith("source=bm25,train=-a-b-c.jsonl,seed=0-") and "/" not in name
    assert name == job_folder(["experiment.seed=0", "ablation/source=bm25", "data.train=/a/b c.jsonl"]).replace(
        "seed=0,source=bm25,train=-a-b-c.jsonl", "source=bm25,train=-a-b-c.jsonl,seed=0"
    )  # the order shows in the readable part alone
    assert job_folder(["a.b=1"]) != job_folder(["c.b=1"])
    assert len(job_folder([f"training.key{number}=value" for number in range(50)])) < 100
