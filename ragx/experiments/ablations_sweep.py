"""A sweep around its jobs: what was asked is written down first, a job that fails is recorded, the table comes last.

Hydra ends a sweep at the first job that raises, and a launcher that loses a job raises too. So a job's error never
leaves the job: it becomes failure.json, and the exit status of the sweep says so at the end, whatever the launcher.
"""

from __future__ import annotations

import hashlib
import logging
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from ragx.config import plain_errors
from ragx.errors import RagxError
from ragx.experiments.ablations import FAILURE, FORMAT, write_json
from ragx.experiments.ablations_checks import check_baseline, check_metrics, telling
from ragx.experiments.ablations_summary import summarize
from ragx.experiments.ablations_tables import markdown, write_tables

SWEEP = "sweep.json"
READABLE, PIECE = 80, 32  # characters of a folder's name before its digest, and of an override in it
logger = logging.getLogger(__name__)
_started: list[Path] = []


def job_folder(overrides: Sequence[str]) -> str:
    """The name of a job's folder: short overrides, by the last part of their key, and a digest of all of them."""
    given = [str(override) for override in overrides]
    short = [f"{re.split(r'[./@]', key)[-1]}={value}" for key, _, value in (text.partition("=") for text in given)]
    told = ",".join(piece for piece in short if len(piece) <= PIECE)
    readable = re.sub(r"[^\w.=,-]+", "-", told)[:READABLE].strip("-,")
    digest = hashlib.sha256("\n".join(sorted(given)).encode("utf-8")).hexdigest()[:8]
    return f"{readable}-{digest}" if readable else digest


OmegaConf.register_new_resolver("ablation_job", lambda overrides: job_folder(as_given(overrides)), replace=True)


def as_given(overrides: Any) -> list[str]:
    """`hydra.overrides.task` of a job, letter by letter."""
    return cast("list[str]", OmegaConf.to_container(overrides, resolve=False))


def settings_of(overrides: Sequence[str]) -> dict[str, str]:
    """Overrides by their key; of two of one key the last counts."""
    return {key: value for key, _, value in (text.partition("=") for text in overrides)}


class SweepStart(Callback):
    """Hydra's callback: writes sweep.json, the jobs that the sweep consists of, before the first one starts."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Expands the sweep as Hydra's basic sweeper does."""
        plain_errors(_start)(config)  # of an error Hydra would make a warning and go on; SystemExit gets through


def _start(config: DictConfig) -> None:
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    asked = OverridesParser.create().parse_overrides([*params, *as_given(config.hydra.overrides.task)])
    jobs = [job for batch in BasicSweeper.split_arguments(asked, None) for job in batch]
    overrides = [settings_of(job) for job in jobs]
    baseline = settings_of(config.ablation.baseline)
    check_baseline(baseline, overrides)
    for job in telling(jobs):
        cfg = GlobalHydra.instance().config_loader().load_sweep_config(config, list(job))
        check_metrics(list(cfg.ablation.metrics), task=cfg.data.task, ks=list(cfg.ablation.success_at))
    sweep = Path(config.hydra.sweep.dir).absolute()
    content = {
        "format": FORMAT,
        "name": config.ablation.name,
        "metrics": list(config.ablation.metrics),
        "baseline": baseline,
        "jobs": [{"folder": job_folder(job), "overrides": given} for job, given in zip(jobs, overrides, strict=True)],
    }
    write_json(sweep / SWEEP, content)
    _started[:] = [sweep]


@contextmanager
def failing_alone(run_dir: Path) -> Iterator[None]:
    """A job whose error goes into failure.json and its log, and no further."""
    run_dir.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except Exception as error:
        trace = traceback.format_exc()
        told = str(error) if isinstance(error, RagxError | OSError) else trace  # a bug shows its trace
        write_json(run_dir / FAILURE, {"error": f"{type(error).__name__}: {error}", "told": told, "trace": trace})
        logger.error("%s failed\n%s", run_dir, told)
    else:
        (run_dir / FAILURE).unlink(missing_ok=True)


def run_sweep(main: Callable[[], Any]) -> tuple[int, str]:
    """Runs Hydra's main function and then makes the tables of the sweep that it ran.

    Returns:
        The exit status, 1 where a job failed or is missing, and what to print; nothing where no sweep was run.
    """
    _started.clear()
    try:
        main()
        status = 0
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    if not _started:
        return status, ""
    sweep = _started[0]
    summary = summarize(sweep)
    write_tables(summary, sweep)
    unfinished = bool(summary["failed"] or summary["missing"])
    return status or int(unfinished), f"{markdown(summary)}\n{sweep}"
