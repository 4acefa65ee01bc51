"""Scripts run in this process as a user runs them in a shell."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def run_script(name: str, *overrides: str, folder: Path, into: str = "run") -> int:
    """The exit status of `python scripts/<name>.py <overrides>`, started in `folder`.

    Args:
        into: folder of the run below `folder`/runs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", [f"{name}.py", f"hydra.run.dir=runs/{into}", *overrides])
        try:
            runpy.run_path(str(ROOT / "scripts" / f"{name}.py"), run_name="__main__")
        except SystemExit as leave:
            return int(leave.code or 0)
        return 0


def metrics(folder: Path, into: str) -> dict[str, Any]:
    """What the run `into` of a script in `folder` measured."""
    found: dict[str, Any] = json.loads((folder / "runs" / into / "metrics.json").read_text())
    return found
