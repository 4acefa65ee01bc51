"""Section 2.3 in training: the decoder's states over a given target, and what the LM head makes of them.

    decoder input  =  start y_1 .. y_(T-1)          state i  ->  log p(v|x,z,y_<i) for every v

The two are apart because passages are read in groups and the head is large: groups leave states behind, which are
small, and the head reads those of all passages at once. `Seq2SeqGenerator.token_logprobs` is both in one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragx.generator.seq2seq import Encoded, Seq2SeqGenerator
from ragx.losses.label_smoothing import linear_uniform_nll
from ragx.losses.token_logprobs import linear_logprobs_and_normalizers

LARGEST_BLOCK, NUMBERS = 2048, 2**23  # vocabulary entries, and logits, in memory at a time


def target_states(generator: Seq2SeqGenerator, encoded: Encoded, labels: Tensor) -> Tensor:
    """Decoder states (B, K, T, D), as the LM head reads them, of one target a query, labels (B, T) on the device."""
    n_docs = len(encoded.hidden) // len(labels)
    start = labels.new_full((len(labels), 1), generator.decoder_start_token_id)
    said = labels[:, :-1].masked_fill(labels[:, :-1] < 0, generator.pad_token_id)
    hidden = generator.model.get_decoder()(
        input_ids=torch.cat([start, said], 1).repeat_interleave(n_docs, dim=0),
        encoder_hidden_states=encoded.hidden,
        encoder_attention_mask=encoded.mask,
        use_cache=False,
    ).last_hidden_state
    return (hidden * generator._scale).view(len(labels), n_docs, labels.shape[1], -1)


def head_logprobs(generator: Seq2SeqGenerator, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """log p(y_i|x,z,y_<i) and the logsumexp in it, both (B, K, T) float32, 0 where a label is -100."""
    weight, bias = generator._output_layer()
    flat = labels.unsqueeze(1).expand(states.shape[:3]).reshape(-1)
    both = linear_logprobs_and_normalizers(states.flatten(0, 2), weight, bias, flat, block_size=_block_size(states))
    return both[0].view(states.shape[:3]), both[1].view(states.shape[:3])


def uniform_nll(generator: Seq2SeqGenerator, states: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
    """The smoothing term of `losses.label_smoothing`, (B,); `offsets` (B, K, T) as in `linear_uniform_nll`."""
    weight, bias = generator._output_layer()
    return linear_uniform_nll(states, weight, bias, labels, offsets, block_size=_block_size(states))


def _block_size(states: Tensor) -> int:
    return max(128, min(LARGEST_BLOCK, NUMBERS // max(1, states[..., 0].numel())))
