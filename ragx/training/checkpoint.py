"""Checkpoints: a folder that is whole or absent, whose halves open alone, and in which nothing is pickled.

    query_encoder/  generator/      Hugging Face format with their tokenizers, weights as safetensors
    null_document/                  its logit, where the model has one
    ragx.json                       kind, n_docs, template, which index it was trained over, versions
    optimizer.safetensors, state.json   only where a run may resume: Adam's moments, step, settings
    MODEL_CARD.md

No path in it is absolute, so the folder may be moved. The random state needs no file: a run reseeds all generators from
(seed, step, process) before each step, so `state.json` says all there is to say about it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from ragx import atomic
from ragx.errors import CheckpointError, IndexMismatchError
from ragx.model import RagModel
from ragx.protocols import Retriever
from ragx.retriever.null_document import NullDocument
from ragx.retriever.query_encoder import QueryEncoder
from ragx.training.model_card import model_card
from ragx.training.record import (
    FORMAT,
    GENERATOR_OPTIONS,
    GENERATORS,
    RECORD,
    SEPARATOR,
    read_json,
    read_record,
    require_replaceable,
    write_json,
)

logger = logging.getLogger(__name__)
STATE, TENSORS, CARD = "state.json", "optimizer.safetensors", "MODEL_CARD.md"


@dataclass(frozen=True)
class TrainingState:
    """What a run needs beside the weights to go on: `record` is plain JSON, `tensors` are the optimizer's."""

    record: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def save_checkpoint(
    model: RagModel,
    directory: str | Path,
    *,
    state: TrainingState | None = None,
    card: Mapping[str, Any] | None = None,
) -> Path:
    """Writes `model` to `directory`, replacing the checkpoint there in one move; returns the directory.

    Args:
        state: with it a run can resume from this checkpoint; without it the checkpoint is a third of the size.
        card: further sections of MODEL_CARD.md by heading, see `ragx.training.model_card`.

    Raises:
        CheckpointError: something else than a checkpoint is there.
    """
    directory = Path(directory)
    require_replaceable(directory)
    record = _record(model, directory)
    with atomic.directory(directory) as folder:
        for part in record["parts"]:
            (folder / part).mkdir()
            with _without_bars():
                getattr(model, part).save_pretrained(folder / part)
        write_json(folder / RECORD, record)
        (folder / CARD).write_text(model_card(record, card), encoding="utf-8")
        if state is not None:
            write_json(folder / STATE, state.record)
            save_file(dict(state.tensors), folder / TENSORS)
    return directory


def load_checkpoint(directory: str | Path, *, retriever: Retriever | None = None, kind: str | None = None) -> RagModel:
    """The model of a checkpoint, in eval mode on the CPU.

    Args:
        retriever: over any index of the encoder that the model was trained with; another index than the recorded one is
            a hot swap, which is logged.
        kind: the kind that the caller needs; None takes the recorded one.

    Raises:
        CheckpointError: no checkpoint, a half or a key missing or surplus, or another kind.
        IndexMismatchError: the retriever's vectors are of another passage encoder.
    """
    directory = Path(directory)
    record = read_record(directory)
    if kind not in (None, record["kind"]):
        raise CheckpointError(
            f"{directory} must be a {kind} checkpoint, got {record['kind']}. Load it as {record['kind']}."
        )
    if retriever is not None and record["index"]:
        require_same_encoder(retriever, record["index"], directory)
    parts: dict[str, Any] = {
        "generator": _open(GENERATORS[record["parts"]["generator"]], directory, "generator", record)
    }
    if "query_encoder" in record["parts"]:
        parts["query_encoder"] = _open(QueryEncoder, directory, "query_encoder", record)
    model = RagModel(
        kind=record["kind"],
        retriever=retriever,
        n_docs=record["n_docs"],
        max_target_length=record["max_target_length"],
        **parts,
    )
    if record["freeze_query_encoder"]:
        model.freeze_query_encoder = True
    if "null_document" in record["parts"]:
        model.null_document = _open(NullDocument, directory, "null_document", record)
    return model.eval()


def restore_weights(model: RagModel, directory: str | Path) -> None:
    """Puts the weights of a checkpoint into `model`, bit for bit and in place (an optimizer may hold them).

    Raises:
        CheckpointError: as `load_checkpoint`, or weights that do not fit the model's.
    """
    directory = Path(directory)
    record = read_record(directory)
    for part in record["parts"]:
        module: nn.Module | None = getattr(model, part, None)
        if module is None:
            raise CheckpointError(f"model must have a {part} as {directory} has, got none. Build it of both.")
        fresh = _open(type(module), directory, part, record)
        try:
            module.load_state_dict(fresh.state_dict())
        except RuntimeError as error:
            raise CheckpointError(f"{directory / part} must fit the model's {part}. {error}") from error


def read_state(directory: str | Path) -> TrainingState:
    """What `save_checkpoint(..., state=...)` wrote.

    Raises:
        CheckpointError: the checkpoint has no state (only `last` can be resumed), or a damaged one.
    """
    directory = Path(directory)
    atomic.recover(directory)
    record = read_json(directory / STATE)
    try:
        return TrainingState(record, load_file(directory / TENSORS))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{directory / TENSORS} must be the optimizer's tensors, got: {error}.") from error


def _record(model: RagModel, directory: Path) -> dict[str, Any]:
    inputs = model.generator.inputs
    options = [*GENERATOR_OPTIONS, *([] if inputs.separator is None else [SEPARATOR])]
    parts = {"generator": type(model.generator).__name__}
    if model.query_encoder is not None:
        parts["query_encoder"] = type(model.query_encoder).__name__
    if model.passage_encoder is not None:
        parts["passage_encoder"] = type(model.passage_encoder).__name__
    if model.null_document is not None:
        parts["null_document"] = type(model.null_document).__name__
    return {
        "format": FORMAT,
        "kind": model.kind,
        "n_docs": model.n_docs,
        "max_target_length": model.max_target_length,
        "parts": parts,
        "generator": {name: getattr(inputs, name) for name in options},
        "freeze_query_encoder": model.freeze_query_encoder,
        "index": _index_reference(model, directory),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def _index_reference(model: RagModel, directory: Path) -> dict[str, Any] | None:
    """Which index the model was trained over, its path as seen from the checkpoint where it has one."""
    retriever = model.retriever
    if retriever is None:
        return None
    reference: dict[str, Any] = {"fingerprint": retriever.fingerprint}
    if getattr(retriever, "edition", None) is not None:
        reference["edition"] = retriever.edition  # type: ignore[attr-defined]
    encoder = _encoder_fingerprint(retriever) if model.passage_encoder is None else model.passage_encoder.fingerprint()
    if encoder is not None:
        reference["encoder_fingerprint"] = encoder
    if getattr(retriever, "directory", None) is not None:
        place = Path(retriever.directory).resolve()  # type: ignore[attr-defined]
        reference["path"] = Path(os.path.relpath(place, directory.resolve())).as_posix()
    return reference


@contextmanager
def _without_bars() -> Iterator[None]:
    """Transformers' own progress bars off: they would cut through that of the training."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _encoder_fingerprint(retriever: Retriever) -> str | None:
    """Of the passage encoder; "" of BM25, None for a retriever without an index."""
    return getattr(getattr(retriever, "manifest", None), "encoder_fingerprint", None)


def require_same_encoder(retriever: Retriever, index: Mapping[str, Any], directory: Path) -> None:
    """Another edition under the same weights is a hot swap; vectors of another encoder would be noise to q(x).

    Raises:
        IndexMismatchError: they are; `index` is what the checkpoint `directory` notes of its own.
    """
    recorded, found = index.get("encoder_fingerprint"), _encoder_fingerprint(retriever)
    if recorded != found:
        own = directory / "passage_encoder"  # there where it was trained too (live refresh)
        command = f"python scripts/build_index.py retriever.passage_encoder={own} data.passages=... index.directory=..."
        advice = f"It learned with the model: {command}" if own.is_dir() else "Build the index with that encoder."
        advice = {None: "Give retriever=given.", "": "Give retriever=bm25 index=bm25."}.get(recorded, advice)
        raise IndexMismatchError(
            f"retriever must be over {_searched(recorded)}, with which {directory} was trained, "
            f"got {_searched(found)}. {advice}"
        )
    if retriever.fingerprint != index["fingerprint"]:
        old, new = index["fingerprint"][:12], retriever.fingerprint[:12]
        logger.info("index %s takes the place of %s, over which %s was trained", new, old, directory)


def _searched(encoder: str | None) -> str:
    """What is searched, by the fingerprint of its passage encoder."""
    return {None: "given passages", "": "a BM25 index"}.get(encoder, f"vectors of passage encoder {encoder}")


def _open(part_class: Any, directory: Path, part: str, record: Mapping[str, Any]) -> Any:
    options = record["generator"] if part == "generator" else {}
    with _without_bars():
        return part_class.from_pretrained(directory / part, **options)
