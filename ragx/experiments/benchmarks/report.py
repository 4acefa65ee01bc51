"""The rows as a table for people and as JSON for programs, with the machine they were measured on.

    {"machine": {...}, "settings": {...}, "rows": [{"work", "ours_s", "peer_s", "ratio", "ours_mib", ...}, ...]}

Nothing in it names a host or a user.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ragx import atomic

Rows = Sequence[Mapping[str, Any]]
_FIGURES = ("ours_s", "peer_s", "ratio", "ours_mib", "peer_mib", "memory_ratio", "same", "ours_per_s", "peer_per_s")
_SHARES = ("ours_mfu", "peer_mfu")
_HIDDEN = ("work", "ratio_min", "ratio_max", "difference", "step_tflop", "matmul_tflops", "num_beams")
_NOTES = (
    "ratio: the peer's seconds over ours, median over pairs and (least - most)",
    "MiB: peak beyond what is held between steps (weights, gradients, optimizer state); memory: ours over the peer's",
)
_MASK_NOTE = "peer_mask: the peer's RAG-Sequence was given the attention mask that it leaves out since transformers 5.2"


def write(path: str | Path, rows: Rows, *, settings: Mapping[str, Any]) -> None:
    """Writes the rows so far, whole or not at all."""
    content = {"machine": machine(str(settings["device"])), "settings": dict(settings), "rows": list(rows)}
    with atomic.open_file(path) as handle:
        handle.write(json.dumps(content, indent=2) + "\n")


def machine(device: str) -> dict[str, Any]:
    """Processor, cores, versions."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = ("torch", "transformers", "faiss-cpu", "numpy", "tokenizers")
    found: dict[str, Any] = {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpu": _cpu_model(),
        "cores": usable,
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
    }
    if torch.device(device).type == "cuda":
        found |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    return found


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def table(rows: Rows) -> str:
    """One line a row, with what the columns mean."""
    if not rows:
        return "no rows"
    names = [name for name in rows[0] if name not in (*_FIGURES, *_SHARES, *_HIDDEN)]
    figures = [name for name in (*_FIGURES, *_SHARES) if any(name in row for row in rows)]
    header = [*names, *(_title(name) for name in figures)]
    body = [[_text(row, name) for name in (*names, *figures)] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [header, *body]]
    notes = list(_NOTES) if "ratio" in rows[0] else []
    notes += [_MASK_NOTE] if any(row.get("peer_mask") for row in rows) else []
    return "\n".join([f"{rows[0]['work']}", *lines, "", *notes])


def _title(name: str) -> str:
    titles = {"memory_ratio": "memory", "ratio": "ratio (min - max)", "ours_per_s": "ours/s", "peer_per_s": "peer/s"}
    return titles.get(name, name.replace("_", " ").replace("mib", "MiB"))


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return "-"
    if name == "ratio":
        return f"{value:.2f} ({row['ratio_min']:.2f} - {row['ratio_max']:.2f})"
    if name in ("same", *_SHARES):
        return f"{value:.0%}"
    if name in _FIGURES:
        return f"{value:#.3g}".rstrip(".") if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
