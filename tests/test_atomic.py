"""Writes that are whole or absent, whatever stops them: an error, a full disk, a kill at any point."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragx import atomic

DEAD = 2**22 + 1  # beyond the largest process number of Linux
resource = pytest.importorskip("resource", reason="needs limits of a process, which this system has not")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def killed(code: str, folder: Path) -> int:
    """Runs `code` in a process of its own that ends itself as `kill -9` does; returns its number."""
    head = (
        "import os, signal\nfrom pathlib import Path\nfrom ragx import atomic\nkill = lambda: os.kill(os.getpid(), 9)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", head + textwrap.dedent(code)], cwd=folder)
    assert process.wait() == -9
    return process.pid


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow beyond 4 KiB: the system takes a part of a write and then refuses, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_appears_under_its_name_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.txt"
    with atomic.open_file(target) as handle:
        handle.write("zwölf\n")
        handle.flush()
        assert not target.exists()
    assert target.read_bytes() == "zwölf\n".encode()
    assert names(target.parent) == ["a.txt"]
    assert target.stat().st_mode & 0o777 == 0o644


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(KeyError, match="stop"), atomic.open_file(tmp_path / "a.txt") as handle:
        handle.write("new")
        raise KeyError("stop")
    assert (tmp_path / "a.txt").read_text() == "old" and names(tmp_path) == ["a.txt"]


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("old")
    with pytest.raises(KeyError, match="stop"), atomic.directory(tmp_path / "a") as folder:
        (folder / "x").write_text("new")
        raise KeyError("stop")
    assert (tmp_path / "a" / "x").read_text() == "old" and names(tmp_path) == ["a"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for content in ("x", "y"):
        with atomic.directory(tmp_path / "a") as folder:
            (folder / content).write_text(content)
    assert names(tmp_path) == ["a"] and names(tmp_path / "a") == ["y"]


def test_a_full_disk_is_said_with_the_file_and_leaves_the_old_one(tmp_path: Path, small_disk: None) -> None:
    (tmp_path / "a.bin").write_bytes(b"old")
    with pytest.raises(OSError, match=r"File too large: '.*/a\.bin'"), atomic.open_file(tmp_path / "a.bin", "wb") as f:
        f.write(b"n" * 100_000)
    assert (tmp_path / "a.bin").read_bytes() == b"old" and names(tmp_path) == ["a.bin"]


def test_a_full_disk_inside_a_folder_is_said_with_the_folder(tmp_path: Path, small_disk: None) -> None:
    with pytest.raises(OSError, match=r"File too large: '.*/a'$"), atomic.directory(tmp_path / "a") as folder:
        with atomic.open_file(folder / "b", "wb") as handle:
            handle.write(b"n" * 100_000)
    assert names(tmp_path) == []


def test_what_rust_says_of_a_full_disk_becomes_an_error_of_the_file_system(tmp_path: Path) -> None:
    class SafetensorError(Exception):
        """As safetensors raises it; no OSError."""

    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(OSError, match="/a'$") as caught, atomic.directory(tmp_path / "a"):
        raise SafetensorError(said)
    assert caught.value.errno == errno.ENOSPC and isinstance(caught.value.__cause__, SafetensorError)
    with pytest.raises(SafetensorError, match="header too small"), atomic.directory(tmp_path / "a"):
        raise SafetensorError("header too small")
    assert names(tmp_path) == []


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(IsADirectoryError, match="must be a file, got a folder"), atomic.open_file(tmp_path / "folder"):
        pass
    with pytest.raises(NotADirectoryError, match="must be a folder, got a file"), atomic.directory(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    for name in ("a", "f"):
        (tmp_path / name).symlink_to(tmp_path / "big" / name)
    for content in ("x", "y"):
        with atomic.directory(tmp_path / "a") as folder:
            (folder / content).write_text(content)
        with atomic.open_file(tmp_path / "f") as handle:
            handle.write(content)
    assert (tmp_path / "a").is_symlink() and names(tmp_path / "big" / "a") == ["y"]
    assert (tmp_path / "f").is_symlink() and (tmp_path / "big" / "f").read_text() == "y"
    assert names(tmp_path / "big") == ["a", "f"]


def test_a_kill_during_a_write_leaves_the_old_and_the_next_write_clears_up(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    killed('with atomic.open_file("a.txt") as f:\n    f.write("half")\n    f.flush()\n    kill()', tmp_path)
    killed('with atomic.directory("b") as d:\n    (d / "x").write_text("half")\n    kill()', tmp_path)
    assert len(names(tmp_path)) == 3 and (tmp_path / "a.txt").read_text() == "old"
    with atomic.open_file(tmp_path / "a.txt") as handle:
        handle.write("new")
    with atomic.directory(tmp_path / "b") as folder:
        (folder / "x").write_text("new")
    assert names(tmp_path) == ["a.txt", "b"]


@pytest.mark.parametrize("nth", [1, 2])
def test_a_kill_around_the_renames_leaves_one_whole_folder(tmp_path: Path, nth: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("old")
    code = f"""
    replace, calls = os.replace, []
    def then_kill(*names):
        replace(*names)
        calls.append(names)
        if len(calls) == {nth}:
            kill()
    os.replace = then_kill
    with atomic.directory("a") as d:
        (d / "x").write_text("new")
    """
    killed(code, tmp_path)
    assert (tmp_path / "a").exists() == (nth == 2) and (tmp_path / ".a.replaced").exists()
    atomic.recover(tmp_path / "a")
    assert (tmp_path / "a" / "x").read_text() == ("old" if nth == 1 else "new")
    with atomic.directory(tmp_path / "a") as folder:
        (folder / "x").write_text("next")
    assert names(tmp_path) == ["a"] and (tmp_path / "a" / "x").read_text() == "next"


@pytest.mark.parametrize("waits", [True, False])
def test_a_reader_between_the_two_renames_harms_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """It waits for the new folder; if it puts the old one back all the same, the new one still comes."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("old")
    replace, seen = os.replace, []
    if not waits:
        monkeypatch.setattr(atomic, "_is_written", lambda _: False)

    def read() -> None:
        atomic.recover(tmp_path / "a")
        seen.append((tmp_path / "a" / "x").read_text())

    reader = threading.Thread(target=read)

    def in_between(old: Path, new: Path) -> None:
        replace(old, new)
        if new.name == ".a.replaced" and reader.ident is None:
            reader.start()
            reader.join(0.1 if waits else None)

    monkeypatch.setattr(os, "replace", in_between)
    with atomic.directory(tmp_path / "a") as folder:
        (folder / "x").write_text("new")
    reader.join()
    assert seen == ["new" if waits else "old"]
    assert (tmp_path / "a" / "x").read_text() == "new" and names(tmp_path) == ["a"]


def leftover(path: Path, machine: str, process: object) -> Path:
    left = path.parent / f".{path.name}.{machine}-{process}.abc123.tmp"
    left.write_text("half")
    return left


@pytest.mark.parametrize(
    ("machine", "process", "stays"),
    [
        (atomic._machine, lambda: DEAD, False),
        (atomic._machine, os.getpid, True),
        (atomic._machine, os.getppid, True),
        (lambda: "0" * 8, lambda: DEAD, True),
        (atomic._machine, lambda: "x", True),
        (atomic._machine, lambda: 10**30, True),
    ],
    ids=["dead", "this process", "another process", "another machine", "no number", "too large a number"],
)
def test_only_leftovers_of_the_surely_dead_are_removed(
    tmp_path: Path, machine: Callable[[], str], process: Callable[[], object], stays: bool
) -> None:
    target = tmp_path / "a.txt"
    left = leftover(target, machine(), process())
    other = leftover(tmp_path / "b.txt", atomic._machine(), DEAD)
    mine = tmp_path / ".a.txt.swp"
    mine.write_text("an editor's")
    with atomic.open_file(target) as handle:
        handle.write("new")
    assert left.exists() == stays and other.exists() and mine.exists()
    assert target.read_text() == "new"
