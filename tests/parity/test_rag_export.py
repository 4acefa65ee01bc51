"""Our models as transformers loads them: every key, the same logits, and back again unchanged."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    PreTrainedTokenizerFast,
    RagConfig,
    RagTokenForGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from ragx.errors import CheckpointError
from ragx.generator.inputs import InputBuilder
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Passage
from ragx.retriever.query_encoder import QueryEncoder
from ragx.training.rag_checkpoint import export_rag, import_rag
from tests.parity.published import (
    ANSWERS,
    BOTH,
    N_DOCS,
    PAD,
    PEERS,
    QUERIES,
    assert_equal_states,
    found,
    peer_inputs,
    peer_nll,
    started,
    state,
)


def ours(kind: str, generator: Seq2SeqGenerator, query_encoder: QueryEncoder) -> RagModel:
    with torch.no_grad():
        for parameter in [*generator.parameters(), *query_encoder.parameters()]:
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(6)))
        if hasattr(generator.model, "final_logits_bias"):
            generator.model.final_logits_bias.normal_()
    model = RagModel(kind=kind, generator=generator, query_encoder=query_encoder, n_docs=N_DOCS, max_target_length=17)
    return model.eval()


@BOTH
def test_export_loads_in_transformers_with_every_key_and_the_same_logits(
    kind: str, generator: Seq2SeqGenerator, query_encoder: QueryEncoder, tiny_passages: list[Passage], tmp_path: Path
) -> None:
    model = ours(kind, generator, query_encoder)
    before, retrieved = state(model), found(tiny_passages)
    peer, info = PEERS[kind].from_pretrained(export_rag(model, tmp_path / "rag"), output_loading_info=True)
    assert not any(info.values()), info
    assert peer.generator.lm_head.weight.data_ptr() == peer.generator.model.shared.weight.data_ptr()
    inputs = peer_inputs(peer, model, QUERIES, retrieved)
    labels = started(model.generator.inputs.labels(ANSWERS, max_length=32)).clamp(min=PAD)
    with torch.no_grad():
        theirs = peer(**inputs, labels=labels)
        logits = model.generator.model(
            input_ids=inputs["context_input_ids"],
            attention_mask=inputs["context_attention_mask"],
            decoder_input_ids=labels.repeat_interleave(N_DOCS, 0),
        ).logits
        nll = model(QUERIES, ANSWERS, retrieved=retrieved).nll
    torch.testing.assert_close(theirs.logits, logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(theirs.loss, nll, atol=1e-5, rtol=1e-5)
    assert_equal_states(before, state(model))  # and the exported model is left as it was


@BOTH
def test_what_is_exported_comes_back(
    kind: str, generator: Seq2SeqGenerator, query_encoder: QueryEncoder, tmp_path: Path
) -> None:
    """Also what transformers has no field for: where BOS goes, and how long a query and a target may be."""
    model = ours(kind, generator, query_encoder)
    back = import_rag(export_rag(model, tmp_path / "rag"))
    assert_equal_states(state(model), state(back))
    assert (back.kind, back.n_docs, back.max_target_length) == (kind, N_DOCS, 17)
    for name in ("template", "max_length", "bos_in_labels"):
        assert getattr(back.generator.inputs, name) == getattr(generator.inputs, name)
    assert back.query_encoder is not None and back.query_encoder.fingerprint() == query_encoder.fingerprint()
    assert (
        back.generator.inputs.labels(ANSWERS, max_length=9).tolist()
        == generator.inputs.labels(ANSWERS, max_length=9).tolist()
    )


def test_what_was_imported_is_exported_with_the_same_weights(published: dict[str, Path], tmp_path: Path) -> None:
    for kind, folder in published.items():
        exported = export_rag(import_rag(folder), tmp_path / kind)
        first, second = load_file(folder / "model.safetensors"), load_file(exported / "model.safetensors")
        assert_equal_states(first, second)


def test_separators_travel_both_ways(generator: Seq2SeqGenerator, query_encoder: QueryEncoder, tmp_path: Path) -> None:
    generator.inputs = InputBuilder(generator.tokenizer, template="{{x}} {title}: {text} }}? {query}")
    folder = export_rag(ours("rag_token", generator, query_encoder), tmp_path / "rag")
    config = RagConfig.from_pretrained(folder)
    assert (config.generator.prefix, config.title_sep, config.doc_sep) == ("{x} ", ": ", " }? ")
    assert import_rag(folder).generator.inputs.template == generator.inputs.template


def test_t5_is_exported_and_comes_back(
    byte_level_tokenizer: PreTrainedTokenizerFast, query_encoder: QueryEncoder, tiny_passages: list[Passage],
    tmp_path: Path,
) -> None:  # fmt: skip
    torch.manual_seed(2)
    tokenizer = copy.deepcopy(byte_level_tokenizer)
    tokenizer.bos_token = None
    config = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, pad_token_id=PAD,
        eos_token_id=2, decoder_start_token_id=PAD, initializer_factor=3.0, dropout_rate=0.0,
    )  # fmt: skip
    model = ours("rag_token", Seq2SeqGenerator(T5ForConditionalGeneration(config), tokenizer), query_encoder)
    folder = export_rag(model, tmp_path / "rag")
    peer, info = RagTokenForGeneration.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    retrieved = found(tiny_passages)
    inputs = peer_inputs(peer, model, QUERIES, retrieved)
    labels = model.generator.inputs.labels(ANSWERS, max_length=32)
    with torch.no_grad():
        nll = model(QUERIES, ANSWERS, retrieved=retrieved).nll
        back = import_rag(folder)(QUERIES, ANSWERS, retrieved=retrieved).nll
    start = torch.full_like(labels[:, :1], PAD)
    torch.testing.assert_close(peer_nll(peer, inputs, torch.cat([start, labels], 1)), nll, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(back, nll, atol=0, rtol=0)


def test_what_transformers_cannot_hold_is_not_exported(
    generator: Seq2SeqGenerator, query_encoder: QueryEncoder, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="must be a RAG model .*, got closed_book with no query encoder"):
        export_rag(RagModel(kind="closed_book", generator=generator), tmp_path / "rag")
    with pytest.raises(CheckpointError, match="must be a RAG model .*, got rag_token with no query encoder"):
        export_rag(RagModel(kind="rag_token", generator=generator), tmp_path / "rag")
    generator.inputs = InputBuilder(generator.tokenizer, template="{query} // {title} / {text}")
    with pytest.raises(CheckpointError, match=r"generator.template must be title, text, query in this order"):
        export_rag(RagModel(kind="rag_token", generator=generator, query_encoder=query_encoder), tmp_path / "rag")
    assert not (tmp_path / "rag").exists()


def test_a_folder_with_something_else_is_not_replaced(
    generator: Seq2SeqGenerator, query_encoder: QueryEncoder, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").touch()
    model = RagModel(kind="rag_token", generator=generator, query_encoder=query_encoder)
    with pytest.raises(CheckpointError, match="directory must be empty or a RAG checkpoint's, got"):
        export_rag(model, tmp_path)
    assert (tmp_path / "thesis.tex").exists()
    export_rag(model, tmp_path / "rag")
    assert export_rag(model, tmp_path / "rag").is_dir()  # an older export is replaced
