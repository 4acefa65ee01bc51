"""Two processes train as one does, and resume to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ragx.training.metrics_log import TIMINGS, read_metrics

CHILD = """
import os, sys
from dataclasses import replace
from pathlib import Path
from tests.training.conftest import EXAMPLES, build_model
from tests.training.test_loop import SETTINGS, no_dropout
from ragx.training.loop import train
from ragx.training.step import Stepper

parts, stop = Path(sys.argv[1]), int(sys.argv[3])
run = Stepper.run

def stopped(self, step, batch):
    if step == stop:
        os._exit(9)
    return run(self, step, batch)

Stepper.run = stopped
settings = replace(SETTINGS, steps=4, batch_size=5, gradient_accumulation=2, eval_every=2, reduction="mean_token")
model = build_model(parts) if sys.argv[4] == "dropout" else no_dropout(build_model(parts))
train(model, EXAMPLES, settings=settings, run_dir=Path(sys.argv[2]), dev_examples=EXAMPLES)
"""


def launch(processes: int, parts: Path, run_dir: Path, *, stop: int = 0, dropout: bool = False) -> list[dict[str, Any]]:
    script = run_dir.parent / "child.py"
    script.write_text(CHILD)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    arguments = [str(script), str(parts), str(run_dir), str(stop), "dropout" if dropout else "plain"]
    done = subprocess.run(
        [sys.executable, *launcher, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode != 0) == bool(stop), done.stderr
    return [{k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(run_dir / "metrics.jsonl")]


@pytest.mark.slow
def test_two_processes_with_uneven_shares_have_the_losses_and_gradients_of_one(parts: Path, tmp_path: Path) -> None:
    one, two = (launch(n, parts, tmp_path / str(n)) for n in (1, 2))
    assert [row["step"] for row in one] == [1, 2, 3, 4]
    for mine, single in zip(two, one, strict=True):
        assert mine.keys() == single.keys()
        for key, value in single.items():
            assert mine[key] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-4)), key


@pytest.mark.slow
def test_two_interrupted_processes_end_as_two_that_never_were(parts: Path, tmp_path: Path) -> None:
    whole = launch(2, parts, tmp_path / "whole", dropout=True)
    launch(2, parts, tmp_path / "resumed", stop=4, dropout=True)
    assert launch(2, parts, tmp_path / "resumed", dropout=True) == whole
    files = ("generator/model.safetensors", "query_encoder/model.safetensors", "optimizer.safetensors")
    for name in files:
        contents = [(tmp_path / run / "checkpoints" / "last" / name).read_bytes() for run in ("whole", "resumed")]
        assert contents[0] == contents[1], name
