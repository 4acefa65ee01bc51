"""Trains a bi-encoder as DPR was (Karpukhin et al. 2020): what a retriever of section 2.2 is before RAG trains q(x) on.

    run_dir/   metrics.jsonl   checkpoints/last (resumable)   checkpoints/best (weights only)

As in `loop`, step s follows from (settings, examples, s) and from `checkpoints/last`, so that a run that was killed
anywhere ends with the same bytes.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from tqdm.auto import tqdm

from ragx import atomic, environment
from ragx.data.collate import batches
from ragx.data.retriever_examples import RetrieverExample
from ragx.errors import ConfigError, TrainingError
from ragx.training.bi_encoder_batches import Golds
from ragx.training.bi_encoder_evaluation import Pool, evaluate
from ragx.training.bi_encoder_model import BiEncoder, restore_bi_encoder, save_bi_encoder
from ragx.training.bi_encoder_settings import BiEncoderSettings
from ragx.training.bi_encoder_step import ContrastiveStepper
from ragx.training.checkpoint import TrainingState, read_state
from ragx.training.devices import accelerator_of
from ragx.training.lock import locked_by_all
from ragx.training.metrics_log import MetricsLog
from ragx.training.optim import adamw, build_schedule, checksums, load_optimizer_tensors, optimizer_tensors
from ragx.training.record import RECORD, require_replaceable
from ragx.training.resume import Progress, digest, finite_or_none, require_same
from ragx.training.selection import Selection

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BiEncoderResult:
    """Where a run ended.

    Attributes:
        step: optimizer steps done.
        best_step, best_value: of the best evaluation; None without one.
        checkpoint: the best where there was an evaluation, else the last.
        metrics_path: metrics.jsonl.
        initial_metrics, final_metrics: the evaluation before the first step, and the latest.
    """

    step: int
    best_step: int | None
    best_value: float | None
    checkpoint: Path
    metrics_path: Path
    initial_metrics: dict[str, float | None]
    final_metrics: dict[str, float | None]


def train_bi_encoder(
    model: BiEncoder,
    examples: Sequence[RetrieverExample],
    *,
    settings: BiEncoderSettings,
    run_dir: str | Path,
    dev_examples: Sequence[RetrieverExample] | None = None,
    card: str = "",
) -> BiEncoderResult:
    """Trains `model` in place; it ends with the last weights, in eval mode. Started again, it goes on where it stopped.

    Args:
        run_dir: gets metrics.jsonl, checkpoints/last and, with dev examples, checkpoints/best.
        card: what MODEL_CARD.md says of the data.

    Raises:
        ConfigError: settings that cannot be, that differ from those of the interrupted run, or a `run_dir` in use.
        CheckpointError: something else than checkpoints stands where they are to be written.
        TrainingError: no example, a loss or gradient that is not finite, or weights that did not change.
    """
    accelerator = _accelerator(settings, evaluated=bool(dev_examples))
    if not examples:
        raise TrainingError("examples must hold at least one example, got none. Check the training file.")
    run = _Run(model, examples, dev_examples or (), settings, Path(run_dir), accelerator, card)
    try:
        with locked_by_all(run_dir, accelerator):
            run.start()
            if run.complete:
                logger.info("%s is complete at step %d: nothing is left to train", run_dir, run.progress.step)
            else:
                environment.record(run_dir)
                run.go()
    finally:
        accelerator.unwrap_model(run.wrapped, keep_fp32_wrapper=False)
        model.eval()
    progress = run.progress
    evaluated = progress.selection.step is not None
    return BiEncoderResult(
        step=progress.step,
        best_step=progress.selection.step,
        best_value=progress.selection.value,
        checkpoint=run.best if evaluated else run.last,
        metrics_path=run.metrics_path,
        initial_metrics=progress.initial_metrics,
        final_metrics=progress.final_metrics,
    )


class _Run:
    """A run between its steps; the order of writes is that of `ragx.training.run`: best, row of metrics.jsonl, last."""

    def __init__(
        self,
        model: BiEncoder,
        examples: Sequence[RetrieverExample],
        dev_examples: Sequence[RetrieverExample],
        settings: BiEncoderSettings,
        run_dir: Path,
        accelerator: Accelerator,
        card: str,
    ) -> None:
        self.model, self.examples, self.settings = model, examples, settings
        self.accelerator, self.card = accelerator, card
        self.metrics_path = run_dir / "metrics.jsonl"
        self.last, self.best = run_dir / "checkpoints" / "last", run_dir / "checkpoints" / "best"
        self.pool = Pool(dev_examples, negatives=settings.eval_negatives) if dev_examples else None
        self.progress = Progress(Selection(settings.best_metric, settings.best_mode))
        self.wrapped: Any = model
        self.reads = {
            "query_encoder": type(model.query_encoder.model).__name__,
            "passage_encoder": type(model.passage_encoder.model).__name__,
            "pooling": model.query_encoder.pooling,
            "max_query_length": model.query_encoder.max_length,
            "max_passage_length": model.passage_encoder.max_length,
            "shared": model.shared,
            "data.examples": digest(map(asdict, examples)),
            "data.dev_examples": digest(map(asdict, dev_examples)),
            "processes": accelerator.num_processes,
        }

    def start(self) -> None:
        """Builds the optimizer, and takes up the interrupted run where there is one."""
        for folder in (self.last, self.best):
            require_replaceable(folder)
        atomic.recover(self.last)
        state = read_state(self.last) if (self.last / RECORD).is_file() else None
        if state is not None:
            require_same(state.record, self.settings, self.reads)
            restore_bi_encoder(self.model, self.last)
        elif self.accelerator.is_main_process:
            for folder in (self.last, self.best):
                shutil.rmtree(folder, ignore_errors=True)
        s = self.settings
        if s.gradient_checkpointing:
            for tower in (self.model.query_encoder, self.model.passage_encoder):
                tower.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.progress.start_sums = checksums(self.model.groups())
        self.optimizer = adamw(
            self.model.groups(),
            rates=dict.fromkeys(self.model.groups(), s.learning_rate),
            weight_decay=s.weight_decay,
            betas=(s.adam_beta1, s.adam_beta2),
            epsilon=s.adam_epsilon,
        )
        self.model.to(self.accelerator.device)
        self.wrapped = self.accelerator.prepare(self.model)
        schedule = build_schedule(self.optimizer, name=s.schedule, warmup_steps=s.warmup_steps, total_steps=s.steps)
        self.stepper = ContrastiveStepper(
            self.accelerator,
            source=self.model,
            model=self.wrapped,
            optimizer=self.optimizer,
            schedule=schedule,
            settings=s,
            golds=Golds(self.examples),
        )
        if state is not None:
            load_optimizer_tensors(self.model, self.optimizer, state.tensors)
            self.progress = Progress.from_json(state.record["progress"])
            logger.info("%s is continued after step %d", self.last, self.progress.step)

    @property
    def complete(self) -> bool:
        """Whether no step is left."""
        return self.progress.stopped_early or self.progress.step >= self.settings.steps

    def go(self) -> None:
        """Does the steps that are left."""
        progress, settings = self.progress, self.settings
        began = time.perf_counter() - progress.seconds
        if self.pool is not None and progress.step == 0:
            progress.initial_metrics = finite_or_none(self._evaluate())
        path = self.metrics_path if self.accelerator.is_main_process else None
        with MetricsLog(path, after_step=progress.step) as log, self._bar() as bar:
            for numbers in self._batches():
                row = self.stepper.run(progress.step + 1, [self.examples[number] for number in numbers])
                progress.step += 1
                at_end = progress.step == settings.steps
                evaluated = self.pool is not None and (at_end or _every(settings.eval_every, progress.step))
                if at_end:
                    self._require_changed()
                if evaluated:
                    row |= self._select(self._evaluate())
                log.append(row)
                bar.update()
                progress.seconds = time.perf_counter() - began
                if evaluated or at_end or _every(settings.save_every, progress.step):
                    log.sync()
                    record = {"progress": progress.to_json(), "settings": asdict(settings), "reads": self.reads}
                    self._write(self.last, TrainingState(record, optimizer_tensors(self.model, self.optimizer)))
                if progress.stopped_early:
                    break

    def _batches(self) -> Iterator[list[int]]:
        s, done = self.settings, self.progress.step
        order = batches(len(self.examples), batch_size=s.batch_size, seed=s.seed, start_step=done)
        return islice(order, s.steps - done)

    def _bar(self) -> Any:
        hide = not (self.settings.progress and self.accelerator.is_main_process)
        return tqdm(total=self.settings.steps, initial=self.progress.step, desc="train", unit="step", disable=hide)

    def _evaluate(self) -> dict[str, float]:
        assert self.pool is not None
        size, accelerator = self.settings.eval_batch_size, self.accelerator
        metrics = evaluate(self.model, self.pool, batch_size=size, accelerator=accelerator)
        logger.info("step %d: %s", self.progress.step, ", ".join(f"{k} {v:.4g}" for k, v in metrics.items()))
        return metrics

    def _select(self, metrics: dict[str, float]) -> dict[str, float]:
        progress = self.progress
        progress.final_metrics = finite_or_none(metrics)
        if progress.selection.consider(metrics, progress.step):
            self._write(self.best)
        progress.stopped_early = progress.selection.exhausted(self.settings.patience)
        return {f"eval/{name}": value for name, value in metrics.items()}

    def _write(self, directory: Path, state: TrainingState | None = None) -> None:
        if self.accelerator.is_main_process:
            figures = {k: v for k, v in self.progress.final_metrics.items() if v is not None}
            rows = "".join(f"| {name} | {value:.4g} |\n" for name, value in figures.items())
            text = f"# Bi-encoder\n\nStep {self.progress.step}. {self.card}\n\n| figure | value |\n|---|---|\n{rows}"
            facts = {"step": self.progress.step, "metrics": figures}
            save_bi_encoder(self.model, directory, card=text, facts=facts, state=state)
        self.accelerator.wait_for_everyone()

    def _require_changed(self) -> None:
        if checksums(self.model.groups()) == self.progress.start_sums:
            raise TrainingError(
                f"encoders must change in training, got the same weights after step {self.progress.step}. "
                "Raise the learning rate, or give negatives."
            )


def _every(interval: int, step: int) -> bool:
    return interval > 0 and step % interval == 0


def _accelerator(settings: BiEncoderSettings, *, evaluated: bool) -> Accelerator:
    accelerator = accelerator_of(settings, evaluated=evaluated)
    if settings.batch_size < accelerator.num_processes:
        raise ConfigError(
            [f"training.batch_size must be >= {accelerator.num_processes}, the processes, got {settings.batch_size}."]
        )
    return accelerator
