"""A sweep's summary as summary.json, as a Markdown table to paste and as CSV to plot."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.experiments.ablations import write_json

SIGNIFICANT = 0.05


def write_tables(summary: Mapping[str, Any], sweep: Path) -> None:
    """Writes summary.json, summary.md and summary.csv."""
    write_json(sweep / "summary.json", summary)
    with atomic.open_file(sweep / "summary.md") as handle:
        handle.write(markdown(summary))
    with atomic.open_file(sweep / "summary.csv") as handle:
        csv.writer(handle, lineterminator="\n").writerows(_csv_rows(summary))


def markdown(summary: Mapping[str, Any]) -> str:
    """The table, a line that explains it, and the jobs that failed or are missing."""
    axes, metrics = list(summary["axes"]), list(summary["metrics"])
    compared = any(arm["difference"] is not None for arm in summary["arms"])
    head = [*axes, "seeds", *metrics, *([f"difference in {metrics[0]}", "p"] if compared else [])]
    lines = [f"### {summary['name']}", "", _line(head), _line(["---"] * len(head))]
    for arm in summary["arms"]:
        cells = [*(arm["settings"][key] for key in axes), str(len(arm["seeds"]))]
        cells += [_mean(arm["metrics"][name]) for name in metrics]
        lines.append(_line([*cells, *(_difference(arm) if compared else [])]))
    lines += ["", *_legend(summary, compared)]
    for job in summary["failed"]:
        lines += ["", f"Failed: `{job['folder']}`", "", "```", job["told"].strip(), "```"]
    if summary["missing"]:
        lines += ["", f"Missing, start the sweep again: {', '.join(job['folder'] for job in summary['missing'])}"]
    return "\n".join(lines) + "\n"


def _legend(summary: Mapping[str, Any], compared: bool) -> list[str]:
    counts = {
        arm["metrics"][name]["n"] for arm in summary["arms"] for name in summary["metrics"][:1] if _has(arm, name)
    }
    text = f"Mean and standard deviation over seeds, {' or '.join(map(str, sorted(counts)))} questions."
    if compared:
        marks = ", ".join(f"{key}={value}" for key, value in summary["baseline"].items() if key in summary["axes"])
        text += f" Difference from {marks}, otherwise alike: paired bootstrap over questions, 95% interval;"
        text += f" * p < {SIGNIFICANT}."
    return [text]


def _has(arm: Mapping[str, Any], name: str) -> bool:
    return arm["metrics"][name] is not None


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _mean(metric: Mapping[str, Any] | None) -> str:
    if metric is None:
        return ""
    deviation = "" if metric["std"] is None else f" ± {_short(metric['std'])}"
    return f"{_short(metric['mean'])}{deviation}"


def _difference(arm: Mapping[str, Any]) -> list[str]:
    found = arm["difference"]
    if found is None:
        return ["baseline" if arm["is_baseline"] else "", ""]
    low, high = found["ci95"]
    star = "*" if found["p_value"] < SIGNIFICANT else ""
    return [f"{found['value']:+.3f} ({low:+.3f} to {high:+.3f})", f"{_short(found['p_value'])}{star}"]


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if 0 <= value < 1 else f"{value:.3f}"


def _csv_rows(summary: Mapping[str, Any]) -> list[list[Any]]:
    axes, metrics = list(summary["axes"]), list(summary["metrics"])
    spreads = [f"{name}.{part}" for name in metrics for part in ("mean", "std")]
    tail = ["difference", "ci95_low", "ci95_high", "p_value", "is_baseline"]
    rows: list[list[Any]] = [[*axes, "seeds", *spreads, *tail]]
    for arm in summary["arms"]:
        row: list[Any] = [*(arm["settings"][key] for key in axes), len(arm["seeds"])]
        for name in metrics:
            metric = arm["metrics"][name] or {"mean": None, "std": None}
            row += [metric["mean"], metric["std"]]
        found = arm["difference"]
        row += [None] * 4 if found is None else [found["value"], *found["ci95"], found["p_value"]]
        rows.append([*row, arm["is_baseline"]])
    return rows
