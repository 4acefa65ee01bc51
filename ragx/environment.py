"""Where a run was made: `environment.json` in its folder, beside the settings in `config.yaml`.

    {"environments": [{"commit", "changed", "versions", "system", "machine", "cpus", "threads", "gpus"}, ...]}

One decision: it holds what may explain a difference between two runs, and nothing that names a person, a place or a
time: no host, no user, no path. So a run that goes on where it began adds nothing to it, and one that goes on elsewhere
adds that environment after the first.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ragx import atomic
from ragx.errors import DataError

FILE = "environment.json"
ENTRIES = "environments"
PACKAGE = Path(__file__).parent
# What a library is called here, and the names under which it may be installed.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "ragx": ("ragx",),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "faiss": ("faiss-cpu", "faiss-gpu", "faiss"),
    "datasets": ("datasets",),
    "numpy": ("numpy",),
}


def record(directory: str | Path) -> None:
    """Adds the environment of this process to those of a run's folder, unless it is that of the last entry.

    Of the processes of one job the first alone writes.

    Raises:
        DataError: the file that is there is not one that this function wrote.
    """
    if not is_first_process():
        return
    path, now = Path(directory) / FILE, environment()
    before = _read(path)
    if before[-1:] != [now]:
        with atomic.open_file(path) as handle:
            handle.write(json.dumps({ENTRIES: [*before, now]}, indent=1) + "\n")


def environment() -> dict[str, Any]:
    """Code, libraries and machine of this process.

    `commit` is that of the code of ragx and `changed` whether files differ from it; both are None outside a git
    checkout. `versions` are None of what is not installed, `gpus` the names of those that CUDA shows to this process.
    """
    commit, changed = _code(PACKAGE)
    installed = {library: _version(*names) for library, names in LIBRARIES.items()}
    return {
        "commit": commit,
        "changed": changed,
        "versions": {"python": platform.python_version(), **installed},
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": _gpus(),
    }


def is_first_process() -> bool:
    """Whether this process is alone, or the one among those of a launcher that writes and prints for all."""
    return os.environ.get("RANK", "0") == "0"


def commit_of(root: Path) -> str | None:
    """The commit that is checked out, with + where files differ from it; None outside a repository."""
    head, changes = _git(root, "rev-parse", "--short", "HEAD"), _git(root, "status", "--porcelain")
    return None if head is None or changes is None else head + ("+" if changes else "")


@cache  # of the code as it was loaded
def _code(package: Path) -> tuple[str | None, bool | None]:
    """Commit and changes of a package; of one that is installed below a repository of something else, None."""
    tracked = _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None
    found = commit_of(package) if tracked else None
    return (None, None) if found is None else (found.removesuffix("+"), found.endswith("+"))


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; None where it fails or is not there. It takes no lock that a commit of the user may want."""
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(*names: str) -> str | None:
    """Of the first that is installed; code that runs from a checkout alone has none that could be asked for."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _gpus() -> list[str]:
    """A driver that does not work is the matter of who uses it, not of this record."""
    try:
        if torch.cuda.is_available():
            return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    except RuntimeError:
        pass
    return []


def _read(path: Path) -> list[Any]:
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"file must be JSON, got: {error}. Move it out of the run's folder", path=path) from error
    entries = found.get(ENTRIES) if isinstance(found, dict) else None
    if not isinstance(entries, list):
        message = f"must be a list, got {str(entries)[:80]}. Move the file out of the run's folder"
        raise DataError(message, path=path, field=ENTRIES)
    return entries
