"""Bad input and broken writes below the scripts: what is said, and that nothing half-written is taken for whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import DictConfig
from transformers.utils import logging as transformers_logging

from ragx import build, config
from ragx.data.prediction_stream import PredictionStream
from ragx.data.predictions import read_predictions
from ragx.errors import CheckpointError, ConfigError, DataError, RagxError
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.jsonl import read_rows
from ragx.limits import output, weights
from ragx.model import RagModel
from ragx.records import Example, Passage, Prediction
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.schema import EditionConfig
from ragx.training.checkpoint import load_checkpoint, save_checkpoint
from tests.scripts import run_script

resource = pytest.importorskip("resource", reason="needs limits of a process, which this system has not")
EXAMPLES = [Example(str(i), f"Who leads {i}?", ("Lima",)) for i in range(4)]
PROVENANCE = {"kind": "closed_book"}


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow beyond 2 KiB: the system takes a part of a write and then refuses, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def prediction(example: Example, *, length: int = 4) -> Prediction:
    return Prediction(example.id, example.query, "a" * length, -1.0, (("a", -1.0),), (), (), 0, PROVENANCE)


@pytest.fixture
def encoder(tiny_dpr: Path) -> PassageEncoder:
    return PassageEncoder.from_pretrained(tiny_dpr / "passage_encoder")


def test_an_index_never_takes_the_place_of_other_files(
    tmp_path: Path, encoder: PassageEncoder, tiny_passages: list[Passage]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    for target, got in ((tmp_path / "mine", "mine with thesis.txt"), (tmp_path / "mine" / "thesis.txt", "the file")):
        with pytest.raises(ConfigError, match=f"index.directory must be new, empty or an index, got .*{got}"):
            build_index(tiny_passages, passage_encoder=encoder, directory=target, edition="1", progress=False)
        with pytest.raises(ConfigError, match=f"index.directory must be new, empty or an index, got .*{got}"):
            BM25Retriever.build(tiny_passages, target, edition="1")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine" and names(tmp_path) == ["mine"]


def test_a_full_disk_keeps_the_older_index(
    tmp_path: Path, encoder: PassageEncoder, tiny_passages: list[Passage], request: pytest.FixtureRequest
) -> None:
    target = tmp_path / "index"
    build_index(tiny_passages[:2], passage_encoder=encoder, directory=target, edition="old", progress=False)
    request.getfixturevalue("small_disk")
    with pytest.raises(OSError, match="File too large"):
        build_index(tiny_passages, passage_encoder=encoder, directory=target, edition="new", progress=False)
    assert names(tmp_path) == ["index"]
    assert DenseRetriever.open(target).edition == "old"


def test_a_full_disk_keeps_the_older_checkpoint(
    tmp_path: Path, generator: Seq2SeqGenerator, request: pytest.FixtureRequest
) -> None:
    model = RagModel(kind="closed_book", generator=generator)
    save_checkpoint(model, tmp_path / "last")
    request.getfixturevalue("small_disk")
    with pytest.raises(OSError, match="File too large"):
        save_checkpoint(model, tmp_path / "last")
    assert names(tmp_path) == ["last"]
    assert load_checkpoint(tmp_path / "last").kind == "closed_book"


def test_a_disk_that_fills_up_during_the_last_batch_is_not_taken_for_the_end(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "p.jsonl"
    stream = PredictionStream(path, EXAMPLES, provenance=PROVENANCE, batch_size=2)
    request.getfixturevalue("small_disk")
    with pytest.raises(OSError, match=r"File too large: '.*p\.jsonl\.partial'"), stream.open() as handle:
        stream.append(handle, map(prediction, EXAMPLES[:2]))
        stream.append(handle, (prediction(example, length=1500) for example in EXAMPLES[2:]))
    assert stream.partial.stat().st_size == 2048 and not path.exists() and not stream.complete
    again = PredictionStream(path, EXAMPLES, provenance=PROVENANCE, batch_size=2)
    assert again.done == 2
    with again.open() as handle:
        again.append(handle, map(prediction, EXAMPLES[2:]))
    again.finish()
    assert read_predictions(path) == [prediction(example) for example in EXAMPLES] and names(tmp_path) == ["p.jsonl"]


def test_two_runs_do_not_write_to_one_predictions_file(tmp_path: Path) -> None:
    first = PredictionStream(tmp_path / "p.jsonl", EXAMPLES, provenance=PROVENANCE, batch_size=2)
    with first.open() as handle:
        first.append(handle, map(prediction, EXAMPLES[:2]))
        second = PredictionStream(tmp_path / "p.jsonl", EXAMPLES, provenance=PROVENANCE, batch_size=2)
        with pytest.raises(RagxError, match=r"p\.jsonl\.partial must have one writer, got another run's file"):
            first.append(handle, map(prediction, EXAMPLES[2:]))
    assert second.done == 2


def test_weights_that_are_no_generator_are_an_error_that_names_them(tiny_dpr: Path, tmp_path: Path) -> None:
    for name in (tiny_dpr / "query_encoder", tmp_path / "none"):
        with pytest.raises(CheckpointError, match=f"generator must be a folder or hub name of a BART or T5.*{name}"):
            Seq2SeqGenerator.from_pretrained(name)


@pytest.mark.parametrize("size", [0, 1000])
def test_weights_that_a_copy_broke_off_are_named(tiny_bart: Path, tiny_dpr: Path, tmp_path: Path, size: int) -> None:
    for source, load in ((tiny_bart, Seq2SeqGenerator), (tiny_dpr / "passage_encoder", PassageEncoder)):
        broken = shutil.copytree(source, tmp_path / source.name)
        os.truncate(broken / "model.safetensors", size)
        with pytest.raises(CheckpointError, match=rf"must be a folder or hub name .*{broken}.*header"):
            load.from_pretrained(broken)


def test_a_hot_swap_needs_two_editions(tiny_index: Path) -> None:
    side = EditionConfig(index=str(tiny_index), questions="world_leaders:test")
    with pytest.raises(ConfigError, match="must be of two editions, got '2016-12' twice"):
        build.editions(side, side)


@pytest.mark.parametrize("text", ['{"id": 1, "text": ', '{"id": 1, "text": \r'])
def test_a_column_is_one_of_the_line_that_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"{{}}\n{text}\n", newline="")
    with pytest.raises(
        DataError, match=r"a\.jsonl:2: line must be one JSON object, got Expecting value at column 1[89]"
    ):
        list(read_rows(tmp_path / "a.jsonl"))


def test_only_what_may_be_a_name_is_asked_of_the_hub(tmp_path: Path) -> None:
    holds = weights().metadata["holds"]
    assert all(map(holds, ["bart-nano", "facebook/bart-large", "google-t5/t5_v1.1", str(tmp_path)]))
    assert not any(map(holds, ["./none", "../none", "/none", "~/none", "a/b/c", "none/", str(tmp_path / "none")]))


def test_an_output_may_be_new_or_a_file_but_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    holds = output().metadata["holds"]
    assert holds(str(tmp_path / "a.json")) and holds(str(tmp_path / "new" / "b.json")) and not holds(str(tmp_path))


def test_scripts_show_their_own_bars_alone() -> None:
    shown: list[bool] = []
    transformers_logging.enable_progress_bar()
    try:
        config.plain_errors(lambda raw: shown.append(transformers_logging.is_progress_bar_enabled()))(DictConfig({}))
        assert shown == [False]
    finally:
        transformers_logging.enable_progress_bar()


@pytest.mark.parametrize("script", ["generate", "train", "n_docs", "hot_swap"])
def test_options_that_a_checkpoint_brings_along_are_refused_together(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line alone, and where there is a checkpoint; the config would record what is not in force."""
    own = ["retriever.query_encoder=mine", "retriever.max_query_length=8"]
    if script != "hot_swap":
        own += ["generator=bart_large", "generator.checkpoint=mine", "++generator.template='{text} // {query}'"]
    allowed = ["retriever=dpr_nq", "retriever.passage_encoder=mine"]
    assert run_script(script, "model.checkpoint=nowhere", *allowed, *own, folder=tmp_path) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: {option.partition('=')[0].lstrip('+')} must be left out with model.checkpoint, which has its own, "
        f"got {option}. Leave one of them out."
        for option in own
    ]
    assert not (tmp_path / "runs/run/config.yaml").exists()
    for given in (["model.checkpoint=nowhere", *allowed], ["model.kind=rag_token", "model.n_docs=2", *own]):
        assert run_script(script, *given, folder=tmp_path) == 2
        assert "must be left out" not in capsys.readouterr().err
