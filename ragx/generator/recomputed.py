"""Activations that training computes a second time instead of keeping them (section 2.4).

    feed-forward   fc2(gelu(fc1(h)))      kept by autograd: h, fc1(h), gelu(fc1(h))      kept here: h, fc1(h)

A GELU or SiLU keeps its input for its own gradient, and the layer behind it keeps its output, which is as large: four
times the width of the model, the largest thing that a layer leaves behind. From the one the other follows at a
hundredth of the layer's work, bit for bit.

Decision: `saved_tensors_hooks` decide when a tensor is about to be kept, so no layer is rewritten. A tensor is known to
be an activation's output by its storage, whole, unchanged and still alive, never by its address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from transformers.activations import ACT2FN

CHEAP = (*(type(ACT2FN[name]) for name in ("gelu", "gelu_pytorch_tanh", "silu")), nn.GELU, nn.SiLU)
"""Elementwise functions that keep their input, of modules that are nothing else."""


@contextmanager
def recomputed_activations(module: nn.Module, *, enabled: bool) -> Iterator[None]:
    """Inside, what `CHEAP` activations in `module` put out is computed again in the backward pass.

    Args:
        enabled: False does nothing, for compiled code, which decides by itself what to keep.
    """
    activations = [part for part in module.modules() if isinstance(part, CHEAP)] if enabled else []
    if not activations or not torch.is_grad_enabled():
        yield
        return
    known = _Outputs()
    handles = [activation.register_forward_hook(known.remember) for activation in activations]
    try:
        with saved_tensors_hooks(known.pack, _unpack):
            yield
    finally:
        for handle in handles:
            handle.remove()


class _Outputs:
    """The outputs of activations that are still in memory."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[StorageWeakRef, int, Callable[[], Tensor]]] = {}

    def remember(self, activation: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """A forward hook; what nobody needs any more is forgotten, or it would keep its input in memory."""
        self._made = {place: made for place, made in self._made.items() if not made[0].expired()}
        before = inputs[0].detach()
        if output.is_contiguous() and output.untyped_storage().nbytes() == output.nbytes and output is not before:
            reference = StorageWeakRef(output.untyped_storage())
            self._made[reference.cdata] = (reference, output._version, lambda: activation.forward(before))

    def pack(self, tensor: Tensor) -> Tensor | tuple[Callable[[], Tensor], torch.Size]:
        """What to keep of a tensor that autograd wants back: itself, or how to make it again.

        Detached, for a tensor that knows the graph, kept in the graph, would never be freed without a backward pass.
        """
        storage = tensor.untyped_storage()
        made = self._made.get(storage._cdata)
        if made is None or made[0].expired():  # expired: other memory at the same place
            return tensor.detach()
        _, version, again = made
        whole = tensor.is_contiguous() and tensor.nbytes == storage.nbytes() and tensor._version == version
        return (again, tensor.shape) if whole else tensor.detach()


def _unpack(packed: Any) -> Tensor:
    if isinstance(packed, Tensor):
        return packed
    again, shape = packed
    with torch.no_grad():
        made: Tensor = again()
    return made.view(shape)
