"""Several seeds of the demo as one table: mean and range of every figure, as Markdown.

    python scripts/demo_seeds.py 'runs=[runs/demo-0,runs/demo-1,runs/demo-2]'

Only results.json of each run is read. Runs of other settings or other base weights are refused: their mean would
mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from ragx.errors import ConfigError

Results = dict[str, Any]
OWN = ("run_dir", "seed")  # what may differ between the runs of one table


def read_runs(runs: Sequence[str | Path]) -> list[Results]:
    """results.json of each run, by seed.

    Raises:
        ConfigError: no run, a folder without results, the same seed twice, or runs of different settings.
    """
    if not runs:
        raise ConfigError(["runs must name at least one demo folder, got none. Give runs=[runs/demo-0,...]."])
    found: dict[int, Results] = {}
    settings: dict[str, Any] = {}
    for run in map(Path, runs):
        results, asked = _read(run / "results.json"), _read(run / "demo.json")
        asked = {key: value for key, value in asked.items() if key not in OWN}
        settings = settings or asked
        changed = sorted(key for key in settings.keys() | asked.keys() if settings.get(key) != asked.get(key))
        if changed:
            raise ConfigError([f"{key} must be alike in all runs, got another value in {run}." for key in changed])
        if results["seed"] in found:
            raise ConfigError([f"seed must differ between runs, got {results['seed']} again in {run}."])
        found[results["seed"]] = results
    return [found[seed] for seed in sorted(found)]


def render(results: Sequence[Results]) -> str:
    """The tables of exact match, retrieval, hot swap and cost, one after the other."""
    parts = (_exact_match(results), _retrieval(results), _hot_swap(results), _cost(results))
    return "\n\n".join(parts)


def _read(path: Path) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            [f"{path} must be a file of a finished demo, got none. Run scripts/demo.py first."]
        ) from error
    return read


def _exact_match(results: Sequence[Results]) -> str:
    lines = ["| model | decoder | before training | after |", "|---|---|---|---|"]
    for model, row in results[0]["exact_match"].items():
        for decoder in row:
            before = results[0]["exact_match_before"].get(model, {}).get(decoder)
            after = _spread([result["exact_match"][model][decoder] for result in results])
            lines.append(f"| `{model}` | {decoder} | {'' if before is None else _short(before)} | {after} |")
    return "\n".join(lines)


def _retrieval(results: Sequence[Results]) -> str:
    lines = ["| retrieval, success@k | before | after |", "|---|---|---|"]
    for k, before in results[0]["retrieval"]["success_at_before"].items():
        after = _spread([result["retrieval"]["success_at"][k] for result in results])
        lines.append(f"| {k} | {_short(before)} | {after} |")
    return "\n".join(lines)


def _hot_swap(results: Sequence[Results]) -> str:
    count = next(iter(results[0]["hot_swap"]["n"].values()))
    lines = [f"| hot swap, {count} positions | own index | the other index |", "|---|---|---|"]
    for edition in results[0]["hot_swap"]["matched"]:
        own = _spread([result["hot_swap"]["matched"][edition] for result in results])
        other = _spread([result["hot_swap"]["mismatched"][edition] for result in results])
        lines.append(f"| {edition} | {own} | {other} |")
    return "\n".join(lines)


def _cost(results: Sequence[Results]) -> str:
    lines = ["| seed | seconds, all stages | peak memory, MiB |", "|---|---|---|"]
    lines += [f"| {r['seed']} | {r['seconds']['total']:.0f} | {r['peak_rss_mib']} |" for r in results]
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    middle = _short(mean(values))
    return middle if len(values) == 1 else f"{middle} ({_short(min(values))} - {_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1) if value < 1 else f"{value:.3f}"
