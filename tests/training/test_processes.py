"""Several processes train as one does, with copies of the weights (DDP) or with shares of them (FSDP)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ragx.training.metrics_log import TIMINGS, read_metrics

# Options: `settings` to change; `stop`, the step before which the process ends by itself; `kill`, by rank, after how
# many step intervals (a real number, from the second on) it gets SIGKILL; `dropout`.
CHILD = """
import json, os, signal, sys, threading, time
from dataclasses import replace
from pathlib import Path
from tests.training.conftest import EXAMPLES, build_model
from tests.training.test_loop import SETTINGS, no_dropout
from ragx.training.loop import train
from ragx.training.step import Stepper

parts, run_dir, options = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
run, left = Stepper.run, options.get("kill", {}).get(os.environ.get("RANK", "0"))
began = []

def kill(delay):
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGKILL)

def stopped(self, step, *args):
    if step == options.get("stop"):
        os._exit(9)
    began.append(time.monotonic())
    if left is not None and len(began) == int(left):
        delay = (left - int(left)) * (began[-1] - began[-2])
        threading.Thread(target=kill, args=[delay], daemon=True).start()
    return run(self, step, *args)

Stepper.run = stopped
settings = replace(SETTINGS, steps=4, batch_size=5, gradient_accumulation=2, eval_every=2, reduction="mean_token")
model = build_model(parts) if options.get("dropout") else no_dropout(build_model(parts))
settings = replace(settings, **options.get("settings", {}))
train(model, EXAMPLES, settings=settings, run_dir=run_dir, dev_examples=EXAMPLES)
"""
FILES = ("generator/model.safetensors", "query_encoder/model.safetensors")


def start(processes: int, parts: Path, run_dir: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A run of CHILD; with one process without a launcher."""
    script = run_dir.parent / "child.py"
    script.write_text(CHILD)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    command = [sys.executable, *launcher, str(script), str(parts), str(run_dir), json.dumps(options)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def launch(processes: int, parts: Path, run_dir: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows of a run that must end well, unless it stops itself."""
    done = start(processes, parts, run_dir, **options)
    assert (done.returncode != 0) == ("stop" in options), done.stderr
    return [{k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(run_dir / "metrics.jsonl")]


def contents(run_dir: Path, *names: str) -> dict[str, bytes]:
    return {name: (run_dir / "checkpoints" / name).read_bytes() for name in names}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, {"passages_at_once": 2, "label_smoothing": 0.1}, {"fsdp": True}, {"fsdp": True, "passages_at_once": 2}],
    ids=["ddp", "ddp_groups", "fsdp", "fsdp_groups"],
)
def test_two_processes_with_uneven_shares_have_the_losses_and_gradients_of_one(
    settings: dict[str, Any], parts: Path, tmp_path: Path
) -> None:
    alone = {"label_smoothing": settings.get("label_smoothing", 0.0)}
    one = launch(1, parts, tmp_path / "1", settings=alone)
    two = launch(2, parts, tmp_path / "2", settings=settings)
    assert [row["step"] for row in one] == [1, 2, 3, 4]
    for mine, single in zip(two, one, strict=True):
        assert mine.keys() == single.keys()
        for key, value in single.items():
            assert mine[key] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-4)), key


@pytest.mark.slow
@pytest.mark.parametrize("fsdp", [False, True], ids=["ddp", "fsdp"])
def test_two_interrupted_processes_end_as_two_that_never_were(fsdp: bool, parts: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"dropout": True, "settings": {"fsdp": fsdp}}
    whole = launch(2, parts, tmp_path / "whole", **options)
    launch(2, parts, tmp_path / "resumed", stop=4, **options)
    assert launch(2, parts, tmp_path / "resumed", **options) == whole
    names = [*(f"last/{name}" for name in FILES), "last/optimizer.safetensors", *(f"best/{name}" for name in FILES)]
    assert contents(tmp_path / "resumed", *names) == contents(tmp_path / "whole", *names)


@pytest.mark.slow
def test_a_second_job_is_refused_by_all_its_processes(parts: Path, tmp_path: Path) -> None:
    from ragx.training.lock import locked

    with locked(tmp_path / "run"):
        done = start(2, parts, tmp_path / "run")
    assert done.returncode != 0
    assert done.stderr.count("ConfigError: run_dir must be one job's at a time") >= 2
    assert not (tmp_path / "run" / "checkpoints").exists()
