"""Checkpoints: whole, movable, each half alone, nothing pickled, and every wrong one named."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder

from ragx.decoding.beam import DecodingSettings
from ragx.errors import CheckpointError, IndexMismatchError
from ragx.model import RagModel
from ragx.records import Example
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.training.checkpoint import (
    TrainingState,
    load_checkpoint,
    read_record,
    read_state,
    restore_weights,
    save_checkpoint,
)
from tests.training.conftest import PASSAGES

MakeModel = Callable[..., RagModel]
STATE = TrainingState({"step": 3}, {"exp_avg/generator.weight": torch.arange(3.0)})


def read(model: RagModel, examples: list[Example]) -> tuple[torch.Tensor, list[tuple[str, ...]]]:
    """Losses and answers of a model in eval mode."""
    queries = [example.query for example in examples]
    with torch.no_grad():
        nll = model.eval()(queries, [example.answers[0] for example in examples]).nll
    answered = model.generate(queries, decoder="thorough", settings=DecodingSettings(num_beams=2, max_length=4))
    return nll, [answer.texts for answer in answered]


@pytest.fixture
def saved(make_model: MakeModel, tmp_path: Path) -> Path:
    return save_checkpoint(make_model(), tmp_path / "checkpoint", state=STATE)


def test_a_moved_checkpoint_gives_the_same_losses_and_answers_without_a_network(
    make_model: MakeModel, examples: list[Example], parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(n_docs=2)
    model.max_target_length = 4
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    save_checkpoint(model, tmp_path / "here" / "checkpoint")
    moved = Path(shutil.move(tmp_path / "here", tmp_path / "there")) / "checkpoint"
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a network was used"))
    loaded = load_checkpoint(moved, retriever=DenseRetriever.open(parts / "index"))
    assert (loaded.n_docs, loaded.max_target_length, loaded.training) == (2, 4, False)
    nll, answers = read(model, examples)
    loaded_nll, loaded_answers = read(loaded, examples)
    assert torch.equal(nll, loaded_nll)
    assert answers == loaded_answers


def test_each_half_opens_in_transformers_alone(saved: Path, make_model: MakeModel) -> None:
    generator = AutoModelForSeq2SeqLM.from_pretrained(saved / "generator")
    encoder = DPRQuestionEncoder.from_pretrained(saved / "query_encoder")
    model = make_model()
    assert model.query_encoder is not None
    assert torch.equal(generator.get_input_embeddings().weight, model.generator.model.get_input_embeddings().weight)
    ids = AutoTokenizer.from_pretrained(saved / "query_encoder")(["capital of peru"], return_tensors="pt")
    with torch.no_grad():
        theirs, ours = encoder(**ids).pooler_output, model.query_encoder.embed(["capital of peru"])
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-6)


def test_nothing_is_pickled_and_no_path_is_absolute(saved: Path) -> None:
    files = [file for file in saved.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".json", ".safetensors", ".md"}
    for file in files:
        if file.suffix != ".safetensors":
            assert str(saved.parent) not in file.read_text(encoding="utf-8"), file


def test_template_lengths_and_freezing_survive(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model()
    model.freeze_query_encoder = True
    record = read_record(save_checkpoint(model, tmp_path / "c"))
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded.freeze_query_encoder
    assert loaded.generator.inputs.template == model.generator.inputs.template
    assert loaded.generator.inputs.max_length == 60
    assert record["index"]["edition"] == "1"


def test_frozen_is_what_was_said_and_not_what_happens_to_need_no_gradient(
    make_model: MakeModel, tmp_path: Path
) -> None:
    model = make_model()
    model.requires_grad_(False)  # as one does to generate
    assert not model.freeze_query_encoder
    loaded = load_checkpoint(save_checkpoint(model, tmp_path / "c"))
    assert not loaded.freeze_query_encoder and all(p.requires_grad for p in loaded.parameters())
    model.freeze_query_encoder = True
    assert read_record(save_checkpoint(model, tmp_path / "c"))["freeze_query_encoder"] is True


def test_closed_book_has_one_half(make_model: MakeModel, tmp_path: Path) -> None:
    folder = save_checkpoint(make_model("closed_book"), tmp_path / "c")
    assert not (folder / "query_encoder").exists()
    assert load_checkpoint(folder).kind == "closed_book"


@pytest.mark.parametrize("part", ["generator", "query_encoder"])
@pytest.mark.parametrize("lost", ["", "model.safetensors", "config.json"])
def test_a_missing_half_is_named(saved: Path, part: str, lost: str) -> None:
    shutil.rmtree(saved / part) if not lost else (saved / part / lost).unlink()
    with pytest.raises(CheckpointError, match=f"must hold {part}/ with config.json and safetensors"):
        load_checkpoint(saved)


@pytest.mark.parametrize("part", ["generator", "query_encoder"])
def test_a_missing_weight_is_named(saved: Path, part: str) -> None:
    file = saved / part / "model.safetensors"
    weights = load_file(file)
    lost = next(name for name in weights if "layer" in name and name.endswith("weight"))
    del weights[lost]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=lost.split("layer", 1)[1].replace(".", r"\.")):
        load_checkpoint(saved)


def test_another_kind_is_refused(saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a rag_token checkpoint, got rag_sequence\. Load it as rag_sequence\.$"):
        load_checkpoint(saved, kind="rag_token")
    assert load_checkpoint(saved, kind="rag_sequence").kind == "rag_sequence"


def test_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere must be a checkpoint with ragx\.json, got none"):
        load_checkpoint(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"ragx\.json must be JSON"),
        ("[1, 2]", r"ragx\.json must be a JSON object, got a list"),
        ("{}", r"ragx\.json: format must be 1, got None"),
        ('{"format": 9}', r"ragx\.json: format must be 1, got 9"),
        ('{"format": 1}', r"ragx\.json: kind must be one of rag_sequence, .*, got nothing"),
    ],
)
def test_a_damaged_record_is_named(saved: Path, content: str, message: str) -> None:
    (saved / "ragx.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", 7),
        ("kind", ["rag_token"]),
        ("n_docs", "5"),
        ("n_docs", True),
        ("max_target_length", 0),
        ("parts", ["generator"]),
        ("parts", {"query_encoder": "QueryEncoder"}),
        ("parts", {"generator": "Seq2SeqGenerator", "../other": "x"}),
        ("generator", {"max_length": 60}),
        ("generator", {"max_length": 60, "template": None, "bos_in_labels": False}),
        ("freeze_query_encoder", "no"),
        ("index", "flat"),
        ("index", {"path": "x"}),
        ("versions", None),
    ],
)
def test_an_odd_value_in_the_record_is_named_with_its_key(saved: Path, key: str, value: object) -> None:
    record = json.loads((saved / "ragx.json").read_text())
    (saved / "ragx.json").write_text(json.dumps({**record, key: value}))
    with pytest.raises(CheckpointError, match=rf"ragx\.json: {key} must .*, got {re.escape(json.dumps(value))}"):
        read_record(saved)


def test_a_file_in_place_of_a_checkpoint_is_named(saved: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"checkpoint must be a folder, got the file .*ragx\.json\. Give the folder"
    ):
        load_checkpoint(saved / "ragx.json")
    with pytest.raises(CheckpointError, match=r"must be a checkpoint with ragx\.json, got none"):
        load_checkpoint(saved / "generator")


def test_a_checkpoint_never_takes_the_place_of_anything_else(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model("closed_book")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(
        CheckpointError, match=r"a new or empty folder or a checkpoint's, got .*thesis with chapter\.tex"
    ):
        save_checkpoint(model, tmp_path / "thesis")
    with pytest.raises(CheckpointError, match=r"must be a folder, got the file .*chapter\.tex"):
        save_checkpoint(model, tmp_path / "thesis" / "chapter.tex")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "empty", tmp_path / "new"):  # twice: a checkpoint is replaced
        assert read_record(save_checkpoint(model, folder))["kind"] == "closed_book"


def test_state_comes_back_as_it_was(saved: Path) -> None:
    state = read_state(saved)
    assert state.record == STATE.record
    assert torch.equal(state.tensors["exp_avg/generator.weight"], torch.arange(3.0))


def test_a_checkpoint_without_state_cannot_be_resumed(make_model: MakeModel, tmp_path: Path) -> None:
    folder = save_checkpoint(make_model("closed_book"), tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"must be a checkpoint with state\.json"):
        read_state(folder)


def test_damaged_optimizer_state_is_named(saved: Path) -> None:
    (saved / "optimizer.safetensors").write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors must be the optimizer's tensors"):
        read_state(saved)


def test_a_write_that_fails_leaves_the_old_checkpoint(
    saved: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {file: file.read_bytes() for file in saved.rglob("*") if file.is_file()}

    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("ragx.training.checkpoint.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(make_model(), saved, state=STATE)
    assert {file: file.read_bytes() for file in saved.rglob("*") if file.is_file()} == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_checkpoint_that_a_kill_left_aside_is_found(saved: Path) -> None:
    saved.rename(saved.parent / f".{saved.name}.replaced")
    assert load_checkpoint(saved).kind == "rag_sequence"


def test_restoring_keeps_the_parameters_and_brings_back_the_bits(saved: Path, make_model: MakeModel) -> None:
    model = make_model()
    before = {name: (parameter, parameter.clone()) for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    restore_weights(model, saved)
    for name, parameter in model.named_parameters():
        assert parameter is before[name][0]
        assert torch.equal(parameter, before[name][1])


def test_restoring_into_another_model_is_refused(saved: Path, make_model: MakeModel) -> None:
    with pytest.raises(CheckpointError, match="model must have a query_encoder"):
        restore_weights(make_model("closed_book"), saved)


def test_another_edition_is_a_hot_swap_and_another_encoder_an_error(saved: Path, parts: Path, tmp_path: Path) -> None:
    same = PassageEncoder.from_pretrained(parts / "context")
    other = DPRContextEncoder.from_pretrained(parts / "context")
    torch.nn.init.ones_(other.ctx_encoder.bert_model.embeddings.word_embeddings.weight)
    other.save_pretrained(tmp_path / "other")
    AutoTokenizer.from_pretrained(parts / "context").save_pretrained(tmp_path / "other")
    encoders = {"2": same, "3": PassageEncoder.from_pretrained(tmp_path / "other")}
    for edition, encoder in encoders.items():
        folder = tmp_path / edition
        build_index(PASSAGES[:4], passage_encoder=encoder, directory=folder, edition=edition, progress=False)
    assert load_checkpoint(saved, retriever=DenseRetriever.open(tmp_path / "2")).retriever is not None
    with pytest.raises(IndexMismatchError, match="must be over vectors of passage encoder"):
        load_checkpoint(saved, retriever=DenseRetriever.open(tmp_path / "3"))


def test_the_card_says_what_it_is_and_what_the_caller_adds(make_model: MakeModel, tmp_path: Path) -> None:
    card = {"Data": "Six capitals.", "Metrics": {"exact match | dev": 0.5}, "Limits": ["tiny"]}
    folder = save_checkpoint(make_model("rag_token"), tmp_path / "c", card=card)
    text = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "# RAG-Token" in text
    assert "## Data\n\nSix capitals.\n" in text
    assert "| exact match \\| dev | 0.5 |" in text
    assert "* tiny" in text
    assert json.loads((folder / "ragx.json").read_text())["index"]["fingerprint"] in text
