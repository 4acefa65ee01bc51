"""Section 2.3 in training: what the LM head makes of a generator's states over a given target (`target_states`).

    decoder input  =  start y_1 .. y_(T-1)          state i  ->  log p(v|x,z,y_<i) for every v

States and head are apart because passages are read in groups and the head is large: groups leave states behind, which
are small, and the head reads those of all passages at once. `token_logprobs` of a generator is both in one.
"""

from __future__ import annotations

from torch import Tensor

from ragx.generator.pretrained import PretrainedGenerator
from ragx.generator.shared_weight import SharedWeight
from ragx.losses.label_smoothing import linear_uniform_nll
from ragx.losses.token_logprobs import linear_logprobs_and_normalizers

LARGEST_BLOCK, NUMBERS = 2048, 2**23  # vocabulary entries, and logits, in memory at a time


def head_logprobs(
    generator: PretrainedGenerator, states: Tensor, labels: Tensor, *, shared: SharedWeight | None = None
) -> tuple[Tensor, Tensor]:
    """log p(y_i|x,z,y_<i) and the logsumexp in it, both (B, K, T) float32, 0 where a label is -100."""
    weight, bias = _head(generator, shared)
    flat = labels.unsqueeze(1).expand(states.shape[:3]).reshape(-1)
    both = linear_logprobs_and_normalizers(states.flatten(0, 2), weight, bias, flat, block_size=_block_size(states))
    return both[0].view(states.shape[:3]), both[1].view(states.shape[:3])


def uniform_nll(
    generator: PretrainedGenerator,
    states: Tensor,
    labels: Tensor,
    offsets: Tensor,
    *,
    shared: SharedWeight | None = None,
) -> Tensor:
    """The smoothing term of `losses.label_smoothing`, (B,); `offsets` (B, K, T) as in `linear_uniform_nll`."""
    weight, bias = _head(generator, shared)
    return linear_uniform_nll(states, weight, bias, labels, offsets, block_size=_block_size(states))


def _head(generator: PretrainedGenerator, shared: SharedWeight | None) -> tuple[Tensor, Tensor | None]:
    weight, bias = generator.output_layer()
    return weight if shared is None else shared.head, bias


def _block_size(states: Tensor) -> int:
    return max(128, min(LARGEST_BLOCK, NUMBERS // max(1, states[..., 0].numel())))
