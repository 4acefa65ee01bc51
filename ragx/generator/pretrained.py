"""Section 2.3: what every generator made of a Hugging Face checkpoint has, whatever its architecture.

    labels  =  y_1 .. y_T (the last is EOS)          states (B, K, T, D)  ->  LM head  ->  log p(y_i|x,z,y_<i)

Weights come from safetensors, whole or not at all; what is written opens with `from_pretrained` here and in
transformers. How a passage is read is left to `Seq2SeqGenerator` and `CausalLMGenerator`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoTokenizer

from ragx.errors import CheckpointError, ShapeError
from ragx.generator.inputs import IGNORED, InputBuilder
from ragx.losses.token_logprobs import check_labels

G = TypeVar("G", bound="PretrainedGenerator")
# Of a generation config: what changes no answer, and the special tokens, which the tokenizer has.
_NO_DEFAULTS = frozenset(
    "transformers_version _from_model_config bos_token_id pad_token_id eos_token_id decoder_start_token_id "
    "use_cache return_dict_in_generate output_attentions output_hidden_states output_scores output_logits".split()
)


class PretrainedGenerator(nn.Module):
    """A model and its tokenizer; a subclass implements `ragx.protocols.Generator` and `target_states` with them.

    Args:
        model: with `get_output_embeddings`.
        inputs: builds what it reads, with its tokenizer; found again under this name.

    Attributes:
        decoder_start_token_id: what is fed before the first token of an answer; the subclass sets it.
    """

    loader: ClassVar[Any]
    """The Auto class of transformers that reads such a checkpoint."""
    families: ClassVar[str]
    """What that may be, for messages."""
    decoder_start_token_id: int

    def __init__(self, model: Any, inputs: InputBuilder) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        if len(self.tokenizer) > self.vocab_size:
            raise CheckpointError(
                f"tokenizer must fit the model's vocabulary of {self.vocab_size}, got {len(self.tokenizer)} tokens. "
                "Load the tokenizer of the same checkpoint."
            )
        inputs.vocab_size = self.vocab_size
        self.pad_token_id = required_id(self.tokenizer.pad_token_id, "tokenizer.pad_token_id")
        self.eos_token_id = required_id(self.tokenizer.eos_token_id, "tokenizer.eos_token_id")

    @property
    def generation_defaults(self) -> dict[str, Any]:
        """What the checkpoint asks of transformers' `generate` besides special tokens; nothing here obeys it.

        Names are transformers'; a number of tokens counts the start token there.
        """
        given = getattr(self.model, "generation_config", None)
        asked: dict[str, Any] = {} if given is None else given.to_diff_dict()
        return {name: value for name, value in sorted(asked.items()) if name not in _NO_DEFAULTS}

    @classmethod
    def from_pretrained(
        cls: type[G],
        path_or_name: str | Path,
        *,
        dtype: torch.dtype = torch.float32,
        allow_keys: Sequence[str] = (),
        **options: Any,
    ) -> G:
        """Loads a Hugging Face checkpoint (safetensors) with its tokenizer, in eval mode.

        Args:
            allow_keys: names of weights that may be missing (then random) or surplus (then unused).
            options: of the constructor.

        Raises:
            CheckpointError: nothing there, another kind of model, other weights missing, surplus or of another shape.
        """
        name = str(path_or_name)
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model, info = cls.loader.from_pretrained(name, dtype=dtype, use_safetensors=True, output_loading_info=True)
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(
                f"generator must be a folder or hub name of {cls.families} with config, tokenizer and safetensors, "
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
        return cls(model, tokenizer, **options).eval()

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

    @property
    def networks(self) -> list[nn.Module]:
        """The parts of the model that training calls, in order: what `torch.compile` is to compile."""
        raise NotImplementedError

    @property
    def compiled(self) -> bool:
        """Whether compiled code reads passages at present (`ragx.training.compiling`)."""
        return any(getattr(network, "_compiled_call_impl", None) is not None for network in self.networks)

    def fingerprint(self) -> str:
        """Hex digest over names, dtypes, shapes and bytes of all weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """(R, S) inputs as they were read, on the model's device; the result has a length, R."""
        raise NotImplementedError

    def token_logprobs(self, encoded: Any, labels: Tensor, rows: Tensor) -> Tensor:
        """Teacher-forced log p(y_i|x,z,y_<i), (N, T) float32: labels (N, T) read against `rows` (N,)."""
        raise NotImplementedError

    def target_states(self, encoded: Any, labels: Tensor) -> Tensor:
        """Decoder states (B, K, T, D), as the LM head reads them, of one target a query, labels (B, T) on the device.

        Row b*K + k of `encoded` is passage k of query b.
        """
        raise NotImplementedError

    def begin(self, encoded: Any, rows: Tensor) -> Any:
        """A decoding state of N sequences, sequence n against row `rows[n]`, nothing generated yet."""
        raise NotImplementedError

    def next_logprobs(self, state: Any, token_ids: Tensor) -> tuple[Tensor, Any]:
        """Feeds `token_ids` (N,); returns log-probabilities (N, V) float32 of the next token, and the new state."""
        raise NotImplementedError

    def reorder(self, state: Any, index: Tensor) -> Any:
        """The state whose sequence m is the old sequence `index[m]`, (M,)."""
        raise NotImplementedError

    def target_logprobs(self, encoded: Any, labels: Tensor, *, n_docs: int) -> Tensor:
        """`token_logprobs` (B, K, T) of one target a query, labels (B, T), read against each of its K passages."""
        n_rows = len(encoded)
        if n_rows != len(labels) * n_docs:
            raise ShapeError(
                f"encoded must have {len(labels)} x {n_docs} rows (labels x n_docs), got {n_rows}. "
                "Build the inputs from the same queries and passages."
            )
        flat = self.token_logprobs(encoded, labels.repeat_interleave(n_docs, dim=0), torch.arange(n_rows))
        return flat.view(len(labels), n_docs, -1)

    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """The LM head: weight (V, D) and bias (V,)."""
        head = self.model.get_output_embeddings()
        bias = getattr(self.model, "final_logits_bias", None)  # BART's, (1, V)
        bias = head.bias if bias is None else bias.reshape(-1).to(head.weight.dtype)
        return head.weight, bias

    def fed(self, labels: Tensor) -> Tensor:
        """What is fed to predict labels (N, T) on the device: the start token and all labels but the last."""
        start = labels.new_full((len(labels), 1), self.decoder_start_token_id)
        return torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] < 0, self.pad_token_id)], dim=1)

    def scored(self, labels: Tensor) -> Tensor:
        """Labels (N, T) on the model's device, with -100 also at a pad token behind an EOS.

        Raises:
            ShapeError: a label outside the vocabulary; checked on CPU labels only, for it would stall a GPU.
        """
        if labels.device.type == "cpu":
            check_labels(labels, self.vocab_size)
        labels = labels.to(self.device)
        ended = labels == self.eos_token_id
        after = ended.cumsum(1) - ended.long() > 0
        return labels.masked_fill(after & (labels == self.pad_token_id), IGNORED)


def required_id(value: int | None, name: str) -> int:
    """A token id that the checkpoint must have; raises CheckpointError where it has none."""
    if value is None:
        raise CheckpointError(f"{name} must be set, got None. Set it in the checkpoint's configuration.")
    return int(value)
