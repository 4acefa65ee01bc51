"""What can be said of a sweep before its first job: is its baseline among its arms, has each task its figures.

    axis     a key with several values, the seed apart
    pinned   a key that the command line gave one value: all arms share it, so a preset's baseline may name another

One decision: this refuses the whole sweep. Jobs train for hours, and none of them could fill its row of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragx.data.tasks import TASKS
from ragx.errors import ConfigError
from ragx.evaluation.columns import columns

SEED = "experiment.seed"
DECIDE_METRICS = ("data.task", "ablation.metrics", "ablation.success_at")
Overrides = Mapping[str, str]


def axes_of(jobs: Sequence[Overrides]) -> dict[str, list[str]]:
    """The keys that differ between jobs, the seed apart, with their values in the order of the sweep."""
    values: dict[str, dict[str, None]] = {}
    for overrides in jobs:
        for key, value in overrides.items():
            values.setdefault(key, {})[value] = None
    return {key: list(found) for key, found in values.items() if len(found) > 1 and key != SEED}


def check_baseline(baseline: Overrides, jobs: Sequence[Overrides]) -> None:
    """That some arm has the values of the baseline.

    Raises:
        ConfigError: a key that is not swept, a value that its axis has not, or no key of an axis at all.
    """
    axes = axes_of(jobs)
    pinned = {key for overrides in jobs for key in overrides} - axes.keys() - {SEED}
    swept = ", ".join(f"{key}={','.join(values)}" for key, values in axes.items()) or "nothing"
    problems = []
    for key, value in baseline.items():
        if key in axes and value not in axes[key]:
            known = ", ".join(axes[key])
            problems.append(
                f"ablation.baseline must give {key} one of {known}, got {value}. Name a value of the sweep."
            )
        elif key not in axes and key not in pinned:
            problems.append(f"ablation.baseline must name swept keys, got {key}={value}. Swept: {swept}.")
    if axes and baseline and not problems and not axes.keys() & baseline.keys():
        got = ", ".join(f"{key}={value}" for key, value in baseline.items())
        problems.append(f"ablation.baseline must name a key with several values, got {got}. Swept: {swept}.")
    if problems:
        raise ConfigError(problems)


def check_metrics(metrics: Sequence[str], *, task: str, ks: Sequence[int]) -> None:
    """That a task has these figures, which needs no predictions.

    Raises:
        ConfigError: it has not.
    """
    if task not in TASKS or min(ks, default=0) < 1:
        return  # the job's own config is refused for that
    known = columns([], task=task, ks=ks)
    unknown = [name for name in metrics if name not in known]
    if unknown:
        owner = f"data.task={task} with ablation.success_at={list(ks)}"
        got = ", ".join(unknown)
        raise ConfigError([f"ablation.metrics must be figures of {owner}, got {got}. Known: {', '.join(known)}."])


def telling(jobs: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """One job for each choice of the overrides that can change a task or its figures: groups and those keys."""
    chosen: dict[tuple[str, ...], Sequence[str]] = {}
    for job in jobs:
        keys = {text: text.partition("=")[0].lstrip("+~") for text in job}
        part = tuple(text for text, key in keys.items() if "." not in key or key in DECIDE_METRICS)
        chosen.setdefault(part, job)
    return list(chosen.values())
