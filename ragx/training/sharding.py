"""FSDP: each process keeps a share of every weight, gradient and Adam moment, and gathers a layer when it is its turn.

The sharded model is a copy. The caller's stays whole, in each process, takes no part in the steps and is brought up to
date when it is needed: to evaluate, to save, and at the end. So checkpoints are those of any other run, and a run may
go on with another number of processes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ragx.model import RagModel


def sharded_copy(model: RagModel, *, device: torch.device, processes: int) -> RagModel:
    """A copy of `model` on `device`, each transformer layer and the rest sharded over the processes."""
    shared = [model.retriever, model.generator.inputs]  # without weights: both models use the same
    shared += [] if model.query_encoder is None else [model.query_encoder.tokenizer]
    twin = copy.deepcopy(model, {id(part): part for part in shared if part is not None}).to(device)
    mesh = init_device_mesh(device.type, (processes,))
    for layer in _layers(twin):
        fully_shard(layer, mesh=mesh)
    return fully_shard(twin, mesh=mesh)  # type: ignore[return-value]


def pull_weights(sharded: nn.Module, model: nn.Module) -> None:
    """Brings `model` up to date, weight by weight; all processes must call it."""
    with torch.no_grad():
        for (name, mine), (_, theirs) in zip(model.named_parameters(), sharded.named_parameters(), strict=True):
            assert mine.shape == theirs.shape, name
            mine.copy_(whole(theirs))


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor gathered (all processes must call it); another one as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """This process's share of a sharded tensor, in the same memory; another tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def shared_as(tensor: Tensor, parameter: Tensor) -> Tensor:
    """`tensor` on the device of `parameter`, sharded as that is where both have the same shape."""
    tensor = tensor.to(parameter.device)
    if isinstance(parameter, DTensor) and tensor.shape == parameter.shape:
        return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)
    return tensor


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """The elements of the outermost lists of modules: the layers of every encoder and decoder."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from _layers(child)
