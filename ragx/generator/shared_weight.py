"""The largest gradient of a step, of the weight that LM head and input embeddings share, held once (section 2.4).

    d loss / d W  =  what the head says, (V, D) dense   +   one row for each token that was looked up

Plain autograd makes a dense (V, D) gradient of every lookup and adds them up: two or three of them stand side by side
while the activations of the encoder are still in memory, which is the peak of the step. Here a lookup leaves its rows
aside, and they are added into the head's gradient, which is always the last to be handed on.

Decision: a `TorchFunctionMode` meets the lookups where the model makes them. No module is replaced, whatever scales or
norms an embedding stays as it is, and what is not looked up in the shared weight is left alone.

Shapes: V vocabulary, D hidden size, N tokens that are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode


class _Rows:
    """Gradients of looked up rows that wait for the head's: (N, D) for ids (N,), never more of them than the table has.

    Passages that are read in groups look up more and more; beyond V rows one dense sum takes less.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._sum: Tensor | None = None

    def add(self, ids: Tensor, gradients: Tensor, *, vocab_size: int) -> None:
        """Takes in the gradients of one lookup."""
        self._parts.append((ids, gradients))
        if sum(len(waiting) for waiting, _ in self._parts) > vocab_size:
            total = gradients.new_zeros(vocab_size, gradients.shape[1]) if self._sum is None else self._sum
            self._sum = None
            self.move_into(total)
            self._sum = total

    def move_into(self, gradient: Tensor) -> None:
        """Adds everything to `gradient` (V, D), in place, and forgets it."""
        for ids, gradients in self._parts:
            _add_rows(gradient, ids, gradients.to(gradient.dtype))
        if self._sum is not None:
            gradient.add_(self._sum)
        self._parts, self._sum = [], None


def _add_rows(gradient: Tensor, ids: Tensor, rows: Tensor) -> None:
    """gradient[ids] += rows in a fixed order, so that a seed gives one result with any number of threads.

    Each of the two adds in no fixed order on the other's device: `index_put_` on a CPU, whose threads add atomically,
    `index_add_` on a GPU.
    """
    if gradient.device.type == "cpu":
        gradient.index_add_(0, ids, rows)
    else:
        gradient.index_put_((ids,), rows, accumulate=True)


class SharedWeight:
    """One use of a shared weight in a forward pass, and the backward pass that belongs to it.

    Args:
        weight: (V, D), looked up in and multiplied with.

    Attributes:
        head: the weight as the LM head is to use it; its gradient takes in that of the lookups.
        rows: gradients of lookups during the backward pass.
    """

    def __init__(self, weight: Tensor) -> None:
        self.rows, self._weight = _Rows(), weight
        self.head, ticket = _Source.apply(weight, self.rows)
        rows = self.rows  # not `self`, which would be kept by the graph that it keeps
        self._lookup = lambda ids, padding: _Lookup.apply(weight.detach(), ids, padding, ticket, rows)

    def lookups(self) -> TorchFunctionMode:
        """Inside, rows of the weight are looked up so that `head` gets their gradient."""
        return _Intercept(self._weight, self._lookup)


def shared_weight(model: Any, *, compiled: bool) -> SharedWeight | None:
    """The weight that the head of `model` shares with its embeddings, where a gradient of it is wanted.

    Args:
        compiled: whether compiled code makes the lookups, which nothing can meet there.
    """
    weight: Tensor = model.get_output_embeddings().weight
    embeddings = model.get_input_embeddings()
    tied = isinstance(embeddings, nn.Embedding) and embeddings.weight is weight
    if compiled or not tied or not weight.requires_grad or not torch.is_grad_enabled():
        return None
    return SharedWeight(weight)


def lookups(shared: SharedWeight | None) -> AbstractContextManager[Any]:
    """`SharedWeight.lookups`, or nothing where nothing is shared."""
    return nullcontext() if shared is None else shared.lookups()


class _Source(torch.autograd.Function):
    """The weight itself, and a number without meaning that every lookup depends on: so this comes last in backward."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: _Rows) -> tuple[Tensor, Tensor]:
        ctx.rows = rows
        return weight.view_as(weight), weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_head: Tensor, grad_ticket: Tensor) -> tuple[Tensor, None]:
        grad_head = grad_head.contiguous()  # one that was expanded has no memory of its own to write to
        ctx.rows.move_into(grad_head)
        return grad_head, None


class _Lookup(torch.autograd.Function):
    """`embedding(ids)` (..., D); its backward leaves ids and gradients in `rows`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, padding: int | None, ticket: Tensor, rows: _Rows) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.padding, ctx.rows, ctx.vocab_size = padding, rows, len(weight)
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        if ctx.padding is not None:  # the row of the padding token stands still, as nn.Embedding has it
            grad = grad.masked_fill((ids == ctx.padding).unsqueeze(-1), 0.0)
        ctx.rows.add(ids.flatten(), grad.flatten(0, -2), vocab_size=ctx.vocab_size)
        return None, None, None, grad.new_zeros(()), None


class _Intercept(TorchFunctionMode):
    """Sends `nn.functional.embedding` with `weight` to `lookup`."""

    def __init__(self, weight: Tensor, lookup: Callable[[Tensor, int | None], Tensor]) -> None:
        super().__init__()
        self._weight, self._lookup = weight, lookup

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        plain = not any(kwargs.get(option) for option in ("max_norm", "scale_grad_by_freq", "sparse"))
        if func is nn.functional.embedding and plain and args[1] is self._weight:
            return self._lookup(args[0], kwargs.get("padding_idx"))
        return func(*args, **kwargs)
