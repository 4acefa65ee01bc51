"""The schema of what every training takes, of RAG and of a bi-encoder alike.

One decision: `ragx.training` explains and checks the values, so a field is a name and a type here.
"""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING


@dataclass
class LoopConfig:
    """Steps and batches, AdamW and its schedule, when to evaluate and save, and where it is computed."""

    steps: int = MISSING
    batch_size: int = MISSING
    schedule: str = MISSING
    warmup_steps: int = MISSING
    weight_decay: float = MISSING
    adam_beta1: float = MISSING
    adam_beta2: float = MISSING
    adam_epsilon: float = MISSING
    max_grad_norm: float = MISSING
    eval_every: int = MISSING
    save_every: int = MISSING
    best_metric: str = MISSING
    patience: int = MISSING
    mixed_precision: str = MISSING
    gradient_checkpointing: bool = MISSING
    device: str = MISSING
    progress: bool = MISSING
