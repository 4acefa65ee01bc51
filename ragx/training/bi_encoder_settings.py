"""What a bi-encoder training run is told: one flat record, checked as a whole, compared when a run resumes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ragx.training.settings import SCHEDULES

PRECISIONS = ("no", "bf16")
METRICS = ("average_rank", "mrr", "success@1", "success@5", "success@20", "success@100")


@dataclass(frozen=True, slots=True)
class BiEncoderSettings:
    """Settings of `ragx.training.bi_encoder_loop.train_bi_encoder`; DPR's values are in its appendix.

    Attributes:
        steps: optimizer steps of the whole run.
        batch_size: questions in one step over all processes; each is scored against the passages of all of them.
        hard_negatives, negatives: passages of each kind that a question brings along, where it has so many.
        random_positive: draw the positive from all golds of a question at each step; else the first is taken.
        learning_rate: peak, of both towers.
        schedule, warmup_steps, weight_decay, adam_beta1, adam_beta2, adam_epsilon, max_grad_norm: as in
            `TrainingSettings`.
        seed: of order, draws and dropout.
        eval_every: steps between evaluations; 0 evaluates only before the first and after the last step.
        eval_negatives: passages of each kind that a dev question adds to the pool (DPR: 30).
        eval_batch_size: texts encoded at a time in an evaluation.
        save_every: steps between writes of `checkpoints/last`; 0 writes with each evaluation and at the end.
        best_metric: the best checkpoint has the lowest average_rank, or the highest of another metric.
        patience: evaluations without a new best after which the run stops; 0 never stops early.
        mixed_precision: `no` or `bf16`; weights, scores and loss are in fp32.
        gradient_checkpointing: recompute activations in the backward pass.
        device: `auto` or `cpu`.
        progress: show a progress bar.
    """

    steps: int
    batch_size: int
    hard_negatives: int = 1
    negatives: int = 0
    random_positive: bool = False
    learning_rate: float = 2e-5
    schedule: str = "linear"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 2.0
    seed: int = 0
    eval_every: int = 0
    eval_negatives: int = 30
    eval_batch_size: int = 64
    save_every: int = 0
    best_metric: str = "average_rank"
    patience: int = 0
    mixed_precision: str = "no"
    gradient_checkpointing: bool = False
    device: str = "auto"
    progress: bool = True

    @property
    def best_mode(self) -> str:
        """The direction of `best_metric`."""
        return "min" if self.best_metric == "average_rank" else "max"

    def problems(self, prefix: str = "training") -> list[str]:
        """Everything that is wrong, one sentence each, opening with the dotted key; empty when all is well."""
        found = []

        def require(key: str, holds: bool, condition: str, advice: str) -> None:
            if not holds:
                found.append(f"{prefix}.{key} must {condition}, got {getattr(self, key)!r}. {advice}")

        choices = {
            "schedule": SCHEDULES,
            "mixed_precision": PRECISIONS,
            "best_metric": METRICS,
            "device": ("auto", "cpu"),
        }
        for key, allowed in choices.items():
            require(key, getattr(self, key) in allowed, f"be one of {', '.join(allowed)}", "Choose one of them.")
        for key in ("steps", "batch_size", "eval_batch_size"):
            require(key, getattr(self, key) >= 1, "be at least 1", "Nothing would be trained.")
        for key in (
            "hard_negatives",
            "negatives",
            "warmup_steps",
            "eval_every",
            "eval_negatives",
            "save_every",
            "patience",
        ):
            require(key, getattr(self, key) >= 0, "be at least 0", "0 switches it off.")
        for key in ("learning_rate", "weight_decay", "max_grad_norm"):
            value = getattr(self, key)
            require(key, math.isfinite(value) and value >= 0, "be finite and at least 0", "0 switches it off.")
        for key in ("adam_beta1", "adam_beta2"):
            require(key, 0 <= getattr(self, key) < 1, "be at least 0 and below 1", "Adam's defaults are 0.9 and 0.999.")
        require("adam_epsilon", self.adam_epsilon > 0, "be above 0", "Adam's default is 1e-8.")
        require(
            "batch_size",
            self.batch_size != 1 or self.hard_negatives + self.negatives > 0,
            "be above 1 without negatives",
            "A question alone with its passage has loss 0 and teaches nothing.",
        )
        require(
            "warmup_steps", self.warmup_steps <= max(0, self.steps), f"be at most steps ({self.steps})", "Lower it."
        )
        return found
