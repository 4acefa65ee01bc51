"""Published RAG checkpoints (`facebook/rag-sequence-nq`, `rag-token-nq`, `rag-*-base`), read and written.

    config.json                                   RagConfig: both networks, n_docs, separators, and the model kind
    model.safetensors                             rag.question_encoder.*, rag.generator.*
    question_encoder_tokenizer/  generator_tokenizer/

transformers' own classes read and write the weights: tied embeddings, BART's final_logits_bias and DPR's doubled prefix
are theirs to get right. What they pass over with a warning is an error here: a key missing or surplus, a tokenizer
without a vocabulary, RAG-Token weights asked for as RAG-Sequence. (A missing final_logits_bias is zero, as in BART.)
Pickled weights are not read.

Where BOS goes. transformers takes labels `<s> y </s>` as decoder inputs and scores all but the first, so training never
sees its start token; `generate` starts from `</s>` and has to say `<s>` before y. An imported model has
`bos_in_labels=True` (where its tokenizer has a BOS): its targets are what it decodes, `<s> y </s>` after `</s>`.
transformers' loss is the same number for the labels `</s> <s> y </s>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, RagConfig, RagSequenceForGeneration, RagTokenForGeneration

from ragx import atomic
from ragx.errors import CheckpointError
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.generator.template import Template
from ragx.model import RagModel
from ragx.protocols import Retriever
from ragx.retriever.query_encoder import QueryEncoder
from ragx.retriever.tower import DEFAULT_MAX_LENGTH, Tower

CLASSES: dict[str, Any] = {"rag_sequence": RagSequenceForGeneration, "rag_token": RagTokenForGeneration}
KINDS = {peer.__name__: kind for kind, peer in CLASSES.items()}
QUESTION_TOKENIZER, GENERATOR_TOKENIZER = "question_encoder_tokenizer", "generator_tokenizer"
_NEVER_READ = "rag.question_encoder.question_encoder.bert_model.pooler."  # in files of 2020; DPR has none any more


def import_rag(
    path_or_name: str | Path,
    *,
    retriever: Retriever | None = None,
    kind: str | None = None,
    max_input_length: int | None = None,
) -> RagModel:
    """The model of a RAG checkpoint of transformers, in eval mode, float32, on the CPU.

    The generator reads the passage and the query as the checkpoint's separators and prefix say, but not what
    transformers' retriever makes of them: it lower-cases the query by way of the other tokenizer, strips quotes around
    a title, merges double blanks, and cuts the query where the passage is long.

    Args:
        path_or_name: a folder or a hub name.
        retriever: over passages encoded by the DPR passage encoder that goes with the checkpoint.
        kind: the kind that the caller needs; None takes the recorded one.
        max_input_length: tokens of a generator input; None takes the recorded one (300 in the published ones).

    Raises:
        CheckpointError: nothing there, another kind, no safetensors, keys missing or surplus, not a DPR encoder.
    """
    name = str(path_or_name)
    config = _read(AutoConfig, name)
    kind = _kind(config, name, kind)
    if (found := config.question_encoder.model_type) != "dpr":
        raise CheckpointError(f"{name}: question_encoder must be dpr, got {found}. transformers' RAG reads no other.")
    peer = _load(CLASSES[kind], name)
    extra = getattr(config, "ragx", {})
    tokenizer = _tokenizer(name, GENERATOR_TOKENIZER, config.generator)
    generator = Seq2SeqGenerator(
        peer.rag.generator,
        tokenizer,
        max_length=max_input_length or config.max_combined_length,
        template=_template(config),
        bos_in_labels=extra.get("bos_in_labels", tokenizer.bos_token_id is not None),
    )
    question_tokenizer = _tokenizer(name, QUESTION_TOKENIZER, config.question_encoder)
    positions = config.question_encoder.max_position_embeddings
    longest = extra.get("max_query_length", min(DEFAULT_MAX_LENGTH, positions, question_tokenizer.model_max_length))
    tower = Tower(peer.rag.question_encoder, question_tokenizer, pooling="cls", max_length=longest)
    encoder = QueryEncoder(tower)
    model = RagModel(kind=kind, generator=generator, query_encoder=encoder, retriever=retriever, n_docs=config.n_docs)
    model.max_target_length = extra.get("max_target_length", model.max_target_length)
    return model.eval()


def export_rag(model: RagModel, directory: str | Path) -> Path:
    """Writes `model` as transformers' RAG classes read it, replacing a RAG checkpoint there; returns the directory.

    Where `bos_in_labels` is off, transformers trains on with labels of `decoder_start_token_id`, y, EOS.

    Raises:
        CheckpointError: a model that transformers' RAG cannot hold, or a directory with something else in it.
    """
    directory = Path(directory)
    if directory.exists() and any(directory.iterdir()) and not (directory / QUESTION_TOKENIZER).is_dir():
        raise CheckpointError(f"directory must be empty or a RAG checkpoint's, got {directory}. Name another folder.")
    tower = None if model.query_encoder is None else model.query_encoder.tower
    if model.kind not in CLASSES or tower is None or not tower.is_dpr:
        encoder = "no query encoder" if tower is None else f"a {tower.model.config.model_type} query encoder"
        raise CheckpointError(
            f"model must be a RAG model with a DPR query encoder to export, got {model.kind} with {encoder}. "
            "Use save_checkpoint, whose halves open alone."
        )
    if not isinstance(model.generator, Seq2SeqGenerator):
        got = type(model.generator.model).__name__
        raise CheckpointError(f"generator must be an encoder-decoder to export, got {got}. Use save_checkpoint.")
    if model.null_document is not None:
        got = model.null_document.kind
        raise CheckpointError(f"model must have no null document to export, got {got}. Use save_checkpoint.")
    parts = {"question_encoder": tower.model, "generator": model.generator.model}
    peer = CLASSES[model.kind](config=_config(model, tower), **parts)
    if getattr(tower.tokenizer, "backend_tokenizer", None) is not None:
        tower.tokenizer.backend_tokenizer.no_truncation()  # else the last call's is saved
    with atomic.directory(directory) as folder:
        peer.save_pretrained(folder)
        tower.tokenizer.save_pretrained(folder / QUESTION_TOKENIZER)
        model.generator.tokenizer.save_pretrained(folder / GENERATOR_TOKENIZER)
    return directory


def _read(reader: Any, name: str, **options: Any) -> Any:
    try:
        return reader.from_pretrained(name, **options)
    except (OSError, ValueError) as error:
        what = options.get("subfolder", "config.json")
        raise CheckpointError(f"{name} must be a RAG checkpoint with {what}, got: {error}") from error


def _tokenizer(name: str, part: str, config: Any) -> Any:
    """A tokenizer; where its folder is missing, transformers makes one that knows special tokens alone."""
    tokenizer = _read(AutoTokenizer, name, subfolder=part, config=config)
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise CheckpointError(f"{name} must be a RAG checkpoint with {part}, got no vocabulary there. Copy it whole.")
    return tokenizer


def _kind(config: RagConfig, name: str, wanted: str | None) -> str:
    """The kind to load: the recorded one, or the wanted one where none is recorded."""
    if wanted is not None and wanted not in CLASSES:
        raise CheckpointError(f"kind must be one of {', '.join(CLASSES)} for a RAG checkpoint, got {wanted!r}.")
    if config.model_type != "rag":
        raise CheckpointError(f"{name} must be a RAG checkpoint, got {config.model_type}. Load it as a generator.")
    recorded = [KINDS[peer] for peer in config.architectures or () if peer in KINDS]
    if not recorded and wanted is None:
        raise CheckpointError(f"{name} must name its kind in config.json, got {config.architectures}. Pass kind=...")
    if recorded and wanted not in (None, recorded[0]):
        raise CheckpointError(f"{name} must be a {wanted} checkpoint, got {recorded[0]}. Load it as {recorded[0]}.")
    return wanted or recorded[0]


def _load(peer_class: Any, name: str) -> Any:
    options = {"dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
    try:
        peer, info = peer_class.from_pretrained(name, **options)
    except OSError as error:
        raise CheckpointError(
            f"{name} must hold model.safetensors, got: {error} Pickled weights are not read. If you trust the file, "
            f"convert it once: transformers.{peer_class.__name__}.from_pretrained({name!r}).save_pretrained(FOLDER), "
            f"and transformers.RagTokenizer.from_pretrained({name!r}).save_pretrained(FOLDER)."
        ) from error
    except RuntimeError as error:  # a weight of another shape
        raise CheckpointError(f"{name} must fit its config.json, got: {error}") from error
    surplus = sorted(key for key in info["unexpected_keys"] if not key.startswith(_NEVER_READ))
    found = {"missing": sorted(info["missing_keys"]), "surplus": surplus}
    problems = [f"{what}: {', '.join(keys)}" for what, keys in found.items() if keys]
    if problems:
        raise CheckpointError(f"{name} must hold the weights of {peer_class.__name__}, got {'; '.join(problems)}.")
    return peer


def _template(config: RagConfig) -> str:
    prefix = getattr(config.generator, "prefix", None) or ""
    literals = (prefix, config.title_sep, config.doc_sep)
    before, between, after = (text.replace("{", "{{").replace("}", "}}") for text in literals)
    return f"{before}{{title}}{between}{{text}}{after}{{query}}"


def _config(model: RagModel, tower: Tower) -> RagConfig:
    inputs = model.generator.inputs
    template = Template.parse(inputs.template)
    literals, names = [""], list[str]()
    for literal, name in template.passage:  # an escaped brace ends a literal too
        literals[-1] += literal
        if name:
            names, literals = [*names, name], [*literals, ""]
    right, tail = template.query
    if names != ["title", "text"] or template.query_first or tail:
        known = "title, text, query in this order to export"  # transformers' retriever has no other
        raise CheckpointError(f"generator.template must be {known}, got {inputs.template!r}. Train with one that is.")
    prefix, title_sep, left = literals
    return RagConfig(
        question_encoder=tower.model.config.to_dict(),
        generator={**model.generator.model.config.to_dict(), "prefix": prefix or None},
        n_docs=model.n_docs,
        title_sep=title_sep,
        doc_sep=left + right,
        max_combined_length=inputs.max_length,
        retrieval_vector_size=tower.embedding_size,
        ragx={  # what RagConfig has no field for
            "bos_in_labels": inputs.bos_in_labels,
            "max_target_length": model.max_target_length,
            "max_query_length": tower.max_length,
        },
    )
