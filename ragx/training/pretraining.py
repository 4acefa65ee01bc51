"""The loop that pretrains from nothing: a loss per step number, Adam, a schedule, and a state that resumes exactly.

A step's data and noise depend on (seed, step) alone, so that a run killed at any moment and started again ends with
the same weights. Used by `denoising` and `bi_encoder`; the joint training of section 2.4 is `loop`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm.auto import tqdm

from ragx import atomic
from ragx.errors import CheckpointError, ConfigError, TrainingError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PretrainingSettings:
    """How long and how fast.

    Attributes:
        steps, batch_size, seed: steps of `batch_size` examples, all drawn from `seed`.
        learning_rate: peak, after `warmup_steps`; falls linearly to a twentieth of it.
        max_grad_norm: gradients are clipped to this norm.
        save_every: steps between saved states and evaluations.
    """

    steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    max_grad_norm: float
    seed: int
    save_every: int

    def __post_init__(self) -> None:
        low = [name for name in ("steps", "batch_size", "save_every") if getattr(self, name) < 1]
        if low:
            raise ConfigError(f"{name} must be >= 1, got {getattr(self, name)}." for name in low)

    def rate(self, step: int) -> float:
        """Learning rate of a step counted from 0."""
        warm = min(1.0, (step + 1) / max(1, self.warmup_steps))
        left = (self.steps - step) / max(1, self.steps - self.warmup_steps)
        return self.learning_rate * min(warm, max(0.05, left))


def pretrain(
    module: nn.Module,
    step_loss: Callable[[int], Tensor],
    *,
    settings: PretrainingSettings,
    folder: Path,
    evaluate: Callable[[], dict[str, float]],
) -> list[dict[str, float]]:
    """Minimizes `step_loss(step)` over the parameters of `module`; goes on from the state in `folder` if there is one.

    Args:
        step_loss: scalar loss of a step, a function of the step number and the weights alone.
        evaluate: figures to log every `save_every` steps, without gradient.

    Returns:
        One row every `save_every` steps: step, mean loss since the last row, seconds in all, and the figures.

    Raises:
        TrainingError: a loss that is not a number.
        CheckpointError: a state in `folder` that other settings made.
    """
    optimizer = torch.optim.AdamW(module.parameters(), lr=settings.learning_rate, weight_decay=0.0, fused=True)
    first, rows = _restore(module, optimizer, settings=settings, folder=folder)
    seconds = rows[-1]["seconds"] if rows else 0.0
    began, total = time.monotonic(), torch.zeros(())
    for step in tqdm(range(first, settings.steps), initial=first, total=settings.steps, unit="step", mininterval=5):
        torch.manual_seed(settings.seed * 1_000_003 + step)
        module.train()
        for group in optimizer.param_groups:
            group["lr"] = settings.rate(step)
        loss = step_loss(step)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise TrainingError(f"gradient norm must be finite, got {norm.item()} at step {step}. Lower learning_rate.")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
        done = step + 1
        if done % settings.save_every == 0 or done == settings.steps:
            count = (done - 1) % settings.save_every + 1
            row = {"step": float(done), "loss": total.item() / count, "seconds": seconds + time.monotonic() - began}
            module.eval()
            with torch.no_grad():
                row |= evaluate()
            rows.append(row)
            logger.info("%s", row)
            _save(module, optimizer, rows, settings=settings, folder=folder)
            total.zero_()
    return rows


def _save(module: nn.Module, optimizer: torch.optim.Optimizer, rows: list[dict[str, float]], *,
          settings: PretrainingSettings, folder: Path) -> None:  # fmt: skip
    names = [name for name, _ in module.named_parameters()]
    moments = optimizer.state_dict()["state"]
    tensors = {f"module/{name}": p.detach() for name, p in module.named_parameters()}
    for i, state in moments.items():
        tensors |= {f"optimizer/{names[i]}/{key}": value for key, value in state.items()}
    with atomic.directory(folder / "state") as state_folder:
        save_file({key: value.contiguous() for key, value in tensors.items()}, state_folder / "state.safetensors")
        (state_folder / "state.json").write_text(json.dumps({"settings": asdict(settings), "rows": rows}, indent=1))


def _restore(module: nn.Module, optimizer: torch.optim.Optimizer, *,
             settings: PretrainingSettings, folder: Path) -> tuple[int, list[dict[str, float]]]:  # fmt: skip
    atomic.recover(folder / "state")
    if not (folder / "state").exists():
        return 0, []
    saved = json.loads((folder / "state" / "state.json").read_text())
    changed = {key for key, value in asdict(settings).items() if saved["settings"].get(key) != value}
    if changed:
        raise CheckpointError(
            f"settings of {folder} must be those of the run that is resumed, got other values for "
            f"{', '.join(sorted(changed))}. Choose another folder or delete this one."
        )
    tensors = load_file(folder / "state" / "state.safetensors")
    states = {}
    with torch.no_grad():
        for i, (name, parameter) in enumerate(module.named_parameters()):
            parameter.copy_(tensors[f"module/{name}"])
            prefix = f"optimizer/{name}/"
            states[i] = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    return int(saved["rows"][-1]["step"]), saved["rows"]
