"""Section 2.3: BART, T5 or mBART as the generator p(y_i|x,z,y_<i).

    decoder input  =  start y_1 .. y_(T-1)          labels  =  y_1 .. y_T (the last is EOS)

This is the only file that folds passages into rows (row b*K + k). The logits of a whole target, (B, K, T, V), are never
held: `losses.token_logprobs` goes from decoder states and the output embedding to the log-probabilities of the labels.
Decoding is functional: a state that was read stays valid, so that a decoder may go on from it in two ways.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, DynamicCache, EncoderDecoderCache

from ragx.generator.bart_grouped import BartGrouped
from ragx.generator.inputs import DEFAULT_TEMPLATE, InputBuilder
from ragx.generator.output_layer import OutputLayer
from ragx.generator.pretrained import PretrainedGenerator, required_id
from ragx.losses.token_logprobs import linear_token_logprobs

ENCODED_AT_ONCE = 2**10
"""Tokens that are encoded together on a CPU where no gradient is wanted."""


@dataclass(frozen=True)
class Encoded:
    """Encoder states of R rows: `hidden` (R, S, D) and `mask` (R, S)."""

    hidden: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.hidden)


@dataclass(frozen=True)
class DecodingState:
    """N sequences being decoded: what they read, the row of each (N,), and keys and values of what they said."""

    encoded: Encoded
    rows: Tensor
    cache: EncoderDecoderCache


class Seq2SeqGenerator(PretrainedGenerator):
    """A Hugging Face encoder-decoder behind `ragx.protocols.Generator`.

    Args:
        model: a `...ForConditionalGeneration` of the BART, mBART or T5 families.
        tokenizer: the tokenizer it was trained with.
        max_length, template, bos_in_labels: see `InputBuilder`, found again as `inputs`.
    """

    loader = AutoModelForSeq2SeqLM
    families = "a BART or T5"

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_length: int = 256,
        template: str = DEFAULT_TEMPLATE,
        bos_in_labels: bool = False,
    ) -> None:
        inputs = InputBuilder(tokenizer, max_length=max_length, template=template, bos_in_labels=bos_in_labels)
        super().__init__(model, inputs)
        self.decoder_start_token_id = required_id(model.config.decoder_start_token_id, "config.decoder_start_token_id")
        self._scale = _output_scale(model.config)
        accepted = inspect.signature(model.get_decoder().forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"

    @property
    def networks(self) -> list[nn.Module]:
        """Encoder and decoder."""
        return [self.model.get_encoder(), self.model.get_decoder()]

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Encoded:
        """Encoder states of (R, S) inputs, which are moved to the model's device."""
        ids, mask = input_ids.to(self.device), attention_mask.to(self.device)
        if torch.is_grad_enabled() or ids.device.type != "cpu" or self.compiled:
            return Encoded(self._encode(ids, mask), mask)
        return Encoded(self._encode_in_parts(ids, mask), mask)

    def _encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden: Tensor = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden

    def _encode_in_parts(self, ids: Tensor, mask: Tensor) -> Tensor:
        """As `_encode`, zero behind the last token of a row: rows of like length together, none of them padded further.

        On a CPU a part of them is as fast as all, and their activations are what decoding would need most memory for.
        """
        lengths = (mask * torch.arange(1, mask.shape[1] + 1)).amax(1).clamp(min=1)
        hidden = ids.new_zeros(0, dtype=self.model.dtype)
        for rows in lengths.argsort(stable=True).split(max(1, ENCODED_AT_ONCE // ids.shape[1])):
            width = int(lengths[rows].max())
            part = self._encode(ids[rows, :width], mask[rows, :width])
            if not len(hidden):
                hidden = part.new_zeros(*ids.shape, part.shape[2])
            hidden[rows, :width] = part
        return hidden

    def token_logprobs(self, encoded: Encoded, labels: Tensor, rows: Tensor) -> Tensor:
        """Teacher-forced log p(y_i|x,z,y_<i), (N, T) float32: labels (N, T) read against `rows` (N,).

        0 where a label is -100, or is the pad token behind an EOS. A pad token anywhere else is a target like any
        other, for a decoder may produce it.

        Raises:
            ShapeError: a label outside the vocabulary; checked on CPU labels only, for it would stall a GPU.
        """
        labels = self.scored(labels)
        hidden = self._decode(_take(encoded, rows), self.fed(labels))
        weight, bias = self.output_layer()
        flat = hidden.reshape(-1, hidden.shape[-1])
        return linear_token_logprobs(flat, weight, bias, labels.reshape(-1), validate=False).view(labels.shape)

    def target_states(self, encoded: Encoded, labels: Tensor) -> Tensor:
        """See `PretrainedGenerator.target_states`."""
        n_docs = len(encoded) // len(labels)
        hidden = self._decode(encoded, self.fed(labels).repeat_interleave(n_docs, dim=0))
        return hidden.view(len(labels), n_docs, labels.shape[1], -1)

    def begin(self, encoded: Encoded, rows: Tensor) -> DecodingState:
        """A state of N sequences with nothing said yet; nothing is computed."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        return DecodingState(encoded, rows.to(encoded.hidden.device), cache)

    def next_logprobs(self, state: DecodingState, token_ids: Tensor) -> tuple[Tensor, DecodingState]:
        """Feeds `token_ids` (N,); returns log-probabilities (N, V) float32 of the next token, and the new state."""
        cache = _copy(state.cache)
        # With cross-attention keys in the cache the decoder reads no more of the encoder states than their shape.
        started = len(cache.cross_attention_cache) > 0
        rows = state.rows
        hidden = state.encoded.hidden[:1].expand(len(rows), -1, -1) if started else state.encoded.hidden[rows]
        output = self.model.get_decoder()(
            input_ids=token_ids.to(rows.device).unsqueeze(1),
            encoder_hidden_states=hidden,
            encoder_attention_mask=state.encoded.mask[rows],
            use_cache=True,
            **{self._cache_argument: cache},
        )
        weight, bias = self.output_layer()
        logits = nn.functional.linear(output.last_hidden_state[:, 0] * self._scale, weight, bias)
        return logits.float().log_softmax(-1), DecodingState(state.encoded, rows, cache)

    def reorder(self, state: DecodingState, index: Tensor) -> DecodingState:
        """The state whose sequence m is the old sequence `index[m]`, (M,)."""
        index = index.to(state.rows.device)
        rows = state.rows[index]
        cache = _copy(state.cache)
        _gather(cache.self_attention_cache, index)
        if not torch.equal(rows, state.rows):  # beams that stay on their passage keep its keys where they are
            _gather(cache.cross_attention_cache, index)
        return DecodingState(state.encoded, rows, cache)

    @property
    def grouped(self) -> BartGrouped | None:
        """Decoding that shares the passages among sequences, for BART and mBART outside training."""
        if not BartGrouped.fits(self.model):
            return None
        output = OutputLayer(*self.output_layer(), scale=self._scale)
        start, pad = self.decoder_start_token_id, self.pad_token_id
        return BartGrouped(self.model.get_decoder(), output, start, pad, self.scored)

    def _decode(self, encoded: Encoded, fed: Tensor) -> Tensor:
        """Decoder states (N, T, D), as the LM head reads them, after each token of `fed` (N, T)."""
        hidden: Tensor = self.model.get_decoder()(
            input_ids=fed,
            encoder_hidden_states=encoded.hidden,
            encoder_attention_mask=encoded.mask,
            use_cache=False,
        ).last_hidden_state
        return hidden * self._scale


def _output_scale(config: Any) -> float:
    """T5 divides decoder states by sqrt(d_model) where its embeddings are tied; mT5 never does."""
    scaled = getattr(config, "scale_decoder_outputs", None)
    if scaled is None:  # transformers before 5.17 had no setting of its own for it
        scaled = config.model_type in ("t5", "umt5", "longt5") and config.tie_word_embeddings
    return float(config.d_model**-0.5) if scaled else 1.0


def _take(encoded: Encoded, rows: Tensor) -> Encoded:
    """The encoder states of `rows`, not copied where they are all rows in order (rows on the CPU: without a sync)."""
    if rows.device.type == "cpu" and torch.equal(rows, torch.arange(len(encoded.hidden))):
        return encoded
    rows = rows.to(encoded.hidden.device)
    return Encoded(encoded.hidden.index_select(0, rows), encoded.mask.index_select(0, rows))


def _copy(cache: EncoderDecoderCache) -> EncoderDecoderCache:
    """A cache that shares its tensors with `cache`; transformers replaces tensors and never writes into them."""
    halves = [copy.copy(cache.self_attention_cache), copy.copy(cache.cross_attention_cache)]
    for half in halves:
        half.layers = [copy.copy(layer) for layer in half.layers]
    return EncoderDecoderCache(*halves)


def _gather(cache: Any, index: Tensor) -> None:
    for layer in cache.layers:
        layer.keys = layer.keys.index_select(0, index)
        layer.values = layer.values.index_select(0, index)
