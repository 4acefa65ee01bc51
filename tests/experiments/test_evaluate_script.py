"""scripts/evaluate.py on a file and its shuffled copy, with another file to compare, and with titles looked up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragx.data.predictions import write_predictions
from ragx.data.tasks import write_examples
from ragx.records import Example, PassageKey, Prediction, RetrievedPassage
from tests.scripts import metrics, run_script

Run = Callable[..., dict[str, Any]]
GOLD = PassageKey("p1", "psgs", "0")


def prediction(identity: str, answer: str) -> Prediction:
    passages = tuple(
        RetrievedPassage(PassageKey(name, "psgs", "0"), title, "Lima leads.", "", score, 0.5, 0.5, (0, 11))
        for name, title, score in (("p2", "Peru", 2.0), ("p3", "Chile", 1.0))
    )
    return Prediction(identity, f"{identity}?", answer, -1.0, ((answer, -1.0),), passages, (), 0, {})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write_examples("q.jsonl", [Example(str(i), f"{i}?", ("Lima",), gold=(GOLD,)) for i in range(4)])
    found = [prediction(str(i), answer) for i, answer in enumerate(("Lima", "Lima", "Ica", "Lima"))]
    write_predictions("p.jsonl", found)
    write_predictions("shuffled.jsonl", [found[i] for i in (2, 0, 3, 1)])
    write_predictions("other.jsonl", [prediction(str(i), "Ica") for i in range(4)])
    Path("psgs.tsv").write_text("id\ttext\ttitle\np1\tx\tPeru\np2\ty\tPeru\n")

    def run(*overrides: str) -> dict[str, Any]:
        given = ["data=natural_questions", "data.questions=q.jsonl", "data.passages=psgs.tsv", "success_at=[1,2]"]
        assert run_script("evaluate", *given, *overrides, folder=tmp_path) == 0
        return metrics(tmp_path, "run")

    return run


def test_a_shuffled_file_gives_the_same_file_of_metrics(run: Run) -> None:
    first = run("predictions=p.jsonl", "compare=other.jsonl")
    raw = Path("runs/run/metrics.json").read_bytes()
    assert run("predictions=shuffled.jsonl", "compare=other.jsonl") == first
    assert Path("runs/run/metrics.json").read_bytes() == raw
    assert first["exact_match"]["value"] == 0.75
    difference = first["difference"]["exact_match"]
    assert (difference["value"], difference["n"]) == (0.75, 4)
    assert difference["ci95"][0] <= 0.75 <= difference["ci95"][1] and 0 < difference["p_value"] <= 1


def test_titles_are_looked_up_where_asked_for(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("predictions=p.jsonl")["title_success_at"]["1"]["value"] is None
    assert "title_success_at" not in capsys.readouterr().out
    found = run("predictions=p.jsonl", "gold_titles=true")
    # Another passage of the gold article stands first.
    assert (found["success_at"]["1"]["value"], found["title_success_at"]["1"]["value"]) == (0.0, 1.0)
    assert found["title_precision_at"]["2"]["value"] == 0.5 and found["r_precision"]["value"] == 1.0
    assert "title_success_at.1         1.000  [1.000, 1.000]  n 4" in capsys.readouterr().out
