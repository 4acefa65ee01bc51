"""RAG checkpoints of transformers, imported: the same losses, nothing lost, and every wrong one refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    RagConfig,
    RagRetriever,
    RagTokenizer,
)

from ragx.decoding.beam import DecodingSettings
from ragx.errors import CheckpointError
from ragx.records import Passage
from ragx.retriever.dense import DenseRetriever
from ragx.training.checkpoint import load_checkpoint, save_checkpoint
from ragx.training.rag_checkpoint import import_rag
from tests.parity.published import (
    ANSWERS,
    BOTH,
    N_DOCS,
    PEERS,
    QUERIES,
    D,
    assert_equal_states,
    found,
    peer_inputs,
    peer_nll,
    started,
    state,
)
from tests.scripts import run_script


@BOTH
def test_losses_equal_those_of_transformers(
    published: dict[str, Path], kind: str, tiny_passages: list[Passage]
) -> None:
    peer, model = PEERS[kind].from_pretrained(published[kind]), import_rag(published[kind])
    retrieved = found(tiny_passages)
    inputs = peer_inputs(peer, model, QUERIES, retrieved)
    labels = model.generator.inputs.labels(ANSWERS, max_length=32)
    with torch.no_grad():
        ours = model(QUERIES, ANSWERS, retrieved=retrieved)
    assert ours.doc_scores is not None
    torch.testing.assert_close(ours.doc_scores, inputs["doc_scores"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.nll, peer_nll(peer, inputs, started(labels)), atol=1e-5, rtol=1e-5)


@BOTH
def test_labels_that_begin_with_bos_leave_the_first_step_untrained_there(
    published: dict[str, Path], kind: str, tiny_passages: list[Passage]
) -> None:
    """transformers' own usage is labels `<s> y </s>`, which are its decoder inputs: no start token, BOS not scored."""
    peer, model = PEERS[kind].from_pretrained(published[kind]), import_rag(published[kind])
    retrieved = found(tiny_passages)
    inputs = peer_inputs(peer, model, QUERIES, retrieved)
    labels = model.generator.inputs.labels(ANSWERS, max_length=32)
    assert (labels[:, 0] == 0).all()
    theirs = peer_nll(peer, inputs, labels)
    model.generator.decoder_start_token_id, model.generator.inputs.bos_in_labels = 0, False
    with torch.no_grad():
        after_bos = model(QUERIES, ANSWERS, retrieved=retrieved).nll
    torch.testing.assert_close(theirs, after_bos, atol=1e-5, rtol=1e-5)
    assert ((peer_nll(peer, inputs, started(labels)) - theirs).abs() > 0.1).all()


@BOTH
def test_what_the_configuration_says_is_kept(published: dict[str, Path], kind: str) -> None:
    model = import_rag(published[kind])
    assert (model.kind, model.n_docs, model.training) == (kind, N_DOCS, False)
    inputs = model.generator.inputs
    assert (inputs.template, inputs.max_length) == (" {title} / {text} // {query}", 120)
    assert inputs.bos_in_labels
    assert import_rag(published[kind], max_input_length=50).generator.inputs.max_length == 50
    assert model.query_encoder is not None and model.query_encoder.tower.max_length == 128


def test_inputs_equal_those_of_the_retriever_of_transformers(
    published: dict[str, Path], tiny_passages: list[Passage]
) -> None:
    """Where a title is there, nothing is too long and the query is in lower case."""
    folder = published["rag_token"]
    model, tokenizers = import_rag(folder), RagTokenizer.from_pretrained(folder)
    peer = RagRetriever(
        RagConfig.from_pretrained(folder), tokenizers.question_encoder, tokenizers.generator, index=object(),
        init_retrieval=False,
    )  # fmt: skip
    passages = tiny_passages[:N_DOCS]
    docs = {"title": [p.title for p in passages], "text": [p.text for p in passages]}
    theirs, mask = peer.postprocess_docs([docs], QUERIES[:1], prefix=" ", n_docs=N_DOCS, return_tensors="pt")
    ours = model.generator.inputs.build(QUERIES[:1], [passages])
    width = ours.input_ids.shape[1]
    assert torch.equal(theirs[:, :width], ours.input_ids) and torch.equal(mask[:, :width], ours.attention_mask)
    assert not mask[:, width:].any()


@BOTH
def test_an_imported_model_is_an_ordinary_checkpoint(
    published: dict[str, Path], kind: str, tiny_passages: list[Passage], tmp_path: Path
) -> None:
    model = import_rag(published[kind])
    loaded = load_checkpoint(save_checkpoint(model, tmp_path / "ours"))
    assert_equal_states(state(model), state(loaded))
    retrieved = found(tiny_passages)
    with torch.no_grad():
        assert torch.equal(
            loaded(QUERIES, ANSWERS, retrieved=retrieved).nll, model(QUERIES, ANSWERS, retrieved=retrieved).nll
        )


def test_a_retriever_is_taken_along(published: dict[str, Path], retriever: DenseRetriever) -> None:
    model = import_rag(published["rag_sequence"], retriever=retriever)
    answered = model.generate(QUERIES, decoder="thorough", settings=DecodingSettings(num_beams=2, max_length=4))
    assert [len(answer.passages) for answer in answered] == [N_DOCS] * len(QUERIES)


def test_the_script_writes_an_ordinary_checkpoint_once(
    published: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"source={published['rag_token']}", "directory=ours", "max_input_length=90"]
    assert run_script("import_checkpoint", *given, folder=tmp_path) == 0
    assert "ours: rag_token over 3 passages" in capsys.readouterr().out
    loaded = load_checkpoint(tmp_path / "ours", kind="rag_token")
    assert_equal_states(state(loaded), state(import_rag(published["rag_token"])))
    assert loaded.generator.inputs.max_length == 90 and loaded.generator.inputs.bos_in_labels
    assert run_script("import_checkpoint", *given, folder=tmp_path) == 2
    assert "directory must be new, got" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------- wrong ones


@pytest.fixture
def damaged(published: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the RAG-Token folder, to be spoilt."""
    return Path(shutil.copytree(published["rag_token"], tmp_path / "damaged"))


@pytest.mark.parametrize(("kind", "wanted"), [("rag_token", "rag_sequence"), ("rag_sequence", "rag_token")])
def test_a_checkpoint_of_one_kind_is_not_loaded_as_the_other(
    published: dict[str, Path], kind: str, wanted: str
) -> None:
    with pytest.raises(CheckpointError, match=f"must be a {wanted} checkpoint, got {kind}. Load it as {kind}"):
        import_rag(published[kind], kind=wanted)
    assert import_rag(published[kind], kind=kind).kind == kind


def test_a_checkpoint_without_kind_needs_one(damaged: Path) -> None:
    edit(damaged, architectures=["RagModel"])
    with pytest.raises(CheckpointError, match=r"must name its kind in config.json, got \['RagModel'\]. Pass kind"):
        import_rag(damaged)
    assert import_rag(damaged, kind="rag_sequence").kind == "rag_sequence"
    with pytest.raises(CheckpointError, match="kind must be one of rag_sequence, rag_token .*, got 'closed_book'"):
        import_rag(damaged, kind="closed_book")


def edit(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def respoil(folder: Path, change: Any) -> None:
    """Writes the weights again as `change` leaves them."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    "key",
    [
        "rag.question_encoder.question_encoder.bert_model.encoder.layer.0.output.dense.weight",
        "rag.generator.model.decoder.layers.0.fc1.bias",
        "rag.generator.model.shared.weight",
    ],
)
def test_a_missing_key_is_named(damaged: Path, key: str) -> None:
    respoil(damaged, lambda weights: weights.pop(key))
    with pytest.raises(CheckpointError, match=f"must hold the weights of RagTokenForGeneration, got missing: .*{key}"):
        import_rag(damaged)


def test_a_missing_bias_of_the_logits_is_zero_as_in_transformers(damaged: Path) -> None:
    respoil(damaged, lambda weights: weights.pop("rag.generator.final_logits_bias"))
    assert not import_rag(damaged).generator.model.final_logits_bias.any()


@pytest.mark.parametrize("key", ["rag.generator.model.decoder.layers.7.fc1.bias", "rag.ctx_encoder.weight"])
def test_a_surplus_key_is_named(damaged: Path, key: str) -> None:
    respoil(damaged, lambda weights: weights.update({key: torch.zeros(3)}))
    with pytest.raises(CheckpointError, match=f"must hold the weights of RagTokenForGeneration, got surplus: {key}"):
        import_rag(damaged)


def test_a_weight_of_another_shape_is_an_error(damaged: Path) -> None:
    key = "rag.generator.model.decoder.layers.0.fc1.bias"
    respoil(damaged, lambda weights: weights.update({key: torch.zeros(3)}))
    with pytest.raises(CheckpointError, match="must fit its config.json, got: .*"):
        import_rag(damaged)


def test_what_dpr_held_in_2020_and_never_read_is_passed_over(damaged: Path) -> None:
    before = state(import_rag(damaged))
    prefix = "rag.question_encoder.question_encoder.bert_model."
    old = {
        f"{prefix}pooler.dense.weight": torch.zeros(D, D),
        f"{prefix}pooler.dense.bias": torch.zeros(D),
        f"{prefix}embeddings.position_ids": torch.arange(128)[None],
        "rag.generator.lm_head.weight": load_file(damaged / "model.safetensors")["rag.generator.model.shared.weight"],
    }
    respoil(damaged, lambda weights: weights.update(old))
    assert_equal_states(before, state(import_rag(damaged)))


def test_pickled_weights_are_not_read(damaged: Path) -> None:
    (damaged / "model.safetensors").rename(damaged / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"must hold model.safetensors.*convert it once: transformers\.RagToken"):
        import_rag(damaged)


@pytest.mark.parametrize("part", ["generator_tokenizer", "question_encoder_tokenizer", "config.json"])
def test_a_part_that_is_not_there_is_named(damaged: Path, part: str) -> None:
    shutil.rmtree(damaged / part) if (damaged / part).is_dir() else (damaged / part).unlink()
    with pytest.raises(CheckpointError, match=f"must be a RAG checkpoint with {part}, got"):
        import_rag(damaged)


def test_another_model_is_not_a_rag_checkpoint(tiny_bart: Path) -> None:
    with pytest.raises(CheckpointError, match="must be a RAG checkpoint, got bart"):
        import_rag(tiny_bart)


def test_a_question_encoder_that_is_not_dpr_is_refused(damaged: Path) -> None:
    config = json.loads((damaged / "config.json").read_text())["question_encoder"]
    edit(damaged, question_encoder={**config, "model_type": "bert"})
    with pytest.raises(CheckpointError, match="question_encoder must be dpr, got bert"):
        import_rag(damaged)
