"""One job a run folder: the second is refused by name, and a killed one leaves no lock."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ragx.errors import ConfigError
from ragx.model import RagModel
from ragx.records import Example
from ragx.training.lock import LOCK_FILE, locked
from ragx.training.loop import train
from tests.training.test_loop import SETTINGS

HOLDER = """
import sys, time
from ragx.training.lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(100)
"""


def test_a_second_job_is_refused_and_the_first_named(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        match = (
            rf"run_dir must be one job's at a time, got .*run, in which process {os.getpid()} on {socket.gethostname()}"
        )
        for _ in range(2):  # asking takes nothing away from the holder
            with pytest.raises(ConfigError, match=match), locked(tmp_path / "run"):
                pytest.fail("both are in")
        with locked(tmp_path / "other"):
            pass
    with locked(tmp_path / "run"):
        assert str(os.getpid()) in (tmp_path / "run" / LOCK_FILE).read_text()
    assert (tmp_path / "run" / LOCK_FILE).read_text() == ""


def test_a_file_system_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path):
        assert "cannot be locked ([Errno 37] No locks available): start no second job there" in caplog.text


def test_an_error_gives_the_folder_back(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="division"), locked(tmp_path):
        raise ZeroDivisionError("division")
    with locked(tmp_path):
        pass


def test_kill_9_gives_the_folder_back(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"in which process {child.pid} on"), locked(tmp_path):
            pytest.fail("both are in")
        child.send_signal(signal.SIGKILL)
        child.wait()
    with locked(tmp_path):
        pass


def test_training_in_a_held_folder_touches_nothing(
    make_model: Callable[..., RagModel], examples: list[Example], tmp_path: Path
) -> None:
    with locked(tmp_path), pytest.raises(ConfigError, match="run_dir must be one job's at a time"):
        train(make_model(), examples, settings=SETTINGS, run_dir=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [LOCK_FILE]
