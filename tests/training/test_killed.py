"""SIGKILL at any moment, again and again, in one process or in one of two: the run ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from ragx.training.metrics_log import TIMINGS, read_metrics
from tests.training.test_processes import FILES, contents, start

SETTINGS: dict[str, Any] = {
    "steps": 12,
    "eval_every": 3,
    "save_every": 2,
    "gradient_accumulation": 2,
    "reduction": "mean_sequence",
}
KILLS = 4


def outcome(run_dir: Path) -> dict[str, Any]:
    """All that must not depend on interruptions."""
    names = [*(f"last/{name}" for name in FILES), "last/optimizer.safetensors", *(f"best/{name}" for name in FILES)]
    rows = [{k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(run_dir / "metrics.jsonl")]
    assert len(rows) == len((run_dir / "metrics.jsonl").read_text().splitlines())
    return {"rows": rows, **contents(run_dir, *names)}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("processes", [1, 2])
def test_killed_at_random_moments_it_ends_as_the_run_never_interrupted(
    processes: int, parts: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"dropout": True, "settings": SETTINGS}
    done = start(processes, parts, tmp_path / "whole", **options)
    assert done.returncode == 0, done.stderr
    draw = random.Random(f"moments {processes}")
    run_dir, reached = tmp_path / "run", []
    for number in range(KILLS):
        kill = {str(draw.randrange(processes)): draw.uniform(2, 6)}
        done = start(processes, parts, run_dir, kill=kill, **options)
        reached.append(len(read_metrics(run_dir / "metrics.jsonl")))
        if done.returncode == 0:  # it was through before its time had come
            break
        assert processes > 1 or done.returncode == -signal.SIGKILL, (number, kill, done.stderr)
        if number == 1:  # another place does as well
            run_dir = run_dir.rename(tmp_path / "moved")
    assert reached[0] < SETTINGS["steps"], "the first kill came too late to show anything"
    if done.returncode != 0:
        done = start(processes, parts, run_dir, **options)
        assert done.returncode == 0, done.stderr
    assert outcome(run_dir) == outcome(tmp_path / "whole")
    left = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
    assert left == ["best", "last"]  # nothing that a kill left behind
