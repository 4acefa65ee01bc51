"""A decoder-only model (GPT-2, Llama) as the generator p(y_i|x,z,y_<i) of section 2.3, which has BART.

    text     title / text // query  separator  y_1 .. y_T         one sequence; only the answer is scored
    prompt   everything up to the separator's last token          start   that token, fed before y_1

Decision: the last token of the separator, which ends every prompt, plays the start token of an encoder-decoder. So
likelihoods, decoders and audit run over it unchanged. Positions are counted over real tokens and padding is masked,
wherever it stands, so that a row says the same in any batch. Keys and values of a prompt are computed once; what an
answer needs of them is copied for each of its sequences, as there is no cross-attention that could share them.

Shapes: R rows encoded, S prompt length, N sequences, T tokens said, B queries, K passages of each, D hidden size.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DynamicCache

from ragx.errors import CheckpointError, ConfigError
from ragx.generator.inputs import DEFAULT_TEMPLATE, InputBuilder
from ragx.generator.pretrained import PretrainedGenerator
from ragx.losses.token_logprobs import linear_token_logprobs

SEPARATOR = "\n"
TOKENS_AT_ONCE = 2**14  # of prompts whose keys stand in memory a second time while answers are scored


@dataclass(frozen=True)
class Read:
    """Prompts without their last token, `ids` and `mask` (R, S), and who reads them."""

    ids: Tensor
    mask: Tensor
    reader: CausalLMGenerator

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def cache(self) -> DynamicCache:
        """Keys and values of all rows, computed when they are first wanted and without gradient."""
        cache = DynamicCache()
        if self.ids.shape[1]:
            with torch.no_grad():
                self.reader.states(self.ids, self.mask, cache=cache)
        return cache


@dataclass(frozen=True)
class CausalState:
    """N sequences being decoded: the row of each (N,), what of prompt and answer is real (N, S+T), keys and values."""

    rows: Tensor
    mask: Tensor
    cache: DynamicCache


class CausalLMGenerator(PretrainedGenerator):
    """A Hugging Face decoder-only model behind `ragx.protocols.Generator`.

    Args:
        model: a `...ForCausalLM` whose logits are its output embeddings applied to its last hidden states.
        tokenizer: the tokenizer it was trained with. One without a padding token pads with EOS.
        separator: stands between the prompt and the answer; at least one token.
        max_length, template, bos_in_labels: see `InputBuilder`, found again as `inputs`; `max_length` is of the prompt.

    Raises:
        CheckpointError: a model that does more to its logits (soft caps, scales): they would be wrong here.
        ConfigError: an empty separator.
    """

    loader = AutoModelForCausalLM
    families = "a decoder-only model"

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_length: int = 256,
        template: str = DEFAULT_TEMPLATE,
        bos_in_labels: bool = False,
        separator: str = SEPARATOR,
    ) -> None:
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        inputs = InputBuilder(
            tokenizer, max_length=max_length, template=template, bos_in_labels=bos_in_labels, separator=separator
        )
        super().__init__(model, inputs)
        ids = tokenizer(separator, add_special_tokens=False)["input_ids"]
        if not ids:
            raise ConfigError([f"generator.separator must be at least one token, got {separator!r}. Try '\\n'."])
        self.decoder_start_token_id = int(ids[-1])
        accepted = inspect.signature(model.base_model.forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"
        self._require_plain_head()

    @property
    def networks(self) -> list[nn.Module]:
        """The transformer without its head."""
        return [self.model.base_model]

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Read:
        """The prompts of (R, S) inputs; nothing is computed before it is known what for."""
        mask = attention_mask.to(self.device)
        places = torch.arange(1, mask.shape[1] + 1, device=self.device)
        last = (mask * places).amax(1, keepdim=True)  # 0 for a row without a token
        return Read(input_ids.to(self.device), mask.masked_fill(places == last, 0), self)

    def token_logprobs(self, encoded: Read, labels: Tensor, rows: Tensor) -> Tensor:
        """Teacher-forced log p(y_i|x,z,y_<i), (N, T) float32: labels (N, T) read against `rows` (N,).

        0 where a label is -100, or is the pad token behind an EOS.

        Raises:
            ShapeError: a label outside the vocabulary; checked on CPU labels only, for it would stall a GPU.
        """
        labels, rows = self.scored(labels), rows.to(self.device)
        read = self._states_after if torch.is_grad_enabled() else self._states_after_cached
        at_once = max(1, TOKENS_AT_ONCE // max(1, encoded.ids.shape[1]))
        fed = self.fed(labels)
        parts = [
            read(encoded, fed[part], rows[part]) for part in torch.arange(len(rows), device=self.device).split(at_once)
        ]
        hidden = torch.cat(parts)
        weight, bias = self.output_layer()
        flat = hidden.reshape(-1, hidden.shape[-1])
        return linear_token_logprobs(flat, weight, bias, labels.reshape(-1), validate=False).view(labels.shape)

    def target_states(self, encoded: Read, labels: Tensor) -> Tensor:
        """See `PretrainedGenerator.target_states`."""
        n_docs = len(encoded) // len(labels)
        fed = self.fed(labels).repeat_interleave(n_docs, dim=0)
        hidden = self._states_after(encoded, fed, torch.arange(len(encoded), device=self.device))
        return hidden.view(len(labels), n_docs, labels.shape[1], -1)

    def begin(self, encoded: Read, rows: Tensor) -> CausalState:
        """A state of N sequences with nothing said yet."""
        rows = rows.to(self.device)
        return CausalState(rows, encoded.mask[rows], _gathered(encoded.cache, rows))

    def next_logprobs(self, state: CausalState, token_ids: Tensor) -> tuple[Tensor, CausalState]:
        """Feeds `token_ids` (N,); returns log-probabilities (N, V) float32 of the next token, and the new state."""
        cache, fed = _copy(state.cache), token_ids.to(self.device).unsqueeze(1)
        mask = torch.cat([state.mask, torch.ones_like(fed)], 1)
        hidden = self.states(fed, mask, cache=cache)[:, -1]
        weight, bias = self.output_layer()
        logprobs = nn.functional.linear(hidden, weight, bias).float().log_softmax(-1)
        return logprobs, CausalState(state.rows, mask, cache)

    def reorder(self, state: CausalState, index: Tensor) -> CausalState:
        """The state whose sequence m is the old sequence `index[m]`, (M,)."""
        index = index.to(self.device)
        return CausalState(state.rows[index], state.mask[index], _gathered(state.cache, index))

    def states(self, ids: Tensor, mask: Tensor, *, cache: DynamicCache | None = None) -> Tensor:
        """Hidden states (N, T, D) of `ids` (N, T) that continue what `cache` holds and are added to it.

        Args:
            mask: (N, S+T), what is real of the S tokens in the cache and of `ids`.
        """
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        options = {} if cache is None else {self._cache_argument: cache}
        hidden: Tensor = self.model.base_model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=cache is not None, **options
        ).last_hidden_state
        return hidden

    def _states_after(self, encoded: Read, fed: Tensor, rows: Tensor) -> Tensor:
        """Hidden states (N, T, D) of `fed` (N, T) behind the prompts `rows` (N,), prompt and answer in one pass."""
        ids = torch.cat([encoded.ids[rows], fed], 1)
        return self.states(ids, torch.cat([encoded.mask[rows], torch.ones_like(fed)], 1))[:, -fed.shape[1] :]

    def _states_after_cached(self, encoded: Read, fed: Tensor, rows: Tensor) -> Tensor:
        """As `_states_after` without a gradient, the prompts read once for all calls."""
        mask = torch.cat([encoded.mask[rows], torch.ones_like(fed)], 1)
        return self.states(fed, mask, cache=_gathered(encoded.cache, rows))

    @torch.no_grad()
    def _require_plain_head(self) -> None:
        """One token through the whole model and through our use of its parts."""
        ids = torch.full((1, 1), self.decoder_start_token_id, device=self.device)
        weight, bias = self.output_layer()
        training = self.model.training
        self.model.eval()
        ours = nn.functional.linear(self.states(ids, torch.ones_like(ids)), weight, bias)
        peer = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        self.model.train(training)
        if not torch.allclose(ours.float(), peer.float(), atol=1e-3, rtol=1e-3):
            raise CheckpointError(
                f"generator must have logits that are its output embeddings applied to its hidden states, got "
                f"{type(self.model).__name__}, whose are not. Use a model without soft caps or scales on its logits."
            )


def _copy(cache: DynamicCache) -> DynamicCache:
    """A cache that shares its tensors with `cache`; transformers replaces tensors and never writes into them."""
    twin = copy.copy(cache)
    twin.layers = [copy.copy(layer) for layer in cache.layers]
    return twin


def _gathered(cache: DynamicCache, index: Tensor) -> DynamicCache:
    twin = _copy(cache)
    for layer in twin.layers:
        layer.keys, layer.values = layer.keys.index_select(0, index), layer.values.index_select(0, index)
    return twin
