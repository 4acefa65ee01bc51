"""Section 2.3: BART, T5 or mBART as the generator p(y_i|x,z,y_<i).

    decoder input  =  start y_1 .. y_(T-1)          labels  =  y_1 .. y_T (the last is EOS)

This is the only file that folds passages into rows (row b*K + k). The logits of a whole target, (B, K, T, V), are never
held: `losses.token_logprobs` goes from decoder states and the output embedding to the log-probabilities of the labels.
Decoding is functional: a state that was read stays valid, so that a decoder may go on from it in two ways.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DynamicCache, EncoderDecoderCache

from ragx.errors import CheckpointError, ShapeError
from ragx.generator.bart_grouped import BartGrouped
from ragx.generator.inputs import DEFAULT_TEMPLATE, IGNORED, InputBuilder
from ragx.generator.output_layer import OutputLayer
from ragx.losses.token_logprobs import check_labels, linear_token_logprobs


@dataclass(frozen=True)
class Encoded:
    """Encoder states of R rows: `hidden` (R, S, D) and `mask` (R, S)."""

    hidden: Tensor
    mask: Tensor


@dataclass(frozen=True)
class DecodingState:
    """N sequences being decoded: what they read, the row of each (N,), and keys and values of what they said."""

    encoded: Encoded
    rows: Tensor
    cache: EncoderDecoderCache


class Seq2SeqGenerator(nn.Module):
    """A Hugging Face encoder-decoder behind `ragx.protocols.Generator`.

    Args:
        model: a `...ForConditionalGeneration` of the BART, mBART or T5 families.
        tokenizer: the tokenizer it was trained with.
        max_length, template, bos_in_labels: see `InputBuilder`, found again as `inputs`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_length: int = 256,
        template: str = DEFAULT_TEMPLATE,
        bos_in_labels: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = InputBuilder(tokenizer, max_length=max_length, template=template, bos_in_labels=bos_in_labels)
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        if len(tokenizer) > self.vocab_size:
            raise CheckpointError(
                f"tokenizer must fit the model's vocabulary of {self.vocab_size}, got {len(tokenizer)} tokens. "
                "Load the tokenizer of the same checkpoint."
            )
        self.inputs.vocab_size = self.vocab_size
        self.pad_token_id = _required_id(tokenizer.pad_token_id, "tokenizer.pad_token_id")
        self.eos_token_id = _required_id(tokenizer.eos_token_id, "tokenizer.eos_token_id")
        self.decoder_start_token_id = _required_id(model.config.decoder_start_token_id, "config.decoder_start_token_id")
        self._scale = _output_scale(model.config)
        accepted = inspect.signature(model.get_decoder().forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"

    @classmethod
    def from_pretrained(
        cls,
        path_or_name: str | Path,
        *,
        max_length: int = 256,
        template: str = DEFAULT_TEMPLATE,
        bos_in_labels: bool = False,
        dtype: torch.dtype = torch.float32,
        allow_keys: Sequence[str] = (),
    ) -> Seq2SeqGenerator:
        """Loads a Hugging Face checkpoint (safetensors) with its tokenizer, in eval mode.

        Args:
            allow_keys: names of weights that may be missing (then random) or surplus (then unused).

        Raises:
            CheckpointError: nothing there, not an encoder-decoder, other weights missing, surplus or of another shape.
        """
        name = str(path_or_name)
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model, info = AutoModelForSeq2SeqLM.from_pretrained(
                name, dtype=dtype, use_safetensors=True, output_loading_info=True
            )
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(
                f"generator must be a folder or hub name of a BART or T5 with config, tokenizer and safetensors, "
                f"got {name}. {str(error).splitlines()[0]}"
            ) from error
        found = {
            "missing": sorted(set(info["missing_keys"]) - set(allow_keys)),
            "surplus": sorted(set(info["unexpected_keys"]) - set(allow_keys)),
            "of another shape": sorted(str(key) for key in info.get("mismatched_keys", ())),
        }
        problems = [f"{kind}: {', '.join(keys)}" for kind, keys in found.items() if keys]
        if problems:
            raise CheckpointError(
                f"{name} must hold the weights of {type(model).__name__}, got {'; '.join(problems)}. "
                "Name them in allow_keys if that is meant."
            )
        return cls(model, tokenizer, max_length=max_length, template=template, bos_in_labels=bos_in_labels).eval()

    def save_pretrained(self, directory: str | Path) -> None:
        """Writes weights (safetensors), config and tokenizer, as `from_pretrained` here and in transformers reads."""
        self.model.save_pretrained(str(directory))
        self.tokenizer.save_pretrained(str(directory))

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of inputs, labels and answers."""
        return self.inputs.tokenizer

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    def fingerprint(self) -> str:
        """Hex digest over names, dtypes, shapes and bytes of all weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Encoded:
        """Encoder states of (R, S) inputs, which are moved to the model's device."""
        mask = attention_mask.to(self.device)
        output = self.model.get_encoder()(input_ids=input_ids.to(self.device), attention_mask=mask)
        return Encoded(output.last_hidden_state, mask)

    def token_logprobs(self, encoded: Encoded, labels: Tensor, rows: Tensor) -> Tensor:
        """Teacher-forced log p(y_i|x,z,y_<i), (N, T) float32: labels (N, T) read against `rows` (N,).

        0 where a label is -100, or is the pad token behind an EOS. A pad token anywhere else is a target like any
        other, for a decoder may produce it.

        Raises:
            ShapeError: a label outside the vocabulary; checked on CPU labels only, for it would stall a GPU.
        """
        labels = self._prepare(labels)
        encoded = _take(encoded, rows)
        start = labels.new_full((len(labels), 1), self.decoder_start_token_id)
        decoder_input_ids = torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] < 0, self.pad_token_id)], dim=1)
        hidden = self.model.get_decoder()(
            input_ids=decoder_input_ids,
            encoder_hidden_states=encoded.hidden,
            encoder_attention_mask=encoded.mask,
            use_cache=False,
        ).last_hidden_state
        weight, bias = self._output_layer()
        flat = (hidden * self._scale).reshape(-1, hidden.shape[-1])
        return linear_token_logprobs(flat, weight, bias, labels.reshape(-1), validate=False).view(labels.shape)

    def target_logprobs(self, encoded: Encoded, labels: Tensor, *, n_docs: int) -> Tensor:
        """`token_logprobs` (B, K, T) of one target a query, labels (B, T), read against each of its K passages."""
        n_rows = len(encoded.hidden)
        if n_rows != len(labels) * n_docs:
            raise ShapeError(
                f"encoded must have {len(labels)} x {n_docs} rows (labels x n_docs), got {n_rows}. "
                "Build the inputs from the same queries and passages."
            )
        flat = self.token_logprobs(encoded, labels.repeat_interleave(n_docs, dim=0), torch.arange(n_rows))
        return flat.view(len(labels), n_docs, -1)

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
        weight, bias = self._output_layer()
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
        output = OutputLayer(*self._output_layer(), scale=self._scale)
        start, pad = self.decoder_start_token_id, self.pad_token_id
        return BartGrouped(self.model.get_decoder(), output, start, pad, self._prepare)

    def _prepare(self, labels: Tensor) -> Tensor:
        """Labels (N, T) on the model's device, with -100 also at a pad token behind an EOS."""
        if labels.device.type == "cpu":
            check_labels(labels, self.vocab_size)
        labels = labels.to(self.device)
        ended = labels == self.eos_token_id
        after = ended.cumsum(1) - ended.long() > 0
        return labels.masked_fill(after & (labels == self.pad_token_id), IGNORED)

    def _output_layer(self) -> tuple[Tensor, Tensor | None]:
        head = self.model.get_output_embeddings()
        bias = getattr(self.model, "final_logits_bias", None)  # BART's, (1, V)
        bias = head.bias if bias is None else bias.reshape(-1).to(head.weight.dtype)
        return head.weight, bias


def _output_scale(config: Any) -> float:
    """T5 divides decoder states by sqrt(d_model) where its embeddings are tied; mT5 never does."""
    scaled = getattr(config, "scale_decoder_outputs", None)
    if scaled is None:  # transformers before 5.17 had no setting of its own for it
        scaled = config.model_type in ("t5", "umt5", "longt5") and config.tie_word_embeddings
    return float(config.d_model**-0.5) if scaled else 1.0


def _required_id(value: int | None, name: str) -> int:
    if value is None:
        raise CheckpointError(f"{name} must be set, got None. Set it in the checkpoint's configuration.")
    return int(value)


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
