"""What a training run is told: one flat record, checked as a whole, compared key by key when a run resumes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SCHEDULES = ("constant", "linear", "cosine")
REDUCTIONS = ("mean_sequence", "mean_token")
PRECISIONS = ("no", "bf16", "fp16")
BEST_MODES = ("min", "max")

# Settings that a resumed run may change: none of them touches a weight, the log or the choice of the best checkpoint.
FREE_TO_CHANGE = frozenset({"save_every", "progress", "wandb_project", "wandb_mode", "wandb_upload"})


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of `ragx.training.loop.train`.

    Attributes:
        steps: optimizer steps of the whole run.
        batch_size: examples in one optimizer step, over all processes and micro-batches. Neither the number of
            processes nor `gradient_accumulation` changes the gradient.
        gradient_accumulation: micro-batches that a process cuts its share of the batch into.
        generator_lr, query_encoder_lr: peak learning rates of the two groups.
        null_document_lr: peak learning rate of the null document's logit, where the model has one.
        schedule: `constant`, `linear` (to zero) or `cosine` (to zero), after `warmup_steps` of linear warm-up.
        weight_decay: decoupled (AdamW), on matrices only; 0 is the paper's plain Adam.
        adam_beta1, adam_beta2, adam_epsilon: Adam's.
        max_grad_norm: the gradient of all groups together is scaled down to this norm; 0 does not clip.
        reduction: the loss is the mean over `mean_sequence` (the paper's) or `mean_token` of -log p(y|x).
        label_smoothing: share of each target token's probability that is spread over the vocabulary, in [0, 1).
        seed: of the order of examples and of dropout.
        bucket_by_length: examples of alike length share a batch.
        eval_every: steps between evaluations; 0 evaluates only before the first and after the last step.
        save_every: steps between writes of `checkpoints/last`; 0 writes with each evaluation and at the end.
        best_metric, best_mode: the best checkpoint has the `min` or `max` of this metric of the evaluation.
        patience: evaluations without a new best after which the run stops; 0 never stops early.
        mixed_precision: `no`, `bf16` or `fp16`; weights and optimizer stay in fp32.
        live_refresh: train the passage encoder too, at `query_encoder_lr`, and put an index of its new vectors in place
            every so many steps (see `ragx.training.live_refresh`); 0, the paper, holds encoder and index still.
        gradient_checkpointing: recompute the generator's activations in the backward pass.
        passages_at_once: passages of each query that are in memory at a time, 0 for all; the gradient is the same.
        compile: compile the generator's encoder and decoder (`torch.compile`).
        fsdp: with several processes, give each a share of weights, gradients and optimizer (FSDP) in place of a copy.
        device: `auto` (what accelerate finds) or `cpu`.
        progress: show a progress bar.
        wandb_project: also log to this Weights & Biases project; None does not.
        wandb_mode: `offline` or `online`.
        wandb_upload: the checkpoint's files go into its artifact; else it holds their paths and digests.
    """

    steps: int
    batch_size: int
    gradient_accumulation: int = 1
    generator_lr: float = 3e-5
    query_encoder_lr: float = 3e-5
    null_document_lr: float = 1e-2
    schedule: str = "linear"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 1.0
    reduction: str = "mean_sequence"
    label_smoothing: float = 0.0
    seed: int = 0
    bucket_by_length: bool = False
    eval_every: int = 0
    save_every: int = 0
    best_metric: str = "nll"
    best_mode: str = "min"
    patience: int = 0
    mixed_precision: str = "no"
    live_refresh: int = 0
    gradient_checkpointing: bool = False
    passages_at_once: int = 0
    compile: bool = False
    fsdp: bool = False
    device: str = "auto"
    progress: bool = True
    wandb_project: str | None = None
    wandb_mode: str = "offline"
    wandb_upload: bool = False

    def problems(self, prefix: str = "training") -> list[str]:
        """Everything that is wrong, one sentence each, opening with the dotted key; empty when all is well.

        `steps` below 1 is left to `train`, which calls it what it is: a run that trains nothing.
        """
        found = []

        def require(key: str, holds: bool, condition: str, advice: str) -> None:
            if not holds:
                found.append(f"{prefix}.{key} must {condition}, got {getattr(self, key)!r}. {advice}")

        choices = {
            "schedule": SCHEDULES,
            "reduction": REDUCTIONS,
            "mixed_precision": PRECISIONS,
            "best_mode": BEST_MODES,
            "device": ("auto", "cpu"),
            "wandb_mode": ("offline", "online"),
        }
        for key, allowed in choices.items():
            require(key, getattr(self, key) in allowed, f"be one of {', '.join(allowed)}", "Choose one of them.")
        for key in ("warmup_steps", "eval_every", "save_every", "patience", "passages_at_once", "live_refresh"):
            require(key, getattr(self, key) >= 0, "be at least 0", "0 switches it off.")
        for key in ("generator_lr", "query_encoder_lr", "null_document_lr", "weight_decay", "max_grad_norm"):
            value = getattr(self, key)
            require(key, math.isfinite(value) and value >= 0, "be finite and at least 0", "0 switches it off.")
        require("label_smoothing", 0 <= self.label_smoothing < 1, "be at least 0 and below 1", "0 switches it off.")
        require("fsdp", not (self.fsdp and self.mixed_precision == "fp16"), "be false with fp16", "Use bf16.")
        require("fsdp", not (self.fsdp and self.live_refresh), "be false with live_refresh", "Choose one of the two.")
        require("fsdp", not (self.fsdp and self.compile), "be false with compile", "Choose one of the two.")
        for key in ("adam_beta1", "adam_beta2"):
            require(key, 0 <= getattr(self, key) < 1, "be at least 0 and below 1", "Adam's defaults are 0.9 and 0.999.")
        require("adam_epsilon", self.adam_epsilon > 0, "be above 0", "Adam's default is 1e-8.")
        require("batch_size", self.batch_size >= 1, "be at least 1", "It counts the examples of one optimizer step.")
        require(
            "gradient_accumulation",
            1 <= self.gradient_accumulation <= max(1, self.batch_size),
            f"be between 1 and batch_size ({self.batch_size})",
            "Each micro-batch needs an example.",
        )
        require(
            "warmup_steps",
            self.warmup_steps <= max(0, self.steps),
            f"be at most steps ({self.steps})",
            "The peak learning rate would never be reached.",
        )
        return found


def changes(before: Mapping[str, Any], settings: Any) -> list[str]:
    """What differs from the settings `before` that an interrupted run was started with, one sentence a key.

    A run at a constant rate may be made longer: its first steps stay the same.
    """
    found = []
    for key, value in asdict(settings).items():
        if key in FREE_TO_CHANGE or key not in before or before[key] == value:
            continue
        if key == "steps" and settings.schedule == "constant" and value > before[key]:
            continue
        found.append(f"training.{key} must equal {before[key]!r} of the interrupted run, got {value!r}.")
    return found
