"""One half of the bi-encoder of section 2.2: a transformer and its tokenizer, a text in, a vector out.

    DPR             the vector at [CLS], projected where the checkpoint has a projection (transformers' `pooler_output`)
    BERT and others pooling `cls`: the vector at the first token; `mean`: the mean over the tokens that are not padding;
                    `unit_mean`: that mean divided by its length, as encoders trained by cosine need it

Both halves are towers; `query_encoder` trains its own, `passage_encoder` freezes its own. As in DPR the segment ids
are zero throughout, for a title and text pair too: the published checkpoints were trained so. Weights are loaded in
float32 whatever the file holds, so that a fingerprint names values and not a storage type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder

from ragx import atomic
from ragx.errors import CheckpointError, ConfigError, ShapeError

POOLINGS = ("cls", "mean", "unit_mean")
SETTINGS_FILE = "ragx_encoder.json"
DEFAULT_MAX_LENGTH = 256
_DPR_CLASSES = {"DPRQuestionEncoder": DPRQuestionEncoder, "DPRContextEncoder": DPRContextEncoder}
# What changes a vector and is not in the weights. A list, not the whole config, so that a fingerprint survives
# a new transformers release that adds a field.
_CONFIG_ESSENTIALS = (
    "model_type",
    "num_attention_heads",
    "hidden_act",
    "activation",
    "layer_norm_eps",
    "projection_dim",
    "pad_token_id",
    "rope_theta",
)


class Tower(nn.Module):
    """A text encoder of any Hugging Face architecture.

    Args:
        model: the transformer; a DPR encoder or the output of `AutoModel`.
        tokenizer: its tokenizer.
        pooling: `cls`, `mean` or `unit_mean`. With the last, scores lie between -1 and 1, and a prior over them is
            nearly uniform before training.
        max_length: tokens of an input, special tokens included; what is longer is cut at the end.
    """

    def __init__(self, model: Any, tokenizer: Any, *, pooling: str, max_length: int) -> None:
        super().__init__()
        self.model: Any  # transformers' classes say little to a type checker
        if pooling not in POOLINGS:
            raise ConfigError([f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}."])
        if tokenizer.pad_token_id is None:
            raise ConfigError([f"tokenizer must have a padding token, got none in {type(tokenizer).__name__}."])
        limit = getattr(model.config, "max_position_embeddings", None) or max_length
        if not 3 <= max_length <= limit:
            raise ConfigError([f"max_length must lie between 3 and the encoder's {limit} positions, got {max_length}."])
        self.model, self.tokenizer, self.pooling, self.max_length = model, tokenizer, pooling, max_length
        self.is_dpr: bool = model.config.model_type == "dpr"
        if self.is_dpr and pooling != "cls":
            raise ConfigError(
                [f"pooling must be cls for a DPR encoder, got {pooling!r}. Load its BERT alone for a mean."]
            )
        tokenizer.padding_side = "right"  # pooling `cls` reads position 0
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # never read; kept, it would stay without gradient and random in some checkpoints

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | Path, *, role: str, pooling: str | None = None, max_length: int | None = None
    ) -> Tower:
        """Loads a folder or hub name; `role` (`query`, `passage`) settles which DPR class an unnamed one is.

        `pooling` and `max_length` default to what `save_pretrained` noted, else to `cls` and at most 256.

        Raises:
            CheckpointError: nothing there, not a text encoder, or weights missing.
            ConfigError: `pooling` or `max_length` does not fit the encoder.
        """
        name = str(path_or_name)
        try:
            config = AutoConfig.from_pretrained(name)
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = _load_model(name, config, role=role)
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(
                f"{role}_encoder must be a folder or hub name with config, tokenizer and weights, got {name}. "
                f"{str(error).splitlines()[0]}"
            ) from error
        noted = _noted_settings(Path(name))
        limit = min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", None) or DEFAULT_MAX_LENGTH)
        return cls(
            model,
            tokenizer,
            pooling=pooling or noted.get("pooling") or "cls",
            max_length=max_length or noted.get("max_length") or min(DEFAULT_MAX_LENGTH, limit),
        ).eval()

    @property
    def embedding_size(self) -> int:
        """D, the length of a vector."""
        config = self.model.config
        return int(getattr(config, "projection_dim", 0) or config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Vectors (B, D) in float32 of token ids (B, S); `attention_mask` (B, S) is 0 at padding."""
        if self.is_dpr:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).pooler_output.float()
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
        if self.pooling == "cls":
            return hidden[:, 0]
        weights = attention_mask.unsqueeze(2).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)
        return nn.functional.normalize(mean, dim=1) if self.pooling == "unit_mean" else mean

    @contextmanager
    def first_token_only(self) -> Iterator[None]:
        """Within it, the last layer of BERT computes the first token alone where the vector is read off there.

        What the other tokens would become after their last attention is read by nobody; the vectors are the same.
        """
        bert: Any = self.model
        if self.is_dpr:
            bert = (getattr(bert, "question_encoder", None) or bert.ctx_encoder).bert_model
        chunked = getattr(bert.config, "chunk_size_feed_forward", 0)
        if self.pooling != "cls" or bert.config.model_type not in ("dpr", "bert") or chunked:
            yield
            return
        output = bert.encoder.layer[-1].attention.output
        hook = output.register_forward_pre_hook(lambda _, states: tuple(state[:, :1] for state in states))
        try:
            yield
        finally:
            hook.remove()

    def tokenize(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[int]]:
        """Token ids of each text, special tokens included; with `pairs`, of (text, pair), or of the pair alone where
        the text is empty (DPR's rule for a passage without title). Cut to `max_length`, the longer half first."""
        if not texts:
            raise ShapeError("texts must hold at least one text, got none.")
        if pairs is None:
            return self._ids(list(texts))
        titled = [row for row, text in enumerate(texts) if text]
        bare = [row for row, text in enumerate(texts) if not text]
        ids: list[list[int]] = [[] for _ in texts]
        if titled:
            found = self._ids([texts[row] for row in titled], [pairs[row] for row in titled])
            for row, tokens in zip(titled, found, strict=True):
                ids[row] = tokens
        if bare:
            for row, tokens in zip(bare, self._ids([pairs[row] for row in bare]), strict=True):
                ids[row] = tokens
        return ids

    def _ids(self, texts: list[str], pairs: list[str] | None = None) -> list[list[int]]:
        return self.tokenizer(texts, pairs, truncation=True, max_length=self.max_length)["input_ids"]

    def pad(self, token_ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """`input_ids` and `attention_mask`, both (B, longest), on the device of the weights."""
        longest = max(len(row) for row in token_ids)
        padded = [[*row, *[self.tokenizer.pad_token_id] * (longest - len(row))] for row in token_ids]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in token_ids]
        return torch.tensor(padded, device=self.device), torch.tensor(mask, device=self.device)

    def save_pretrained(self, directory: str | Path) -> None:
        """Writes the folder that `from_pretrained`, here and in transformers, opens; an older one is replaced whole."""
        target = Path(directory)
        if target.exists() and any(target.iterdir()) and not (target / "config.json").exists():
            raise CheckpointError(f"directory must be empty or an encoder's, got {target}. Name another folder.")
        self._reset_tokenizer()
        with atomic.directory(target) as folder:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            with atomic.open_file(folder / SETTINGS_FILE) as handle:
                json.dump({"pooling": self.pooling, "max_length": self.max_length}, handle, indent=2, sort_keys=True)
                handle.write("\n")

    def fingerprint(self) -> str:
        """sha256 over everything that decides a vector: config, pooling, `max_length`, weights and tokenizer."""
        config = {name: getattr(self.model.config, name, None) for name in _CONFIG_ESSENTIALS}
        settings = {"pooling": self.pooling, "max_length": self.max_length, "config": config}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        digest.update(self._tokenizer_state().encode("utf-8"))
        return digest.hexdigest()

    def _reset_tokenizer(self) -> None:
        # A fast tokenizer keeps the padding and truncation of its last call, and would save them.
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            backend.no_padding()
            backend.no_truncation()

    def _tokenizer_state(self) -> str:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return json.dumps([type(self.tokenizer).__name__, self.tokenizer.get_vocab()], sort_keys=True)
        state = json.loads(backend.to_str())
        state.pop("truncation", None)
        state.pop("padding", None)
        return json.dumps(state, sort_keys=True)


def _load_model(name: str, config: Any, *, role: str) -> nn.Module:
    if getattr(config, "is_encoder_decoder", False):
        raise CheckpointError(
            f"{role}_encoder must be an encoder alone, got a {config.model_type} with a decoder: {name}."
        )
    model_class: Any = AutoModel
    if config.model_type == "dpr":
        default = "DPRQuestionEncoder" if role == "query" else "DPRContextEncoder"
        named = [architecture for architecture in config.architectures or () if architecture in _DPR_CLASSES]
        model_class = _DPR_CLASSES[named[0] if named else default]
    model, info = model_class.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
    missing = sorted(key for key in info["missing_keys"] if "pooler." not in key and "position_ids" not in key)
    if missing:
        raise CheckpointError(
            f"{role}_encoder must hold every weight of {type(model).__name__}, got {name} without "
            f"{', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}. They would have been random."
        )
    return model


def _noted_settings(folder: Path) -> dict[str, Any]:
    file = folder / SETTINGS_FILE
    if not file.is_file():
        return {}
    try:
        noted = json.loads(file.read_text(encoding="utf-8"))
        sound = isinstance(noted.get("pooling", ""), str) and type(noted.get("max_length", 1)) is int
    except (ValueError, AttributeError):
        sound = False
    if not sound:
        raise CheckpointError(f"{file} must hold pooling, a name, and max_length, a number. Copy the checkpoint again.")
    settings: dict[str, Any] = noted
    return settings
