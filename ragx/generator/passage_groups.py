"""Section 2.1 in bounded memory: the passages of a batch are read a group at a time, whatever n_docs is.

    forward     every group is read; only the decoder's states are kept (T x D numbers a passage)
    backward    d loss / d states is exact, for all K were there; it goes back through one group at a time, which is
                read a second time, with the noise of its first reading

Decision: `torch.utils.checkpoint` does both. All groups hang in one graph, so parameters get one gradient, summed over
the groups: accumulation, several processes, loss scaling and checkpointed layers work as with all passages at once. The
sum stands beside the gradients of earlier micro-batches until it is whole (one more set of them, with accumulation).
The last group is not read again: the backward pass begins with it, before another group is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ragx.errors import ConfigError
from ragx.generator.inputs import GeneratorInputs
from ragx.generator.prepared import moved


def read_in_groups(
    read: Callable[[Tensor, Tensor], Tensor],
    inputs: GeneratorInputs,
    *,
    n_docs: int,
    at_once: int,
    device: torch.device,
) -> Tensor:
    """What `read` gives for all passages, (B, K, ...), computed for `at_once` passages of each query at a time.

    Args:
        read: input_ids and attention_mask (B*k, S) on `device`, row b*k + i being passage i, to (B, k, ...).
        inputs: of B*K rows.
        n_docs: K.
        at_once: k; 0 means all.
        device: of the model; its random state is kept from the first reading to the second.

    Raises:
        ConfigError: a negative `at_once`.
    """
    if at_once < 0:
        raise ConfigError([f"passages_at_once must be >= 0, got {at_once}. 0 reads all passages together."])
    groups = list(_groups(inputs, n_docs, at_once or n_docs))
    states = []
    for number, group in enumerate(groups):
        input_ids, attention_mask = (moved(tensor, device) for tensor in group)
        again = torch.is_grad_enabled() and number < len(groups) - 1
        if again:
            states.append(checkpoint(read, input_ids, attention_mask, use_reentrant=False))
        else:
            states.append(read(input_ids, attention_mask))
    return states[0] if len(states) == 1 else torch.cat(states, 1)


def _groups(inputs: GeneratorInputs, n_docs: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and mask of each group, trimmed to the longest row of the group."""
    if size >= n_docs:
        yield inputs.input_ids, inputs.attention_mask
        return
    ids, mask = (tensor.view(-1, n_docs, tensor.shape[1]) for tensor in (inputs.input_ids, inputs.attention_mask))
    for start in range(0, n_docs, size):
        part = mask[:, start : start + size]
        longest = int(part.sum(2).max())
        yield ids[:, start : start + size, :longest].flatten(0, 1), part[..., :longest].flatten(0, 1)
