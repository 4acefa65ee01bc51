"""environment.json: what it says of code and machine, what it does not say, and that the first entry stays."""

from __future__ import annotations

import getpass
import json
import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from ragx import environment
from ragx.environment import commit_of, record
from ragx.errors import DataError
from tests.scripts import ROOT, run_script

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def entries(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "environment.json").read_text())["environments"]
    return found


def git(folder: Path, *arguments: str) -> None:
    told = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *told, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one committed package."""
    package = tmp_path / "repository" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(package.parent, "init")
    git(package, "add", ".")
    git(package, "commit", "-m", "first")
    return package


def test_it_names_versions_and_machine(tmp_path: Path) -> None:
    record(tmp_path / "new")
    (found,) = entries(tmp_path / "new")
    assert list(found) == ["commit", "changed", "versions", "system", "machine", "cpus", "threads", "gpus"]
    versions = found["versions"]
    assert versions["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert versions["python"] == platform.python_version() and versions["faiss"] and versions["transformers"]
    assert (found["system"], found["machine"]) == (platform.system(), platform.machine())
    assert (found["cpus"], found["threads"]) == (os.cpu_count(), torch.get_num_threads())


def test_it_names_no_host_no_user_and_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "machine-of-someone")
    record(tmp_path)
    text = (tmp_path / "environment.json").read_text()
    for told in (os.uname().nodename, "machine-of-someone", str(Path.home()), str(tmp_path), str(ROOT)):
        assert told not in text
    words = {word for value in entries(tmp_path)[0].values() for word in str(value).split()}
    assert getpass.getuser() not in words and "/" not in text


def test_the_first_entry_stays_and_only_another_environment_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path)
    first = (tmp_path / "environment.json").read_bytes()
    record(tmp_path)
    assert (tmp_path / "environment.json").read_bytes() == first
    monkeypatch.setattr(os, "cpu_count", lambda: 99)
    record(tmp_path)
    monkeypatch.undo()
    record(tmp_path)
    here = json.loads(first)["environments"][0]
    assert entries(tmp_path) == [here, {**here, "cpus": 99}, here]


def test_of_several_processes_the_first_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    record(tmp_path)
    assert not (tmp_path / "environment.json").exists()
    monkeypatch.setenv("RANK", "0")
    record(tmp_path)
    assert len(entries(tmp_path)) == 1


@needs_git
def test_the_commit_and_whether_files_differ_from_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGE", checkout)
    head = commit_of(checkout)
    assert head is not None and len(head) >= 7 and "+" not in head
    assert [environment.environment()[name] for name in ("commit", "changed")] == [head, False]
    (checkout / "__init__.py").write_text("changed = 1\n")
    assert commit_of(checkout.parent) == f"{head}+"
    environment._code.cache_clear()
    assert [environment.environment()[name] for name in ("commit", "changed")] == [head, True]


@needs_git
def test_a_package_that_is_only_installed_in_someone_s_repository_has_no_commit(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = checkout.parent / ".venv" / "ragx"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    monkeypatch.setattr(environment, "PACKAGE", installed)
    assert commit_of(installed) is not None
    assert [environment.environment()[name] for name in ("commit", "changed")] == [None, None]


@pytest.mark.parametrize("git_is_there", [True, False])
def test_outside_a_checkout_and_without_git_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git_is_there: bool
) -> None:
    monkeypatch.setattr(environment, "PACKAGE", tmp_path)
    if not git_is_there:
        monkeypatch.setenv("PATH", str(tmp_path))
    record(tmp_path / "run")
    (found,) = entries(tmp_path / "run")
    assert found["commit"] is None and found["changed"] is None


def test_gpus_are_named_and_a_driver_that_fails_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"card {number}")
    assert environment.environment()["gpus"] == ["card 0", "card 1"]

    def fails(number: int) -> str:
        raise RuntimeError("no driver")

    monkeypatch.setattr(torch.cuda, "get_device_name", fails)
    assert environment.environment()["gpus"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "environment.json: file must be JSON"), ("[]", "environment.json: environments: must be a list, got None")],
)
def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "environment.json").write_text(text)
    with pytest.raises(DataError, match=message):
        record(tmp_path)
    assert (tmp_path / "environment.json").read_text() == text


def test_a_script_leaves_it_in_its_run_s_folder_and_not_in_what_it_makes(tmp_path: Path) -> None:
    assert run_script("compose", folder=tmp_path) == 0
    assert [path.parent for path in tmp_path.rglob("environment.json")] == [tmp_path / "runs" / "run"]
    assert len(entries(tmp_path / "runs" / "run")) == 1


def test_a_training_that_goes_on_elsewhere_adds_where_and_one_that_is_refused_nothing(
    tmp_path: Path, tiny_bart: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ({"id": str(row), "question": f"Who leads {row}?", "answers": ["Peru"]} for row in range(3))
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["model=closed_book", "data.train=train.jsonl", f"generator.checkpoint={tiny_bart}"]
    given += ["training.batch_size=2", "training.warmup_steps=0", "training.schedule=constant", "training.device=cpu"]
    given += ["training.progress=false"]
    assert run_script("train", *given, "training.steps=1", folder=tmp_path) == 0
    (here,) = entries(tmp_path / "runs" / "run")
    monkeypatch.setattr(os, "cpu_count", lambda: 99)
    assert run_script("train", *given, "training.steps=2", "experiment.seed=7", folder=tmp_path) == 2
    assert "must equal" in capsys.readouterr().err and entries(tmp_path / "runs" / "run") == [here]
    assert run_script("train", *given, "training.steps=1", folder=tmp_path) == 0  # is complete
    assert entries(tmp_path / "runs" / "run") == [here]
    assert run_script("train", *given, "training.steps=2", folder=tmp_path) == 0
    assert entries(tmp_path / "runs" / "run") == [here, {**here, "cpus": 99}]
    assert not list((tmp_path / "runs" / "run" / "checkpoints").rglob("environment.json"))


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_of_several_processes_that_build_an_index_the_first_tells(
    rank: str,
    lines: int,
    tmp_path: Path,
    tiny_dpr: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "corpus.tsv").write_text("id\ttext\ttitle\n1\tLima is the capital.\tPeru\n")
    given = [f"retriever.{half}_encoder={tiny_dpr}/{half}_encoder" for half in ("query", "passage")]
    monkeypatch.setenv("RANK", rank)
    assert run_script("build_index", "data.passages=corpus.tsv", "index.directory=index", *given, folder=tmp_path) == 0
    assert capsys.readouterr().out.count("1 passages of edition corpus") == lines
    assert (tmp_path / "index" / "manifest.json").is_file() and not (tmp_path / "index" / "environment.json").exists()
