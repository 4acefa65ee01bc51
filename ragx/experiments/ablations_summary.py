"""The table of a sweep from the files of its jobs: mean and deviation over seeds, and what is significant.

    arm          jobs that differ in their seed alone
    mean, std    over seeds; std = sqrt( sum (x - mean)^2 / (n - 1) ), none with one seed
    difference   arm minus its baseline on the seeds that both have, paired bootstrap over questions (Koehn 2004)

One decision: a question's scores are averaged over the seeds before questions are drawn (counts of corpus figures are
added up). Seeds answer the same questions, so they are not independent cases, and pooling them would make every
difference look more certain than it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ragx.errors import RagxError
from ragx.evaluation.generation import bleu_1
from ragx.evaluation.significance import PairedDifference, paired_bootstrap, paired_sums, ratio
from ragx.experiments.ablations import FAILURE, FORMAT, RESULT, read_json
from ragx.experiments.ablations_checks import axes_of

_OF_SUMS = {"bleu_1": bleu_1, "distinct_trigrams": ratio}
Job = dict[str, Any]
Arm = dict[str, Any]


def summarize(sweep: Path) -> dict[str, Any]:
    """What summary.json holds: arms, failed jobs, missing ones.

    Raises:
        RagxError: `sweep` is no folder of a sweep.
    """
    asked = read_json(sweep / "sweep.json")
    if asked is None:
        raise RagxError(f"sweep must be a folder with sweep.json, got {sweep} without. Run scripts/ablate.py first")
    axes = axes_of([job["overrides"] for job in asked["jobs"]])
    failed, missing, done = [], [], []
    for job in asked["jobs"]:
        failure = read_json(sweep / job["folder"] / FAILURE)
        result = read_json(sweep / job["folder"] / RESULT)
        if failure is not None:
            failed.append({**job, **failure})
        elif result is None:
            missing.append(job)
        else:
            done.append(result)
    arms = _arms(done, axes, asked["metrics"], sweep)
    for arm in arms:
        arm["is_baseline"] = _is_baseline(arm, asked["baseline"], axes)
    for arm in arms:
        base = _counterpart(arm, arms, asked["baseline"])
        arm["compared_with"] = None if base is None else base["arm"]
        arm["difference"] = None if base is None else _difference(arm, base, asked["metrics"][0], sweep)
    return {
        "format": FORMAT,
        "name": asked["name"],
        "metrics": asked["metrics"],
        "axes": axes,
        "baseline": asked["baseline"],
        "arms": arms,
        "failed": failed,
        "missing": missing,
    }


def _arms(jobs: Sequence[Job], axes: Mapping[str, Any], metrics: Sequence[str], sweep: Path) -> list[Arm]:
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(tuple(job["overrides"][key] for key in axes), []).append(job)
    return [_arm(dict(zip(axes, values, strict=True)), found, metrics) for values, found in groups.items()]


def _arm(settings: dict[str, str], jobs: list[Job], metrics: Sequence[str]) -> Arm:
    jobs = sorted(jobs, key=lambda job: job["seed"])
    return {
        "arm": ", ".join(f"{key.replace('/', '.').split('.')[-1]}={value}" for key, value in settings.items()) or "all",
        "settings": settings,
        "seeds": [job["seed"] for job in jobs],
        "jobs": [job["folder"] for job in jobs],
        "metrics": {name: _spread([job["metrics"][name] for job in jobs]) for name in metrics},
    }


def _spread(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Mean and deviation of a figure over seeds; None where a seed has nothing to score."""
    values = [metric["value"] for metric in found]
    if any(value is None for value in values):
        return None
    deviation = stdev(values) if len(values) > 1 else None
    return {"mean": fmean(values), "std": deviation, "values": values, "n": found[0]["n"]}


def _is_baseline(arm: Arm, baseline: Mapping[str, str], axes: Mapping[str, Any]) -> bool:
    marks = [key for key in baseline if key in axes]
    return bool(marks) and all(arm["settings"][key] == baseline[key] for key in marks)


def _counterpart(arm: Arm, arms: Sequence[Arm], baseline: Mapping[str, str]) -> Arm | None:
    """The baseline that an arm is compared with: the values of the baseline, and otherwise its own."""
    if arm["is_baseline"]:
        return None
    wanted = {key: baseline.get(key, value) for key, value in arm["settings"].items()}
    return next((other for other in arms if other["is_baseline"] and other["settings"] == wanted), None)


def _difference(arm: Arm, base: Arm, metric: str, sweep: Path) -> dict[str, Any] | None:
    common = [seed for seed in arm["seeds"] if seed in base["seeds"]]
    if not common:
        return None
    first, second = (_scores(side, common, metric, sweep) for side in (arm, base))
    both = [key for key in first if first[key] is not None and second.get(key) is not None]
    if not both:
        return None
    found: PairedDifference
    if metric in _OF_SUMS:
        first, second = ({key: side[key] for key in both} for side in (first, second))
        found = paired_sums(first, second, _OF_SUMS[metric])
    else:
        found = paired_bootstrap({key: first[key] for key in both}, {key: second[key] for key in both})
    return {**found.to_json(), "seeds": common}


def _scores(arm: Arm, seeds: Sequence[int], metric: str, sweep: Path) -> dict[str, Any]:
    """Per question the mean score over seeds, or the sum of its counts; None where a seed has none."""
    folders = [folder for seed, folder in zip(arm["seeds"], arm["jobs"], strict=True) if seed in seeds]
    rows = [json.loads((sweep / folder / "scores.json").read_text(encoding="utf-8"))[metric] for folder in folders]
    found: dict[str, Any] = {}
    for key in rows[0]:
        values = [row.get(key) for row in rows]
        if any(value is None for value in values):
            found[key] = None
        elif isinstance(values[0], list):
            found[key] = [sum(column) for column in zip(*values, strict=True)]
        else:
            found[key] = fmean(values)
    return found
