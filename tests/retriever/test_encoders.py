"""q(x) and d(z) are exactly transformers' vectors, and nothing about batching changes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartModel,
    BertModel,
    DPRContextEncoder,
    DPRQuestionEncoder,
)

from ragx.errors import CheckpointError, ConfigError, ShapeError
from ragx.records import Passage
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder

QUERIES = ["Who leads Peru?", "what is the capital of France since 2016", "river", ""]


def test_queries_equal_dpr(checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint("question")
    inputs = AutoTokenizer.from_pretrained(folder)(QUERIES, padding=True, return_tensors="pt")
    expected = DPRQuestionEncoder.from_pretrained(folder)(**inputs).pooler_output
    encoder = QueryEncoder.from_pretrained(folder)
    torch.testing.assert_close(encoder.embed(QUERIES), expected, atol=1e-6, rtol=0)
    assert encoder.embedding_size == expected.shape[1] == 16


@pytest.mark.parametrize("pooling", ["cls", "mean", "unit_mean"])
def test_queries_equal_bert(checkpoint: Callable[..., Path], pooling: str) -> None:
    folder = checkpoint("bert")
    model, tokenizer = BertModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    embeds = QueryEncoder.from_pretrained(folder, pooling=pooling).embed(QUERIES)
    for query, embed in zip(QUERIES, embeds, strict=True):
        hidden = model(**tokenizer(query, return_tensors="pt")).last_hidden_state[0]  # alone, hence unpadded
        expected = hidden[0] if pooling == "cls" else hidden.mean(0)
        if pooling == "unit_mean":
            expected = expected / expected.square().sum().sqrt()
        torch.testing.assert_close(embed, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("kind", "size"), [("context", 16), ("projected", 8)])
def test_passages_equal_dpr_one_by_one(
    checkpoint: Callable[..., Path], passages: list[Passage], kind: str, size: int
) -> None:
    folder = checkpoint(kind)
    model, tokenizer = DPRContextEncoder.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    embeds = PassageEncoder.from_pretrained(folder).encode(passages, batch_size=2)
    assert embeds.shape == (6, size) and embeds.dtype == np.float32
    for passage, embed in zip(passages, embeds, strict=True):
        pair = (passage.title, passage.text) if passage.title else (passage.text,)
        expected = model(tokenizer(*pair, return_tensors="pt")["input_ids"]).pooler_output
        np.testing.assert_allclose(embed, expected[0].detach().numpy(), atol=1e-6, rtol=1e-6)


def test_batch_size_and_company_change_no_vector(checkpoint: Callable[..., Path], passages: list[Passage]) -> None:
    encoder = PassageEncoder.from_pretrained(checkpoint("context"))
    alone = np.concatenate([encoder.encode([passage]) for passage in passages])
    for batch_size in (1, 4, 64):
        np.testing.assert_allclose(encoder.encode(passages, batch_size=batch_size), alone, atol=1e-6, rtol=0)
    # More padding than any batch of ours would add.
    tower = QueryEncoder.from_pretrained(checkpoint("question")).tower
    ids, mask = tower.pad(tower.tokenize(["who leads peru"]))
    wide = torch.nn.functional.pad(ids, (0, 9)), torch.nn.functional.pad(mask, (0, 9))
    torch.testing.assert_close(tower(*wide), tower(ids, mask), atol=1e-6, rtol=0)


def test_windows_keep_the_order(
    checkpoint: Callable[..., Path], passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragx.retriever.passage_encoder.BATCHES_PER_WINDOW", 1)
    encoder = PassageEncoder.from_pretrained(checkpoint("context"))
    expected = np.concatenate([encoder.encode([passage]) for passage in passages])
    np.testing.assert_allclose(encoder.encode(passages, batch_size=4), expected, atol=1e-6, rtol=0)


def test_long_input_is_cut_to_max_length(checkpoint: Callable[..., Path]) -> None:
    encoder = QueryEncoder.from_pretrained(checkpoint("question"), max_length=6)
    assert [len(ids) for ids in encoder.tower.tokenize(["the river " * 50, "peru"])] == [6, 3]
    torch.testing.assert_close(encoder.embed(["the river is the capital of peru"]), encoder.embed(["the river is the"]))


def test_every_query_tensor_gets_a_gradient(checkpoint: Callable[..., Path]) -> None:
    for kind in ("question", "bert"):
        encoder = QueryEncoder.from_pretrained(checkpoint(kind)).train()
        encoder.embed(QUERIES).pow(3).sum().backward()
        still = [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
        # The key bias shifts all attention scores of a token alike: its gradient is zero up to rounding, or exactly.
        assert [name for name in still if not name.endswith("key.bias")] == []


def test_passage_encoder_is_frozen(checkpoint: Callable[..., Path], passages: list[Passage]) -> None:
    encoder = PassageEncoder.from_pretrained(checkpoint("context"))
    before = encoder.fingerprint()
    first = encoder.encode(passages)
    assert not isinstance(encoder, torch.nn.Module)
    assert not any(parameter.requires_grad for parameter in encoder._tower.parameters())
    assert not any(module.training for module in encoder._tower.modules())
    assert encoder.encode(passages).tobytes() == first.tobytes()
    assert encoder.fingerprint() == before


@pytest.mark.parametrize("kind", ["question", "bert"])
def test_saved_encoder_is_the_same_and_opens_in_transformers(
    checkpoint: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    pooling = "mean" if kind == "bert" else None
    encoder = QueryEncoder.from_pretrained(checkpoint(kind), pooling=pooling, max_length=20)
    encoder.embed(QUERIES)  # leaves padding and truncation switched on in the tokenizer
    encoder.save_pretrained(tmp_path / "saved")
    again = QueryEncoder.from_pretrained(tmp_path / "saved")
    assert again.fingerprint() == encoder.fingerprint()
    assert (again.tower.pooling, again.tower.max_length) == (pooling or "cls", 20)
    assert torch.equal(again.embed(QUERIES), encoder.embed(QUERIES))
    encoder.save_pretrained(tmp_path / "twice")
    encoder.save_pretrained(tmp_path / "twice")
    for file in (tmp_path / "saved").iterdir():
        assert file.read_bytes() == (tmp_path / "twice" / file.name).read_bytes()
    if kind == "question":
        inputs = AutoTokenizer.from_pretrained(tmp_path / "saved")(QUERIES, padding=True, return_tensors="pt")
        outputs = DPRQuestionEncoder.from_pretrained(tmp_path / "saved")(**inputs).pooler_output
        torch.testing.assert_close(outputs, encoder.embed(QUERIES), atol=1e-6, rtol=0)


def test_fingerprint_names_everything_that_decides_a_vector(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = checkpoint("bert")
    base = QueryEncoder.from_pretrained(folder)
    fingerprints = {
        "base": base.fingerprint(),
        "weights": QueryEncoder.from_pretrained(checkpoint("bert", 1)).fingerprint(),
        "pooling": QueryEncoder.from_pretrained(folder, pooling="mean").fingerprint(),
        "max_length": QueryEncoder.from_pretrained(folder, max_length=9).fingerprint(),
    }
    other_words = shutil.copytree(folder, tmp_path / "words")
    tokenizer_json = (other_words / "tokenizer.json").read_text(encoding="utf-8")
    (other_words / "tokenizer.json").write_text(tokenizer_json.replace('"lima"', '"quito"'), encoding="utf-8")
    fingerprints["tokenizer"] = QueryEncoder.from_pretrained(other_words).fingerprint()
    heads = shutil.copytree(folder, tmp_path / "heads")
    config = (heads / "config.json").read_text(encoding="utf-8")
    (heads / "config.json").write_text(config.replace('"num_attention_heads": 2', '"num_attention_heads": 4'), "utf-8")
    fingerprints["config"] = QueryEncoder.from_pretrained(heads).fingerprint()
    assert len(set(fingerprints.values())) == len(fingerprints)
    base.embed(QUERIES)
    assert base.fingerprint() == fingerprints["base"] == QueryEncoder.from_pretrained(folder).fingerprint()
    with torch.no_grad():
        next(base.parameters()).view(-1)[0] += 1e-3
    assert base.fingerprint() != fingerprints["base"]


def test_shared_tower(checkpoint: Callable[..., Path]) -> None:
    """A DPR folder opens as what it is, whichever half asks: no weight is ever made up."""
    embeds = PassageEncoder.from_pretrained(checkpoint("question")).encode([Passage("a", "1", "0", "", "who leads")])
    expected = QueryEncoder.from_pretrained(checkpoint("question")).embed(["who leads"])
    np.testing.assert_allclose(embeds, expected.detach().numpy(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("text", ["{", "[]", '{"max_length": "abc"}', '{"max_length": true}', '{"pooling": 1}'])
def test_damaged_settings_are_refused(checkpoint: Callable[..., Path], tmp_path: Path, text: str) -> None:
    folder = shutil.copytree(checkpoint("context"), tmp_path / "damaged")
    (folder / "ragx_encoder.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"ragx_encoder.json must hold pooling, a name, and max_length, a number"):
        PassageEncoder.from_pretrained(folder)


def test_missing_weights_are_refused(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    # A context encoder whose config claims to be a question encoder: every weight would be random.
    folder = shutil.copytree(checkpoint("context"), tmp_path / "mixed")
    config = (folder / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(config.replace("DPRContextEncoder", "DPRQuestionEncoder"), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"must hold every weight of DPRQuestionEncoder, got .*mixed without"):
        QueryEncoder.from_pretrained(folder)


def test_wrong_checkpoints(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"passage_encoder must be a folder or hub name .*nowhere"):
        PassageEncoder.from_pretrained(tmp_path / "nowhere")
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2)
    config = BartConfig(vocab_size=41, d_model=8, encoder_layers=1, decoder_layers=1, **heads)
    BartModel(config).save_pretrained(tmp_path / "b")
    AutoTokenizer.from_pretrained(checkpoint("bert")).save_pretrained(tmp_path / "b")
    with pytest.raises(CheckpointError, match="must be an encoder alone, got a bart with a decoder"):
        QueryEncoder.from_pretrained(tmp_path / "b")


def test_wrong_settings(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pooling must be one of cls, mean, unit_mean, got 'max'"):
        QueryEncoder.from_pretrained(checkpoint("bert"), pooling="max")
    with pytest.raises(ConfigError, match="pooling must be cls for a DPR encoder, got 'mean'"):
        QueryEncoder.from_pretrained(checkpoint("question"), pooling="mean")
    with pytest.raises(ConfigError, match="max_length must lie between 3 and the encoder's 64 positions, got 65"):
        QueryEncoder.from_pretrained(checkpoint("question"), max_length=65)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="directory must be empty or an encoder's"):
        QueryEncoder.from_pretrained(checkpoint("question")).save_pretrained(tmp_path)


def test_wrong_input(checkpoint: Callable[..., Path], passages: list[Passage]) -> None:
    encoder = QueryEncoder.from_pretrained(checkpoint("question"))
    with pytest.raises(ShapeError, match="queries must be a sequence of strings, got the string 'peru'"):
        encoder.embed("peru")
    with pytest.raises(ShapeError, match="at least one text, got none"):
        encoder.embed([])
    frozen = PassageEncoder.from_pretrained(checkpoint("context"))
    with pytest.raises(ShapeError, match="batch_size must be >= 1, got 0"):
        frozen.encode(passages, batch_size=0)
    with pytest.raises(ShapeError, match=r"out must be float32 of shape \(6, 16\), got float64"):
        frozen.encode(passages, out=np.empty((6, 16)))
    with torch.no_grad():
        amazon = AutoTokenizer.from_pretrained(checkpoint("context")).convert_tokens_to_ids("amazon")
        frozen._tower.model.ctx_encoder.bert_model.embeddings.word_embeddings.weight[amazon] = float("nan")
    with pytest.raises(ShapeError, match=r"must be finite, got NaN or infinity for \('wiki:3', '2016-12', '0'\)"):
        frozen.encode(passages, batch_size=4)


@pytest.mark.parametrize(
    ("kind", "pooling"), [("context", "cls"), ("projected", "cls"), ("bert", "cls"), ("bert", "mean")]
)
def test_the_last_layer_computes_what_is_read_and_no_more(
    checkpoint: Callable[..., Path], passages: list[Passage], kind: str, pooling: str
) -> None:
    encoder = PassageEncoder.from_pretrained(checkpoint(kind), pooling=pooling)
    tower = encoder._tower
    bert = tower.model.ctx_encoder.bert_model if tower.is_dpr else tower.model
    widths: list[int] = []
    watch = bert.encoder.layer[-1].output.register_forward_hook(lambda *states: widths.append(states[2].shape[1]))
    found = encoder.encode(passages)
    assert (widths == [1]) == (pooling == "cls")
    with torch.no_grad():
        ids = tower.tokenize([p.title for p in passages], [p.text for p in passages])
        whole = tower(*tower.pad(ids))
    assert widths[1] > 1  # afterwards the tower is as it was
    watch.remove()
    np.testing.assert_allclose(found, whole.numpy(), atol=1e-6, rtol=1e-6)
