"""Encoders in and out: what transformers wrote is read, what is written transformers reads, with the same vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    DPRContextEncoder,
    DPRQuestionEncoder,
)

from ragx.errors import CheckpointError
from ragx.training.bi_encoder_model import BiEncoder, restore_bi_encoder, save_bi_encoder
from tests.training.conftest import PASSAGES, word_tokenizer

QUERIES = ["capital of peru", "the capital"]
PAIRS = [(p.title, p.text) for p in PASSAGES[:3]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that has transformers write a tiny checkpoint of a kind and names its folder."""
    root = tmp_path_factory.mktemp("sources")
    tokenizer = word_tokenizer([f"{p.title} {p.text}" for p in PASSAGES])
    bert = dict(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    distil = DistilBertConfig(
        vocab_size=len(tokenizer), dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=64,
        initializer_range=0.5,
    )  # fmt: skip

    def make(kind: str) -> Path:
        if not (root / kind).exists():
            torch.manual_seed(3)
            model = BertModel(BertConfig(**bert)) if kind == "bert" else DistilBertModel(distil)
            model.save_pretrained(root / kind)
            tokenizer.save_pretrained(root / kind)
        return root / kind

    return make


def embed(model: BiEncoder) -> tuple[torch.Tensor, torch.Tensor]:
    """q(x) and d(z) of `QUERIES` and `PAIRS`."""
    query, passage = model.query_encoder, model.passage_encoder
    ids = passage.tokenize([title for title, _ in PAIRS], [text for _, text in PAIRS])
    return model.eval()(query.pad(query.tokenize(QUERIES)), passage.pad(ids))


def save(model: BiEncoder, folder: Path) -> Path:
    save_bi_encoder(model, folder, card="# Test\n", facts={"step": 0})
    return folder


def assert_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def transformed(folder: Path, model_class: type, texts: list[str], pairs: list[str] | None = None) -> torch.Tensor:
    """What transformers alone makes of a folder: `pooler_output` of DPR, else the hidden states."""
    inputs = AutoTokenizer.from_pretrained(folder)(texts, pairs, padding=True, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    output = model_class.from_pretrained(folder).eval()(**inputs)
    if "DPR" in model_class.__name__:
        return output.pooler_output
    mask = inputs["attention_mask"].unsqueeze(2)
    return torch.stack([output.last_hidden_state[:, 0], (output.last_hidden_state * mask).sum(1) / mask.sum(1)])


@pytest.mark.parametrize("shared", [False, True])
def test_a_dpr_question_encoder_becomes_a_dpr_pair(parts: Path, tmp_path: Path, shared: bool) -> None:
    model = BiEncoder.from_pretrained(parts / "question", shared=shared)
    queries, passages = embed(model)
    folder = save(model, tmp_path / "out")
    assert_equal(transformed(folder / "query_encoder", DPRQuestionEncoder, QUERIES), queries)
    titles, texts = map(list, zip(*PAIRS, strict=True))
    assert_equal(transformed(folder / "passage_encoder", DPRContextEncoder, titles, texts), passages)
    assert_equal(queries, transformed(parts / "question", DPRQuestionEncoder, QUERIES))
    assert model.shared is shared


def test_a_published_pair_keeps_its_halves(parts: Path, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(parts / "question", parts / "context")
    folder = save(model, tmp_path / "out")
    for part, name in (("query_encoder", "question"), ("passage_encoder", "context")):
        written, read = (load_file(place / "model.safetensors") for place in (folder / part, parts / name))
        assert written.keys() == read.keys()
        assert all(torch.equal(written[key], read[key]) for key in read)


@pytest.mark.parametrize("kind", ["bert", "distil"])
@pytest.mark.parametrize(("pooling", "place"), [("cls", 0), ("mean", 1)])
def test_any_auto_model_goes_in_and_out(
    source: Callable[[str], Path], tmp_path: Path, kind: str, pooling: str, place: int
) -> None:
    model = BiEncoder.from_pretrained(source(kind), pooling=pooling)
    queries, passages = embed(model)
    assert_equal(queries, transformed(source(kind), AutoModel, QUERIES)[place])
    folder = save(model, tmp_path / "out")
    assert_equal(transformed(folder / "query_encoder", AutoModel, QUERIES)[place], queries)
    titles, texts = map(list, zip(*PAIRS, strict=True))
    assert_equal(transformed(folder / "passage_encoder", AutoModel, titles, texts)[place], passages)
    again = BiEncoder.from_pretrained(folder / "query_encoder", folder / "passage_encoder")
    assert again.query_encoder.pooling == pooling
    assert_equal(embed(again)[1], passages)


def test_bert_becomes_dpr_with_the_same_vectors(source: Callable[[str], Path], tmp_path: Path) -> None:
    expected = transformed(source("bert"), AutoModel, QUERIES)[0]
    folder = save(BiEncoder.from_pretrained(source("bert"), as_dpr=True), tmp_path / "out")
    assert_equal(transformed(folder / "query_encoder", DPRQuestionEncoder, QUERIES), expected)
    with pytest.raises(
        CheckpointError, match="encoder must be BERT with pooling cls .* got distilbert with pooling cls"
    ):
        BiEncoder.from_pretrained(source("distil"), as_dpr=True)


def test_towers_are_separate_unless_shared(parts: Path) -> None:
    separate = BiEncoder.from_pretrained(parts / "question")
    shared = BiEncoder.from_pretrained(parts / "question", shared=True)
    assert list(separate.groups()) == ["query_encoder", "passage_encoder"] and list(shared.groups()) == [
        "query_encoder"
    ]
    count = sum(parameter.numel() for parameter in shared.parameters())
    assert sum(parameter.numel() for parameter in separate.parameters()) == 2 * count
    with pytest.raises(CheckpointError, match="passage_encoder must be null where one encoder is shared"):
        BiEncoder.from_pretrained(parts / "question", parts / "context", shared=True)


@pytest.mark.parametrize("shared", [False, True])
def test_weights_are_restored_bit_for_bit(parts: Path, tmp_path: Path, shared: bool) -> None:
    model = BiEncoder.from_pretrained(parts / "question", shared=shared)
    folder = save(model, tmp_path / "out")
    other = BiEncoder.from_pretrained(parts / "question", shared=shared)
    for parameter in other.parameters():
        parameter.data += 1
    restore_bi_encoder(other, folder)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    with pytest.raises(CheckpointError, match=f"must be a bi_encoder with shared {not shared}, got kind 'bi_encoder'"):
        restore_bi_encoder(BiEncoder.from_pretrained(parts / "question", shared=not shared), folder)


def test_other_files_are_not_replaced(parts: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="checkpoint must be a new or empty folder or a checkpoint's"):
        save(BiEncoder.from_pretrained(parts / "question"), tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "mine"
