"""`generate.py` under SIGKILL: started again it loses and repeats no question, and writes what one run writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragx.data.predictions import read_predictions
from tests.scripts import ROOT, run_script

IDS = [f"q{number}" for number in range(120)]
KILLS_AT = (3, 50)
"""Lines that are there when the run is killed."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four passages, and more questions than are answered between a look at the file and the kill."""
    rows = [f"p{n}\tThe leader of land {n} is L{n}.\tLand {n}\n" for n in range(4)]
    (tmp_path / "passages.tsv").write_text("id\ttext\ttitle\n" + "".join(rows))
    asked = [{"id": name, "question": f"Who leads land {n % 4} in {n}?"} for n, name in enumerate(IDS)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    return tmp_path


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def start_and_kill(command: list[str], folder: Path, partial: Path, *, at: int) -> int:
    """Kills the run as soon as `at` lines are there; returns how many were there in the end."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and lines(partial) < at:
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        error = process.communicate()[1].decode()
    assert process.returncode == -signal.SIGKILL, error
    return lines(partial)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_and_started_again_no_question_is_lost_or_repeated(folder: Path, tiny_bart: Path) -> None:
    words = ["retriever=bm25", "index=bm25", "index.directory=index"]
    assert run_script("build_index", *words, "data.passages=passages.tsv", folder=folder, into="build") == 0
    asked = ["data.questions=questions.jsonl", "model.kind=rag_token", "model.n_docs=2", "decoding.device=cpu"]
    sizes = ["decoding.num_beams=2", "decoding.max_length=4", "decoding.batch_size=1"]
    given = [*words, *asked, *sizes, f"generator.checkpoint={tiny_bart}"]
    assert run_script("generate", *given, folder=folder, into="whole") == 0
    path = folder / "runs/killed/predictions.jsonl"
    command = [sys.executable, str(ROOT / "scripts/generate.py"), "hydra.run.dir=runs/killed", *given]
    reached = [start_and_kill(command, folder, path.with_name(f"{path.name}.partial"), at=at) for at in KILLS_AT]
    assert KILLS_AT[0] <= reached[0] < KILLS_AT[1] <= reached[1] < len(IDS)  # each run goes on from the one before
    assert not path.exists()
    assert run_script("generate", *given, folder=folder, into="killed") == 0
    assert [prediction.id for prediction in read_predictions(path)] == IDS
    assert path.read_bytes() == (folder / "runs/whole/predictions.jsonl").read_bytes()
