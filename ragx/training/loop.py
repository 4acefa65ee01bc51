"""The training loop (section 2.4): query encoder and generator jointly, passage encoder and index frozen (unless
`live_refresh` goes beyond the paper).

    loss  =  mean over the batch of  -log p(y|x)

A run is a function of its settings, its examples and its starting weights. What it reads, draws and decides at step s
follows from s and from `checkpoints/last`, so a run that was killed anywhere goes on to the same weights, the same
metrics.jsonl and the same best checkpoint, bit for bit on a CPU.

    run_dir/   metrics.jsonl   checkpoints/last (resumable)   checkpoints/best (weights only)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from ragx.errors import ConfigError, TrainingError
from ragx.filters import question_filters
from ragx.model import RagModel
from ragx.records import Example
from ragx.training.compiling import compiled, require_compiler
from ragx.training.devices import accelerator_of
from ragx.training.live_refresh import live
from ragx.training.lock import locked_by_all
from ragx.training.null_start import start_null_document
from ragx.training.resume import identity
from ragx.training.run import Evaluate, Run
from ragx.training.settings import TrainingSettings

__all__ = ["Evaluate", "TrainingResult", "TrainingSettings", "mean_nll", "train"]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """Where a run ended.

    Attributes:
        step: optimizer steps done, those before a resume included.
        best_step, best_value: of the best evaluation; None without one.
        metrics_path: metrics.jsonl.
        last_checkpoint, best_checkpoint: folders; best is None without an evaluation.
        initial_metrics, final_metrics: the evaluation before the first step and the latest one.
        stopped_early: `patience` ran out.
        skipped_steps: fp16 overflows.
        seconds: time in the loop, over all its parts.
    """

    step: int
    best_step: int | None
    best_value: float | None
    metrics_path: Path
    last_checkpoint: Path
    best_checkpoint: Path | None
    initial_metrics: dict[str, float | None]
    final_metrics: dict[str, float | None]
    stopped_early: bool
    skipped_steps: int
    seconds: float

    @property
    def checkpoint(self) -> Path:
        """The checkpoint to use: the best where there was an evaluation, else the last."""
        return self.best_checkpoint or self.last_checkpoint


def train(
    model: RagModel,
    examples: Sequence[Example],
    *,
    settings: TrainingSettings,
    run_dir: str | Path,
    dev_examples: Sequence[Example] | None = None,
    evaluate: Evaluate | None = None,
    resume: bool = True,
    card: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Trains `model` in place on the first answer of each example; it ends with the last weights, in eval mode.

    Args:
        settings: see `TrainingSettings`.
        run_dir: written to; a run that was interrupted there is continued.
        dev_examples: given to `evaluate`; without `evaluate` their mean -log p(y|x) is the metric `nll`.
        evaluate: (model in eval mode, dev_examples) -> metrics by name, on the main process. Called before the first
            step too, so that a misspelt `best_metric` ends the run before it begins and the start is known.
        resume: False starts over and removes the earlier run's checkpoints.
        card: further sections of the checkpoints' MODEL_CARD.md.

    Raises:
        ConfigError: settings that cannot be, or that differ from those the interrupted run was started with, or a
            `run_dir` in which another job trains.
        CheckpointError: something else than checkpoints stands where they are to be written.
        TrainingError: nothing to train on or no step to do, a value that is not finite, a group of parameters that the
            loss does not reach, or weights that are the same at the end as at the start.
    """
    if settings.steps < 1:
        raise TrainingError(f"training.steps must be at least 1, got {settings.steps}. Nothing would be trained.")
    if not examples:
        raise TrainingError("examples must hold at least one example, got none. Check the training file.")
    dev_examples = dev_examples or ()
    if evaluate is None and dev_examples:
        evaluate = mean_nll(settings.batch_size)
    accelerator = _accelerator(settings, evaluated=evaluate is not None)
    # Passages that do not explain the answer get gradients near 1e-40; a CPU takes twice as long over those.
    torch.set_flush_denormal(True)
    run = Run(model, settings=settings, run_dir=Path(run_dir), accelerator=accelerator, card=card)
    at_once, model.passages_at_once = model.passages_at_once, settings.passages_at_once or model.passages_at_once
    try:
        with (
            locked_by_all(run_dir, accelerator),
            compiled(model.generator, enabled=settings.compile),
            live(model, every=settings.live_refresh, run_dir=run.run_dir, accelerator=accelerator) as run.refresh,
        ):
            start_null_document(model, examples)
            reads = identity(model, examples, dev_examples, processes=accelerator.num_processes)
            run.start(reads, resume=resume)
            if run.complete:
                logger.info("%s is complete at step %d: nothing is left to train", run_dir, run.progress.step)
            else:
                run.go(examples, evaluate, dev_examples)
            if run.refresh is not None:
                run.refresh.finish(run.last)
    finally:
        accelerator.unwrap_model(run.wrapped, keep_fp32_wrapper=False)
        model.passages_at_once = at_once
        model.eval()
    return _result(run)


def _result(run: Run) -> TrainingResult:
    progress = run.progress
    best_step = progress.selection.step
    return TrainingResult(
        step=progress.step,
        best_step=best_step,
        best_value=progress.selection.value,
        metrics_path=run.metrics_path,
        last_checkpoint=run.last,
        best_checkpoint=run.best if best_step is not None else None,
        initial_metrics=progress.initial_metrics,
        final_metrics=progress.final_metrics,
        stopped_early=progress.stopped_early,
        skipped_steps=progress.skipped_steps,
        seconds=progress.seconds,
    )


def mean_nll(batch_size: int) -> Evaluate:
    """An evaluation that yields `nll`, the mean of -log p(y|x) in nats over examples (not over batches)."""

    def evaluate(model: RagModel, examples: Sequence[Example]) -> dict[str, float]:
        total = 0.0
        for start in range(0, len(examples), batch_size):
            part = examples[start : start + batch_size]
            queries, answers = [e.query for e in part], [e.answers[0] for e in part]
            ready = model.prepare(queries, answers, filters=question_filters(part, model.filtered_by))
            total += float(model(queries, answers, prepared=ready).nll.double().sum())
        return {"nll": total / len(examples)}

    return evaluate


def _accelerator(settings: TrainingSettings, *, evaluated: bool) -> Accelerator:
    """Accelerate's view of the devices, after everything that can be wrong with the settings was named in one go."""
    accelerator = accelerator_of(settings, evaluated=evaluated)
    if settings.compile:
        require_compiler(accelerator.device)
    if settings.fsdp and accelerator.num_processes == 1:
        raise ConfigError(["training.fsdp must be false with one process, got true. Start several with torchrun."])
    parts = accelerator.num_processes * settings.gradient_accumulation
    if settings.batch_size < parts:
        raise ConfigError(
            [
                f"training.batch_size must be at least processes x gradient_accumulation ({parts}), "
                f"got {settings.batch_size}. Each micro-batch needs an example."
            ]
        )
    return accelerator
