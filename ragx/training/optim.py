"""Adam with one learning rate for the query encoder and one for the generator (section 2.4).

    lr(group, step)  =  peak(group) * factor(step)          factor: warm-up, then constant, linear or cosine

The schedule is a pure function of the step and holds no state, so a resumed run needs none; a step that fp16 skips does
not shift it. Optimizer state is named by parameter, never by position, and leaves as plain tensors.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ragx.errors import CheckpointError, TrainingError
from ragx.training.settings import SCHEDULES
from ragx.training.sharding import shared_as, whole

logger = logging.getLogger(__name__)
GROUPS = ("generator", "query_encoder", "passage_encoder", "null_document")
NO_DECAY = "/no_decay"


def trainable(model: nn.Module) -> dict[str, dict[str, nn.Parameter]]:
    """Trainable parameters by group (one of `GROUPS`) and name; a frozen query encoder has no group.

    Raises:
        TrainingError: nothing of the generator is trainable, or a parameter belongs to no group.
    """
    groups: dict[str, dict[str, nn.Parameter]] = {group: {} for group in GROUPS}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            group = name.split(".", 1)[0]
            if group not in groups:
                raise TrainingError(f"parameter {name} must belong to one of {', '.join(GROUPS)}. Freeze or move it.")
            groups[group][name] = parameter
    if not groups["generator"]:
        raise TrainingError("generator must have trainable parameters, got none. Everything in it is frozen.")
    if getattr(model, "query_encoder", None) is not None and not groups["query_encoder"]:
        logger.info("the query encoder is frozen: only the generator is trained")
    return {group: parameters for group, parameters in groups.items() if parameters}


def build_optimizer(
    model: nn.Module,
    *,
    generator_lr: float,
    query_encoder_lr: float,
    null_document_lr: float = 1e-2,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> AdamW:
    """AdamW over named groups; with `weight_decay` 0 it is the paper's Adam.

    Each group is a dict with `name` (one of `GROUPS`, and with weight decay also `.../no_decay` for biases and norms),
    its parameters, and its peak rate under `initial_lr`.

    Raises:
        TrainingError: see `trainable`.
    """
    rates = {"generator": generator_lr, "query_encoder": query_encoder_lr, "null_document": null_document_lr}
    rates["passage_encoder"] = query_encoder_lr  # live refresh: both halves of the bi-encoder learn alike
    return adamw(trainable(model), rates=rates, weight_decay=weight_decay, betas=betas, epsilon=epsilon)


def adamw(
    groups: Mapping[str, Mapping[str, nn.Parameter]],
    *,
    rates: Mapping[str, float],
    weight_decay: float,
    betas: tuple[float, float],
    epsilon: float,
) -> AdamW:
    """AdamW over parameters by group and name, with the peak rate of each group; see `build_optimizer`."""
    named: list[dict[str, Any]] = []
    for name, parameters in groups.items():
        common = {"lr": rates[name], "initial_lr": rates[name]}
        matrices = [p for p in parameters.values() if p.ndim >= 2 or weight_decay == 0]
        vectors = [p for p in parameters.values() if p.ndim < 2 and weight_decay != 0]
        if matrices:
            named.append({"name": name, "params": matrices, "weight_decay": weight_decay, **common})
        if vectors:
            named.append({"name": name + NO_DECAY, "params": vectors, "weight_decay": 0.0, **common})
    return AdamW(named, betas=betas, eps=epsilon, fused=True)


@dataclass(frozen=True)
class Schedule:
    """Learning rates as a function of the step; see `build_schedule`."""

    optimizer: Optimizer
    name: str
    warmup_steps: int
    total_steps: int

    def factor(self, step: int) -> float:
        """The share of the peak rate at 0-based `step`; above 0 at every step of the run."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.name == "constant":
            return 1.0
        done = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        return 1.0 - done if self.name == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))

    def apply(self, step: int) -> dict[str, float]:
        """Sets the rates of 0-based `step` and returns them by group."""
        factor = self.factor(step)
        rates = {}
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
            rates[group["name"].removesuffix(NO_DECAY)] = group["lr"]
        return rates


def build_schedule(optimizer: Optimizer, *, name: str, warmup_steps: int, total_steps: int) -> Schedule:
    """A schedule over `optimizer`'s groups: `constant`, `linear` or `cosine` after a linear warm-up."""
    if name not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {name!r}. Choose one of them.")
    return Schedule(optimizer, name, warmup_steps, total_steps)


def gradient_norms(groups: Mapping[str, Mapping[str, nn.Parameter]]) -> dict[str, Tensor]:
    """The 2-norm () of each group's gradient, fp32, left on the device (no synchronization)."""
    return {group: _norm(parameters.values()) for group, parameters in groups.items()}


def _norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return whole(torch.nn.utils.get_total_norm(gradients)).float() if gradients else torch.zeros(())


def without_gradient(groups: Mapping[str, Mapping[str, nn.Parameter]]) -> dict[str, list[str]]:
    """Names of the parameters that a backward pass did not reach, by group."""
    return {
        group: [name for name, parameter in parameters.items() if parameter.grad is None]
        for group, parameters in groups.items()
    }


def checksums(groups: Mapping[str, Mapping[str, nn.Parameter]]) -> dict[str, int]:
    """One integer a group over the bits of its weights: any change that is stored changes it (short of a collision)."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = {}
    with torch.no_grad():
        for group, parameters in groups.items():
            total = 0
            for position, parameter in enumerate(parameters.values()):
                bits = parameter.detach().reshape(-1).view(integers[parameter.element_size()])
                total += (position + 1) * int(bits.sum(dtype=torch.int64))
            sums[group] = total
    return sums


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as CPU tensors named `<slot>/<parameter>`, e.g. `exp_avg/generator.model.shared.weight`.

    Sharded state is gathered, which all processes must take part in.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{slot}/{names[parameter]}": whole(value.detach()).cpu().contiguous()
        for group in optimizer.param_groups
        for parameter in group["params"]
        for slot, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Puts back what `optimizer_tensors` returned, on the devices of the parameters.

    Raises:
        CheckpointError: state of other parameters than those the optimizer holds.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    held = [names[parameter] for parameter in parameters]
    slots: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        slot, _, name = key.partition("/")
        slots.setdefault(name, {})[slot] = value
    if set(slots) - set(held) or (slots and set(held) - set(slots)):
        surplus, missing = sorted(set(slots) - set(held)), sorted(set(held) - set(slots))
        raise CheckpointError(
            f"optimizer state must cover the trainable parameters, got surplus {surplus[:5]} ({len(surplus)}) and "
            f"missing {missing[:5]} ({len(missing)}). Resume with the model that the run was started with."
        )
    state = {
        position: {slot: shared_as(value, parameter) for slot, value in slots[name].items()}
        for position, (name, parameter) in enumerate(zip(held, parameters, strict=True))
        if name in slots
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
