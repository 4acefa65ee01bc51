"""RAG checkpoints as transformers publishes them, tiny and random, and what both sides read.

Written by transformers itself, the tokenizers in the files of 2020 (vocab.json, merges.txt, vocab.txt).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BartConfig,
    DPRConfig,
    PreTrainedTokenizerFast,
    RagConfig,
    RagSequenceForGeneration,
    RagTokenForGeneration,
)

from ragx.model import RagModel
from ragx.records import Passage, Retrieved

PEERS: dict[str, Any] = {"rag_sequence": RagSequenceForGeneration, "rag_token": RagTokenForGeneration}
BOTH = pytest.mark.parametrize("kind", list(PEERS))
QUERIES = ["who led peru until 2011?", "who leads chile?", "what is the capital of japan?"]
ANSWERS = ["Alan García", "Michelle Bachelet led it", "Tokyo"]
N_DOCS, D, PAD = 3, 16, 1


def save_tokenizers(folder: Path, byte_level: PreTrainedTokenizerFast, uncased: PreTrainedTokenizerFast) -> None:
    """Both tokenizers as the published folders hold them, without any tokenizer.json."""
    state = json.loads(byte_level.backend_tokenizer.to_str())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in state["merges"]]
    files = {
        "generator_tokenizer/vocab.json": json.dumps(state["vocab"]),
        "generator_tokenizer/merges.txt": "\n".join(["#version: 0.2", *merges, ""]),
        "generator_tokenizer/tokenizer_config.json": '{"model_max_length": 256}',
        "question_encoder_tokenizer/vocab.txt": "\n".join([*sorted(uncased.vocab, key=uncased.vocab.get), ""]),
        "question_encoder_tokenizer/tokenizer_config.json": '{"do_lower_case": true, "model_max_length": 128}',
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def write_peer(folder: Path, kind: str, tokenizers: tuple[Any, Any], *, seed: int = 0) -> None:
    """A random checkpoint of transformers. BART's final_logits_bias is not zero, embeddings are tied."""
    byte_level, uncased = tokenizers
    question = DPRConfig(
        vocab_size=len(uncased), hidden_size=D, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=128, initializer_range=0.4,
    )  # fmt: skip
    generator = BartConfig(
        vocab_size=len(byte_level), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=300, init_std=0.6,
        pad_token_id=PAD, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
        prefix=" ",
    )  # fmt: skip
    config = RagConfig.from_question_encoder_generator_configs(
        question, generator, n_docs=N_DOCS, retrieval_vector_size=D, max_combined_length=120
    )
    torch.manual_seed(seed)
    peer = PEERS[kind](config)
    bias = peer.rag.generator.final_logits_bias
    bias.normal_(std=0.5)
    bias[0, 2] += 4.5  # so that some answers end
    peer.save_pretrained(folder)
    save_tokenizers(folder, byte_level, uncased)


def found(passages: list[Passage], *, rows: int = len(QUERIES)) -> Retrieved:
    """The passages of each query with random vectors."""
    numbers = torch.Generator().manual_seed(4)
    embeds = torch.randn(rows, N_DOCS, D, generator=numbers).numpy()
    chosen = [[passages[(row + k) % len(passages)] for k in range(N_DOCS)] for row in range(rows)]
    rows_of_index = torch.arange(rows * N_DOCS).view(rows, N_DOCS).numpy()
    return Retrieved(chosen, rows_of_index, embeds, embeds[:, :, 0], "none")


def peer_inputs(peer: Any, model: RagModel, queries: list[str], retrieved: Retrieved) -> dict[str, Tensor]:
    """What the peer reads: our generator inputs, and doc_scores of its own question encoder."""
    inputs = model.expand(queries, retrieved)
    assert model.query_encoder is not None
    tokens = model.query_encoder.tokenizer(queries, padding=True, return_tensors="pt")
    with torch.no_grad():
        embeds = peer.rag.question_encoder(**tokens).pooler_output
    return {
        "context_input_ids": inputs.input_ids,
        "context_attention_mask": inputs.attention_mask,
        "doc_scores": torch.einsum("bd,bkd->bk", embeds, torch.tensor(retrieved.doc_embeds)),
    }


def peer_nll(peer: Any, inputs: dict[str, Tensor], labels: Tensor) -> Tensor:
    with torch.no_grad():
        return peer(**inputs, labels=labels.masked_fill(labels < 0, PAD)).loss


def started(labels: Tensor) -> Tensor:
    """Labels as decoder inputs that begin with BART's start token."""
    return torch.cat([torch.full_like(labels[:, :1], 2), labels], 1)


def state(model: RagModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_equal_states(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert [name for name, tensor in first.items() if not torch.equal(tensor, second[name])] == []
