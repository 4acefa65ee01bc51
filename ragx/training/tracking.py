"""Weights & Biases, only when asked for, and never in the way: whatever fails there becomes one warning.

metrics.jsonl is the record of a run; this is a copy of it. Offline is the default and needs neither key nor network.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)
START_SECONDS = 20


class Tracker:
    """Sends rows to wandb, or nowhere.

    Args:
        project: name of the project; None tracks nothing and imports nothing.
        mode: `offline` or `online`; without a key online becomes offline.
        directory: the run folder, in which wandb keeps its files; its name is the run's name.
        config: settings that wandb shows.
    """

    def __init__(self, project: str | None, *, mode: str, directory: Path, config: Mapping[str, Any]) -> None:
        self._run: Any = None
        if project is not None:
            self._attempt(self._start, project, mode, directory, config)

    def log(self, row: Mapping[str, Any]) -> None:
        """Sends one row of metrics.jsonl under its step."""
        if self._run is not None:
            self._attempt(self._run.log, {k: v for k, v in row.items() if k != "step"}, step=row["step"])

    def finish(self) -> None:
        """Ends the run."""
        if self._run is not None:
            self._attempt(self._run.finish)

    def _start(self, project: str, mode: str, directory: Path, config: Mapping[str, Any]) -> None:
        wandb = importlib.import_module("wandb")
        if mode == "online" and not _has_key(wandb):  # it would ask for one at the terminal, and wait
            logger.warning("wandb has no key: tracking offline. Run `wandb login`, then `wandb sync` on %s.", directory)
            mode = "offline"
        self._run = wandb.init(
            project=project,
            name=directory.name,
            dir=str(directory),
            config=dict(config),
            mode=mode,
            settings=wandb.Settings(init_timeout=START_SECONDS, silent=True),
        )

    def _attempt(self, action: Any, *arguments: Any, **options: Any) -> None:
        """Runs a call into wandb; on any failure tracking ends and training goes on."""
        try:
            action(*arguments, **options)
        except Exception as error:  # not ours to name: a missing package, a key, a network, its service process
            logger.warning("wandb is off for the rest of the run (%s: %s)", type(error).__name__, error)
            self._run = None


def _has_key(wandb: Any) -> bool:
    if "prompt" in inspect.signature(wandb.login).parameters:
        return bool(wandb.login(prompt=False))
    return bool(wandb.api.api_key)  # earlier versions; later ones warn of its end
