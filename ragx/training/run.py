"""A training run between its steps: what it starts from, what it writes when, what it takes up after a kill.

    order of writes at an evaluated step:  best (if better)  ->  row of metrics.jsonl  ->  last

`last` comes at the end and names the rows and the best value it counts on. A kill in between leaves an older `last`,
from which the step is done again, with the same outcome.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from tqdm.auto import tqdm

from ragx import atomic, environment
from ragx.data.collate import batches
from ragx.errors import TrainingError
from ragx.model import RagModel
from ragx.records import Example
from ragx.training.ahead import Ahead
from ragx.training.checkpoint import TrainingState, read_state, restore_weights, save_checkpoint
from ragx.training.live_refresh import LiveRefresh
from ragx.training.metrics_log import MetricsLog
from ragx.training.optim import (
    build_optimizer,
    build_schedule,
    checksums,
    load_optimizer_tensors,
    optimizer_tensors,
    trainable,
)
from ragx.training.record import RECORD, require_replaceable
from ragx.training.resume import Progress, finite_or_none, require_same
from ragx.training.selection import Selection
from ragx.training.settings import FREE_TO_CHANGE, TrainingSettings
from ragx.training.sharding import pull_weights, sharded_copy
from ragx.training.step import Stepper
from ragx.training.tracking import Tracker, tracked

logger = logging.getLogger(__name__)

Evaluate = Callable[[RagModel, Sequence[Example]], Mapping[str, float]]


class Run:
    """A run between its steps: optimizer, progress, and what is written when."""

    def __init__(
        self,
        model: RagModel,
        *,
        settings: TrainingSettings,
        run_dir: Path,
        accelerator: Accelerator,
        card: Mapping[str, Any] | None,
    ) -> None:
        self.model, self.settings, self.accelerator, self.card = model, settings, accelerator, card
        self.run_dir, self.metrics_path = run_dir, run_dir / "metrics.jsonl"
        self.last, self.best = run_dir / "checkpoints" / "last", run_dir / "checkpoints" / "best"
        self.progress = Progress(Selection(settings.best_metric, settings.best_mode))
        self.trained: RagModel = model  # or its sharded copy
        self.wrapped: Any = model
        self.refresh: LiveRefresh | None = None  # of the index, where the passage encoder learns
        self.reads: Mapping[str, Any] = {}

    def start(self, reads: Mapping[str, Any], *, resume: bool) -> None:
        """Builds the optimizer, and takes up the interrupted run where there is one."""
        self.reads = reads
        for folder in (self.last, self.best):
            require_replaceable(folder)
        state = self._interrupted() if resume else None
        if state is not None:
            require_same(state.record, self.settings, reads)
            restore_weights(self.model, self.last)
        elif self.accelerator.is_main_process:
            for folder in (self.last, self.best):
                shutil.rmtree(folder, ignore_errors=True)
        if self.settings.gradient_checkpointing:
            _checkpoint_activations(self.model.generator.model)
        self.progress.start_sums = checksums(trainable(self.model))
        self.optimizer, self.stepper = self._stepper()
        if state is not None:
            load_optimizer_tensors(self.trained, self.optimizer, state.tensors)
            self.progress = Progress.from_json(state.record["progress"])
            self.stepper.skipped_steps = self.progress.skipped_steps
            if self.accelerator.scaler is not None:
                self.accelerator.scaler.load_state_dict(state.record["scaler"])
            logger.info("%s is continued after step %d", self.run_dir, self.progress.step)

    @property
    def complete(self) -> bool:
        """Whether no step is left."""
        return self.progress.stopped_early or self.progress.step >= self.settings.steps

    def go(self, examples: Sequence[Example], evaluate: Evaluate | None, dev_examples: Sequence[Example]) -> None:
        """Does the steps that are left."""
        environment.record(self.run_dir)
        progress, settings = self.progress, self.settings
        if self.refresh is not None:
            self.refresh.start(progress.step)
        began = time.perf_counter() - progress.seconds
        if evaluate is not None and progress.step == 0:
            metrics = self._evaluate(evaluate, dev_examples)
            progress.selection.require_metric(metrics)
            progress.initial_metrics = finite_or_none(metrics)
        path = self.metrics_path if self.accelerator.is_main_process else None
        device = self.accelerator.device
        with (
            MetricsLog(path, after_step=progress.step) as log,
            Ahead(self._batches(examples), self.stepper.prepare, device=device) as work,
            self._bar() as bar,
            self._tracked() as tracker,
        ):
            tracker.history(self.metrics_path)  # of a run that goes on
            for batch, prepared in work:
                row = self.stepper.run(progress.step + 1, batch, prepared)
                progress.step += 1
                progress.skipped_steps = self.stepper.skipped_steps
                at_end = progress.step == settings.steps
                evaluated = evaluate is not None and (at_end or _every(settings.eval_every, progress.step))
                saved = evaluated or at_end or _every(settings.save_every, progress.step)
                if saved:
                    work.settle()  # tokenizers and retriever are wanted here
                    self.pull()
                if at_end or (evaluated and progress.skipped_steps < progress.step):
                    self._require_changed()
                if evaluate is not None and evaluated:
                    row |= self._select(self._evaluate(evaluate, dev_examples))
                row |= {} if self.refresh is None else {"index_step": self.refresh.index_step}
                log.append(row)
                tracker.log(row)
                bar.update()
                progress.seconds = time.perf_counter() - began
                if saved:
                    log.sync()  # the checkpoint counts on the rows up to its step
                    self._save()
                if progress.stopped_early:
                    break
                if self.refresh is not None and not at_end:
                    self.refresh.after(progress.step, saved=saved)
            self._publish(tracker, examples, dev_examples)

    def pull(self) -> None:
        """Brings the caller's model up to date where a sharded copy is trained; all processes must call it."""
        if self.trained is not self.model:
            pull_weights(self.trained, self.model)

    def _interrupted(self) -> TrainingState | None:
        atomic.recover(self.last)
        return read_state(self.last) if (self.last / RECORD).exists() else None

    def _stepper(self) -> tuple[torch.optim.Optimizer, Stepper]:
        s, accelerator = self.settings, self.accelerator
        if s.fsdp:
            processes = accelerator.num_processes
            self.trained = sharded_copy(self.model, device=accelerator.device, processes=processes)
        optimizer = build_optimizer(
            self.trained,
            generator_lr=s.generator_lr,
            query_encoder_lr=s.query_encoder_lr,
            null_document_lr=s.null_document_lr,
            weight_decay=s.weight_decay,
            betas=(s.adam_beta1, s.adam_beta2),
            epsilon=s.adam_epsilon,
        )
        if s.fsdp:
            self.wrapped, prepared = self.trained, accelerator.prepare(optimizer)
        else:
            self.wrapped, prepared = accelerator.prepare(self.model, optimizer)
        stepper = Stepper(
            accelerator,
            model=self.wrapped,
            source=self.model,
            optimizer=prepared,
            schedule=build_schedule(optimizer, name=s.schedule, warmup_steps=s.warmup_steps, total_steps=s.steps),
            settings=s,
        )
        return optimizer, stepper

    def _batches(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        s, done = self.settings, self.progress.step
        lengths = [len(e.query) + len(e.answers[0]) for e in examples] if s.bucket_by_length else None
        order = batches(len(examples), batch_size=s.batch_size, seed=s.seed, start_step=done, lengths=lengths)
        for indices in islice(order, s.steps - done):
            yield [examples[index] for index in indices]

    def _bar(self) -> Any:
        hide = not (self.settings.progress and self.accelerator.is_main_process)
        return tqdm(total=self.settings.steps, initial=self.progress.step, desc="train", unit="step", disable=hide)

    def _evaluate(self, evaluate: Evaluate, dev_examples: Sequence[Example]) -> dict[str, float]:
        """Metrics of the model as it is, the same on all processes."""
        shared: list[Any] = [None]
        if self.accelerator.is_main_process:
            with self._asked() as model:
                shared = [{name: float(value) for name, value in evaluate(model, dev_examples).items()}]
        metrics: dict[str, float] = broadcast_object_list(shared)[0]
        logger.info("step %d: %s", self.progress.step, ", ".join(f"{k} {v:.4g}" for k, v in metrics.items()))
        return metrics

    @contextmanager
    def _asked(self) -> Iterator[RagModel]:
        """The whole model in eval mode, on the device."""
        home = self.model.generator.device  # where the whole model waits while a sharded copy is trained
        self.model.to(self.accelerator.device).eval()
        try:
            # Compiled code would be compiled again for each of its shapes.
            with torch.no_grad(), torch.compiler.set_stance("force_eager"):
                yield self.model
        finally:
            self.model.to(home)

    def _select(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Takes in an evaluation, keeps the best weights, and returns what it adds to the step's row."""
        progress = self.progress
        progress.final_metrics = finite_or_none(metrics)
        if progress.selection.consider(metrics, progress.step, eligible=not self.stepper.last_was_skipped):
            self._write(self.best)
        progress.stopped_early = progress.selection.exhausted(self.settings.patience)
        return {f"eval/{name}": value for name, value in metrics.items()}

    def _save(self) -> None:
        scaler = self.accelerator.scaler
        record = {
            "progress": self.progress.to_json(),
            "settings": asdict(self.settings),
            "reads": dict(self.reads),
            "random_state": "reseeded from (seed, step, process) before each step",
            "scaler": scaler.state_dict() if scaler is not None else None,
        }
        collect = self.settings.fsdp or self.accelerator.is_main_process
        tensors = optimizer_tensors(self.trained, self.optimizer) if collect else {}
        self._write(self.last, TrainingState(record, tensors))

    def _write(self, directory: Path, state: TrainingState | None = None) -> None:
        if self.accelerator.is_main_process:
            metrics = {name: value for name, value in self.progress.final_metrics.items() if value is not None}
            told = {key: value for key, value in asdict(self.settings).items() if key not in FREE_TO_CHANGE}
            card = {"Training": {"step": self.progress.step, **metrics, **told}, **(self.card or {})}
            save_checkpoint(self.model, directory, state=state, card=card)
        self.accelerator.wait_for_everyone()

    def _require_changed(self) -> None:
        """Did training change the weights at all? A group that stood still is a warning."""
        before, after = self.progress.start_sums, checksums(trainable(self.model))
        still = [group for group in after if after[group] == before[group]]
        if len(still) == len(after):
            raise TrainingError(
                f"{' and '.join(still)} must change in training, got the same weights after step {self.progress.step}. "
                "Raise the learning rates, or keep the weights in fp32: bf16 weights round small updates away."
            )
        for group in still:
            logger.warning("no weight of %s changed in %d steps", group, self.progress.step)

    def _tracked(self) -> AbstractContextManager[Tracker]:
        settings, main = self.settings, self.accelerator.is_main_process
        return tracked(
            settings.wandb_project if main else None,
            mode=settings.wandb_mode,
            directory=self.run_dir,
            config={**asdict(settings), "reads": dict(self.reads)},
            resumed=self.progress.step > 0,
        )

    def _publish(self, tracker: Tracker, examples: Sequence[Example], dev_examples: Sequence[Example]) -> None:
        """The checkpoint to use and the index it goes with, as artifacts; some answers of the last weights."""
        best = self.progress.selection.step is not None
        tracker.checkpoint(self.best if best else self.last, upload=self.settings.wandb_upload)
        manifest = getattr(self.model.retriever, "manifest", None)
        if manifest is not None:
            tracker.index(manifest)
        tracker.answers(self._asked(), dev_examples or examples, part="dev" if dev_examples else "train")


def _checkpoint_activations(module: Any) -> None:
    # Later versions of transformers have renamed it.
    enable = getattr(module, "activation_checkpointing_enable", None) or module.gradient_checkpointing_enable
    enable({"use_reentrant": False})  # the other kind cannot be read in groups of passages, nor by several processes


def _every(interval: int, step: int) -> bool:
    return interval > 0 and step % interval == 0
