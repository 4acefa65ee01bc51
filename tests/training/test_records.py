"""metrics.jsonl, the choice of the best checkpoint, and settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ragx.errors import ConfigError
from ragx.training.metrics_log import MetricsLog, read_metrics
from ragx.training.selection import Selection
from ragx.training.settings import TrainingSettings, changes


def test_resumed_steps_stand_once_and_torn_lines_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for step in range(1, 51):
            log.append({"step": step, "loss": 1.0})
    with path.open("a") as handle:
        handle.write('{"step": 51, "lo')
    with MetricsLog(path, after_step=40) as log:
        for step in range(41, 61):
            log.append({"step": step, "loss": 2.0})
    assert [row["step"] for row in read_metrics(path)] == list(range(1, 61))
    assert [row["loss"] for row in read_metrics(path)] == [1.0] * 40 + [2.0] * 20
    assert len(path.read_text().splitlines()) == 60


def test_of_two_rows_of_a_step_the_last_wins(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "loss": 5}\n{"step": 1, "loss": 3}\n{"step": 2, "loss": 4}\n')
    assert read_metrics(path) == [{"step": 1, "loss": 3}, {"step": 2, "loss": 4}]


def test_a_value_that_is_not_finite_becomes_null(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.append({"step": 1, "loss": float("nan"), "grad_norm": float("inf")})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": None, "grad_norm": None}]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        ("max", [0.2, 0.5, 0.4], 2),
        ("min", [3.0, 1.0, 2.0], 2),
        ("max", [NAN, 0.1, NAN], 2),
        ("min", [NAN, 0.1, NAN], 2),
        ("min", [0.5, 0.5, 0.5], 1),
        ("max", [INF, 0.1], 2),
        ("min", [NAN], None),
    ],
)
def test_the_best_has_the_named_metric_and_direction(mode: str, values: list[float], best: int | None) -> None:
    selection = Selection("metric", mode)
    for step, value in enumerate(values, start=1):
        selection.consider({"metric": value, "other": -step}, step)
    assert selection.step == best


def test_an_evaluation_after_a_skipped_step_is_never_the_best() -> None:
    selection = Selection("metric", "max")
    assert not selection.consider({"metric": 1.0}, 1, eligible=False)
    assert selection.consider({"metric": 0.1}, 2)


def test_patience_counts_evaluations_since_the_best() -> None:
    selection = Selection("metric", "max")
    stopped = []
    for step, value in enumerate([0.1, 0.3, 0.2, NAN, 0.1], start=1):
        selection.consider({"metric": value}, step)
        stopped.append(selection.exhausted(2))
    assert stopped == [False, False, False, True, True]
    assert not selection.exhausted(0)


def test_a_misspelt_metric_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="best_metric must be one of exact_match, nll, got 'exact_macth'"):
        Selection("exact_macth", "max").require_metric({"nll": 1.0, "exact_match": 0.0})


SETTINGS = TrainingSettings(steps=10, batch_size=4)


def test_good_settings_have_no_problem() -> None:
    assert SETTINGS.problems() == []


def test_all_problems_are_told_at_once_with_their_keys() -> None:
    wrong = replace(SETTINGS, schedule="linar", generator_lr=-1.0, adam_beta1=1.0)
    wrong = replace(wrong, gradient_accumulation=5, warmup_steps=11)
    assert [problem.split(" got ")[0] for problem in wrong.problems()] == [
        "training.schedule must be one of constant, linear, cosine,",
        "training.generator_lr must be finite and at least 0,",
        "training.adam_beta1 must be at least 0 and below 1,",
        "training.gradient_accumulation must be between 1 and batch_size (4),",
        "training.warmup_steps must be at most steps (10),",
    ]


def test_changes_are_named_key_by_key_and_harmless_ones_are_free() -> None:
    before = {"steps": 10, "batch_size": 4, "generator_lr": 3e-5, "save_every": 0, "progress": True}
    after = TrainingSettings(steps=10, batch_size=8, generator_lr=1e-4, save_every=5, progress=False)
    assert changes(before, after) == [
        "training.batch_size must equal 4 of the interrupted run, got 8.",
        "training.generator_lr must equal 3e-05 of the interrupted run, got 0.0001.",
    ]


@pytest.mark.parametrize(
    ("schedule", "steps", "refused"), [("constant", 20, False), ("constant", 5, True), ("linear", 20, True)]
)
def test_only_a_run_at_a_constant_rate_may_be_made_longer(schedule: str, steps: int, refused: bool) -> None:
    found = changes({"steps": 10, "schedule": schedule}, replace(SETTINGS, schedule=schedule, steps=steps))
    assert bool(found) == refused
