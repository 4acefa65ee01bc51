"""Weights & Biases, only when asked for, and never in the way: whatever fails there becomes one warning.

    train/loss  train/nll  train/lr/<group>  train/grad_norm/<group>  ...     each step
    retriever/distinct_top1  retriever/prior_entropy  retriever/...           each step, see `ragx.training.collapse`
    dev/<metric>                                                              each evaluated step
    speed/seconds  speed/tokens_per_second  speed/examples_per_second         each step
    dev/predictions, without dev questions train/predictions                  at the end, `ASKED` questions at most
    test/<metric>  test/predictions                                           at the end, where something is answered

metrics.jsonl is the record of a run; this is a copy of it. Offline is the default and needs neither key nor network.
One decision: a run that goes on after a kill sends its earlier rows again. Offline, wandb starts a new file for the
same run, which would hold the later half alone; online it leaves out the steps that it has.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragx.model import RagModel
from ragx.records import Example, Prediction
from ragx.training.metrics_log import TIMINGS, read_metrics
from ragx.training.tracking_tables import ASKED, COLUMNS, table_rows

logger = logging.getLogger(__name__)
START_SECONDS = 20
ID_FILE = ".wandb_id"
RETRIEVER = ("distinct_top1", "queries", "prior_entropy", "posterior_entropy", "kl_posterior_prior")
_NOT_UPLOADED = ("optimizer.safetensors", "state.json")
Answer = Callable[[RagModel, Sequence[Example]], Sequence[Prediction]]
_open: ContextVar[Tracker | None] = ContextVar("open_tracker", default=None)
_answer: ContextVar[Answer | None] = ContextVar("answer", default=None)


def clear_name(key: str) -> str:
    """What a column of metrics.jsonl is called in wandb."""
    if key.startswith("eval/"):
        return f"dev/{key.removeprefix('eval/')}"
    return f"{'retriever' if key in RETRIEVER else 'speed' if key in TIMINGS else 'train'}/{key}"


@contextmanager
def tracked(
    project: str | None,
    *,
    mode: str,
    directory: Path,
    config: Mapping[str, Any],
    group: str | None = None,
    resumed: bool = True,
) -> Iterator[Tracker]:
    """The tracker that is open, to which `config` is added, else a new one, ended with the block.

    So a training inside a larger job shares the job's run. Arguments as for `Tracker`.
    """
    joined = _open.get()
    if joined is not None:
        joined.add_config(config)
        yield joined
        return
    tracker = Tracker(project, mode=mode, directory=directory, config=config, group=group, resumed=resumed)
    token = _open.set(tracker)
    try:
        yield tracker
    except BaseException:
        tracker.finish(failed=True)
        raise
    finally:
        _open.reset(token)
    tracker.finish()


@contextmanager
def answered_by(answer: Answer) -> Iterator[None]:
    """A training in this block that is tracked ends with a table of answers to some of its questions.

    Args:
        answer: (model in eval mode, examples) -> a prediction each; called on the main process, after the last step.
    """
    token = _answer.set(answer)
    try:
        yield
    finally:
        _answer.reset(token)


class Tracker:
    """Sends rows to wandb, or nowhere.

    Args:
        project: name of the project; None tracks nothing and imports nothing.
        mode: `offline` or `online`; without a key online becomes offline.
        directory: the run folder, in which wandb keeps its files; its name is the run's name.
        config: settings that wandb shows.
        group: what the run belongs to, such as a sweep.
        resumed: whether this goes on with the run that the folder names, where it names one.
    """

    def __init__(
        self,
        project: str | None,
        *,
        mode: str,
        directory: Path,
        config: Mapping[str, Any],
        group: str | None = None,
        resumed: bool = True,
    ) -> None:
        self._run: Any = None
        self._wandb: Any = None
        self._step = 0
        if project is not None:
            self._attempt(self._start, project, mode, directory, config=config, group=group, resumed=resumed)

    def log(self, row: Mapping[str, Any]) -> None:
        """Sends one row of metrics.jsonl under its step; a step that was sent is left out."""
        if self._run is not None and row["step"] > self._step:
            self._step = row["step"]
            named = {clear_name(key): value for key, value in row.items() if key not in ("step", "reduction")}
            self._attempt(self._run.log, named, step=row["step"])

    def history(self, metrics_path: Path) -> None:
        """Sends the rows of a metrics.jsonl that were not sent."""
        if self._run is not None:
            for row in read_metrics(metrics_path):
                self.log(row)

    def add_config(self, config: Mapping[str, Any]) -> None:
        """Adds settings to those that wandb shows."""
        if self._run is not None:
            self._attempt(self._run.config.update, dict(config), allow_val_change=True)

    def summary(self, figures: Mapping[str, float | None]) -> None:
        """Sends figures of the run as a whole."""
        if self._run is not None:
            known = {name: value for name, value in figures.items() if value is not None}
            self._attempt(self._run.summary.update, known)

    def predictions(self, found: Sequence[Prediction], examples: Sequence[Example] = ()) -> None:
        """Sends a table of answers with the passage that each owes most to; gold is that of the examples."""
        if self._run is not None:
            self._attempt(self._send_table, found, examples, part="test")

    def answers(self, model: AbstractContextManager[RagModel], examples: Sequence[Example], *, part: str) -> None:
        """Asks the first `ASKED` questions, if `answered_by` says how, and sends the table `<part>/predictions`.

        Args:
            model: entered for as long as it is asked.
        """
        answer = _answer.get()
        if self._run is not None and answer is not None:
            self._attempt(self._send_answers, answer, model, examples[:ASKED], part=part)

    def checkpoint(self, directory: Path, *, upload: bool) -> None:
        """Names a checkpoint as an artifact, by its files' digests, or with the files themselves."""
        if self._run is not None:
            files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
            files = [path for path in files if path.name not in _NOT_UPLOADED]
            self._attempt(self._send_files, {path.relative_to(directory): path for path in files}, upload)

    def index(self, manifest: Any) -> None:
        """Sends the manifest of an index, a dataclass, as an artifact."""
        if self._run is not None:
            self._attempt(self._send_manifest, manifest)

    def finish(self, *, failed: bool = False) -> None:
        """Ends the run."""
        if self._run is not None:
            self._attempt(self._run.finish, **({"exit_code": 1} if failed else {}))
            self._run = None

    def _start(
        self,
        project: str,
        mode: str,
        directory: Path,
        *,
        config: Mapping[str, Any],
        group: str | None,
        resumed: bool,
    ) -> None:
        wandb = importlib.import_module("wandb")
        if mode == "online" and not _has_key(wandb):  # it would ask for one at the terminal, and wait
            logger.warning("wandb has no key: tracking offline. Run `wandb login`, then `wandb sync` on %s.", directory)
            mode = "offline"
        directory.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=project,
            name=directory.name,
            group=group,
            id=_run_id(directory, resumed=resumed),
            resume="allow",
            dir=str(directory),
            config=dict(config),
            mode=mode,
            settings=wandb.Settings(init_timeout=START_SECONDS, silent=True),
        )
        self._wandb = wandb

    def _send_answers(
        self, answer: Answer, model: AbstractContextManager[RagModel], examples: Sequence[Example], *, part: str
    ) -> None:
        with model as asked:
            found = answer(asked, examples)
        self._send_table(found, examples, part=part)

    def _send_table(self, found: Sequence[Prediction], examples: Sequence[Example], *, part: str) -> None:
        rows = table_rows(found, examples)
        self._run.log({f"{part}/predictions": self._wandb.Table(columns=list(COLUMNS), data=rows)})

    def _send_files(self, files: Mapping[Path, Path], upload: bool) -> None:
        artifact = self._wandb.Artifact(f"model-{self._run.id}", type="model")
        for name, path in files.items():
            if upload:
                artifact.add_file(str(path), name=name.as_posix())
            else:
                artifact.add_reference(path.absolute().as_uri(), name=name.as_posix())
        self._run.log_artifact(artifact)

    def _send_manifest(self, manifest: Any) -> None:
        artifact = self._wandb.Artifact(f"index-{self._run.id}", type="index")
        with artifact.new_file("manifest.json") as handle:
            handle.write(json.dumps(asdict(manifest), indent=1, ensure_ascii=False))
        self._run.log_artifact(artifact)

    def _attempt(self, action: Any, *arguments: Any, **options: Any) -> None:
        """Runs a call into wandb; on any failure tracking ends and training goes on."""
        try:
            action(*arguments, **options)
        except Exception as error:  # not ours to name: a missing package, a key, a network, its service process
            logger.warning("wandb is off for the rest of the run (%s: %s)", type(error).__name__, error)
            self._run = None


def _run_id(directory: Path, *, resumed: bool) -> str:
    """The id under which wandb knows the run of this folder."""
    path = directory / ID_FILE
    if not (resumed and path.exists()):
        path.write_text(secrets.token_hex(4), encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def _has_key(wandb: Any) -> bool:
    if "prompt" in inspect.signature(wandb.login).parameters:
        return bool(wandb.login(prompt=False))
    return bool(wandb.api.api_key)  # earlier versions; later ones warn of its end
