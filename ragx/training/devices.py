"""Devices and precision of a run (section 2.4), the same for the joint training and for the bi-encoder alone."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs

from ragx.errors import ConfigError
from ragx.training.bi_encoder_settings import BiEncoderSettings
from ragx.training.settings import TrainingSettings


def accelerator_of(settings: TrainingSettings | BiEncoderSettings, *, evaluated: bool) -> Accelerator:
    """Accelerate's view of the devices.

    Args:
        evaluated: whether there is something to evaluate on.

    Raises:
        ConfigError: everything that is wrong with the settings, or a precision that the device lacks.
    """
    problems = settings.problems()
    for key in ("eval_every", "patience"):
        if getattr(settings, key) and not evaluated:
            problems.append(f"training.{key} must be 0 without dev examples, got {getattr(settings, key)}. Give some.")
    if problems:
        raise ConfigError(problems)
    # Accelerate keeps one precision and device for a process; a second run in it may ask for others.
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    accelerator = Accelerator(
        mixed_precision=settings.mixed_precision,
        cpu=settings.device == "cpu",
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
    )
    if settings.mixed_precision != "no" and not accelerator.native_amp:  # accelerate would train in fp32 and not say so
        raise ConfigError(
            [
                f"training.mixed_precision must be one that {accelerator.device.type} has, "
                f"got {settings.mixed_precision!r}. Use 'bf16' or 'no'."
            ]
        )
    return accelerator
