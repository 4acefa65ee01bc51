"""The two towers that DPR trains together (section 2.2): q(x) and d(z), separate or one for both.

    checkpoint/   query_encoder/   passage_encoder/      Hugging Face format, each opens alone, here and in transformers
                  ragx.json   MODEL_CARD.md               and state.json, optimizer.safetensors where a run may resume

Both start from one checkpoint unless two are named, as DPR starts both from BERT. A DPR checkpoint stays one: the
passage half of a question encoder is written as a `DPRContextEncoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import DPRConfig, DPRContextEncoder, DPRQuestionEncoder

from ragx import atomic
from ragx.errors import CheckpointError
from ragx.retriever.tower import Tower
from ragx.training.checkpoint import CARD, STATE, TENSORS, TrainingState
from ragx.training.record import FORMAT, RECORD, read_json, require_replaceable, write_json

PARTS = ("query_encoder", "passage_encoder")
KIND = "bi_encoder"
_DPR = {"query": (DPRQuestionEncoder, "question_encoder"), "passage": (DPRContextEncoder, "ctx_encoder")}


class BiEncoder(nn.Module):
    """Both towers; one forward pass embeds a batch's questions and passages, which several processes need in one."""

    def __init__(self, query_encoder: Tower, passage_encoder: Tower) -> None:
        super().__init__()
        self.query_encoder, self.passage_encoder = query_encoder, passage_encoder

    @classmethod
    def from_pretrained(
        cls,
        query_encoder: str | Path,
        passage_encoder: str | Path | None = None,
        *,
        shared: bool = False,
        as_dpr: bool = False,
        pooling: str | None = None,
        max_query_length: int | None = None,
        max_passage_length: int | None = None,
    ) -> BiEncoder:
        """Loads DPR encoders, `BertModel` or any `AutoModel`, folders or hub names.

        Args:
            passage_encoder: None starts it from the weights of `query_encoder`.
            shared: one tower reads questions and passages; needs `passage_encoder` None.
            as_dpr: make DPR encoders of BERT, which transformers' RAG and DPR classes read.
            pooling, max_query_length, max_passage_length: see `Tower`; None is as saved.

        Raises:
            CheckpointError: nothing there, weights missing, or something else than BERT with `as_dpr`.
            ConfigError: `pooling` or a length that does not fit.
        """
        query = Tower.from_pretrained(query_encoder, role="query", pooling=pooling, max_length=max_query_length)
        if shared and passage_encoder is not None:
            raise CheckpointError(
                f"passage_encoder must be null where one encoder is shared, got {passage_encoder}. Leave it out."
            )
        if as_dpr:
            query = _dpr_tower(query, "query")
        if shared:
            length = max_passage_length or query.max_length
            passage = Tower(query.model, query.tokenizer, pooling=query.pooling, max_length=length)
        else:
            source = query_encoder if passage_encoder is None else passage_encoder
            passage = Tower.from_pretrained(source, role="passage", pooling=pooling, max_length=max_passage_length)
            passage = _dpr_tower(passage, "passage") if as_dpr or passage.is_dpr else passage
        if query.embedding_size != passage.embedding_size:
            raise CheckpointError(
                "query_encoder and passage_encoder must have vectors of one length, got "
                f"{query.embedding_size} and {passage.embedding_size}. Choose a pair."
            )
        return cls(query, passage)

    @property
    def shared(self) -> bool:
        """Whether one tower reads both."""
        return self.query_encoder.model is self.passage_encoder.model

    def forward(self, queries: tuple[Tensor, Tensor], passages: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """q(x) (B, D) and d(z) (P, D) float32, of token ids and masks."""
        return self.query_encoder(*queries), self.passage_encoder(*passages)

    def groups(self) -> dict[str, dict[str, nn.Parameter]]:
        """Trainable parameters by tower and name; a shared one has the group `query_encoder` alone."""
        found: dict[str, dict[str, nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                found.setdefault(name.split(".", 1)[0], {})[name] = parameter
        return found


def save_bi_encoder(
    model: BiEncoder, directory: str | Path, *, card: str, facts: Mapping[str, Any], state: TrainingState | None = None
) -> None:
    """Writes both towers, whole or not at all, in place of the checkpoint that is there.

    Args:
        card: text of MODEL_CARD.md.
        facts: further keys of ragx.json.
        state: with it a run can go on from here.

    Raises:
        CheckpointError: something else than a checkpoint is there.
    """
    directory = Path(directory)
    require_replaceable(directory)
    passage = _dpr_tower(model.passage_encoder, "passage") if model.passage_encoder.is_dpr else model.passage_encoder
    record = {
        "format": FORMAT,
        "kind": KIND,
        "shared": model.shared,
        "parts": {part: type(getattr(model, part).model).__name__ for part in PARTS},
        "fingerprints": {"query_encoder": model.query_encoder.fingerprint(), "passage_encoder": passage.fingerprint()},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        **facts,
    }
    with atomic.directory(directory) as folder:
        for part, tower in zip(PARTS, (model.query_encoder, passage), strict=True):
            tower.save_pretrained(folder / part)
        write_json(folder / RECORD, record)
        (folder / CARD).write_text(card, encoding="utf-8")
        if state is not None:
            write_json(folder / STATE, state.record)
            save_file(dict(state.tensors), folder / TENSORS)


def restore_bi_encoder(model: BiEncoder, directory: str | Path) -> None:
    """Puts the weights of a checkpoint into `model`, bit for bit and in place.

    Raises:
        CheckpointError: not a bi-encoder's checkpoint, or weights that do not fit.
    """
    directory = Path(directory)
    atomic.recover(directory)
    record = read_json(directory / RECORD)
    if record.get("kind") != KIND or record.get("shared") != model.shared:
        got = f"kind {record.get('kind')!r}, shared {record.get('shared')!r}"
        raise CheckpointError(f"{directory} must be a bi_encoder with shared {model.shared}, got {got}.")
    for part in PARTS[: 1 if model.shared else 2]:
        fresh = Tower.from_pretrained(directory / part, role=part.split("_")[0])
        try:
            getattr(model, part).model.load_state_dict(fresh.model.state_dict())
        except RuntimeError as error:
            raise CheckpointError(f"{directory / part} must fit the model's {part}. {error}") from error


def _core(tower: Tower) -> nn.Module:
    """The transformer without the names that a DPR class puts before its weights."""
    if not tower.is_dpr:
        return tower.model
    return getattr(tower.model, "question_encoder", None) or tower.model.ctx_encoder


def _dpr_tower(tower: Tower, role: str) -> Tower:
    """The same encoder as the DPR class of `role`, with weights of its own; the tower itself where it is that."""
    model_class, name = _DPR[role]
    if isinstance(tower.model, model_class):
        return tower
    config = tower.model.config
    if config.model_type not in ("dpr", "bert") or tower.pooling != "cls":
        got = f"{config.model_type} with pooling {tower.pooling}"
        raise CheckpointError(
            f"encoder must be BERT with pooling cls to become a DPR encoder, got {got}. Give as_dpr=false."
        )
    settings = {key: value for key, value in config.to_dict().items() if key not in ("model_type", "architectures")}
    model = model_class(DPRConfig(**settings))
    inner = getattr(model, name)
    (inner if tower.is_dpr else inner.bert_model).load_state_dict(_core(tower).state_dict())
    return Tower(model, tower.tokenizer, pooling="cls", max_length=tower.max_length)
