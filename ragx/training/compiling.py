"""`torch.compile` for the networks of the generator that are called in training; it changes speed, not results.

Compiled in place: names of weights, checkpoints and the other paths through the model stay as they are.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ragx.errors import ConfigError
from ragx.generator.pretrained import PretrainedGenerator

COMPILERS = ("c++", "g++", "clang++")


def require_compiler(device: torch.device) -> None:
    """Raises ConfigError where `torch.compile` has nothing to compile with: Triton for a GPU, else a C++ compiler."""
    if device.type == "cuda":
        found, needed = importlib.util.find_spec("triton") is not None, "the package triton"
    else:
        names = [os.environ[name] for name in ("CXX",) if os.environ.get(name)] or COMPILERS
        found, needed = any(shutil.which(name) for name in names), f"a C++ compiler ({', '.join(names)})"
    if not found:
        raise ConfigError([f"training.compile must be false without {needed}, got true. Install it or switch it off."])


@contextmanager
def compiled(generator: PretrainedGenerator, *, enabled: bool, backend: str = "inductor") -> Iterator[None]:
    """Compiles the generator's networks for as long as the block lasts; shapes may vary from batch to batch."""
    networks = generator.networks if enabled else []
    for network in networks:
        network.compile(dynamic=True, backend=backend)
    try:
        yield
    finally:
        for network in networks:
            network._compiled_call_impl = None  # what nn.Module.compile set; there is no method that takes it back
