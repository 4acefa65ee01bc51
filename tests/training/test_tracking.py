"""wandb: what it is sent, by a stand-in and by the real package offline; and that it never gets in the way."""

from __future__ import annotations

import io
import json
import logging
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ragx.experiments.train_answers import answers_of
from ragx.model import RagModel
from ragx.records import Citation, Example, PassageKey, Prediction, RetrievedPassage
from ragx.training.loop import TrainingSettings, train
from ragx.training.metrics_log import read_metrics
from ragx.training.tracking import ID_FILE, Tracker, answered_by, clear_name, tracked
from ragx.training.tracking_tables import ASKED, COLUMNS, MOST, table_rows

KEY = PassageKey("peru", "2016-12", "0")
PASSAGES = (
    RetrievedPassage(PassageKey("rain", "2016-12", "1"), "Rain", "It falls.", "", 2.0, 0.9, 0.2, (0, 9)),
    RetrievedPassage(KEY, "Peru", "Humala leads it.", "", 1.0, 0.1, 0.8, (0, 16)),
)
CITED = (Citation(KEY, 0.8, 1.5, (0, 6), "full"),)
ANSWERED = Prediction("q1", "Who leads Peru?", "Humala", -0.5, (("Humala", -0.5),), PASSAGES, CITED, 3, {})
SETTINGS = TrainingSettings(steps=3, batch_size=2, progress=False, device="cpu", wandb_project="capitals")
MakeModel = Callable[..., RagModel]


class FakeWandb(SimpleNamespace):
    """wandb as far as the tracker uses it; `fails` names the call that raises."""

    def __init__(self, fails: str = "", key: str | None = "key") -> None:
        super().__init__(rows=[], started=[], ended=[], artifacts=[], config={}, summary={}, id="run-id", fails=fails)
        self.login = lambda *, prompt: key is not None
        self.Settings = lambda **options: options
        self.Table = lambda columns, data: (columns, data)
        self.config = SimpleNamespace(update=lambda added, allow_val_change: self.started[-1]["config"].update(added))
        self.Artifact = FakeArtifact

    def init(self, **options: Any) -> FakeWandb:
        self._maybe_fail("init")
        self.started.append(options)
        return self

    def log(self, row: dict[str, Any], step: int | None = None) -> None:
        self._maybe_fail("log")
        self.rows.append((step, row))

    def log_artifact(self, artifact: FakeArtifact) -> None:
        self._maybe_fail("log_artifact")
        self.artifacts.append(artifact)

    def finish(self, exit_code: int = 0) -> None:
        self._maybe_fail("finish")
        self.ended.append(exit_code)

    def _maybe_fail(self, call: str) -> None:
        if self.fails == call:
            raise ConnectionError("no network")


class FakeArtifact:
    def __init__(self, name: str, type: str) -> None:
        self.name, self.type = name, type
        self.files: list[str] = []
        self.references: list[str] = []

    def add_file(self, path: str, name: str) -> None:
        self.files.append(name)

    @contextmanager
    def new_file(self, name: str) -> Iterator[io.StringIO]:
        handle = io.StringIO()
        yield handle
        assert json.loads(handle.getvalue())["count"] == 6
        self.files.append(name)

    def add_reference(self, uri: str, name: str) -> None:
        assert uri.startswith("file:///") and uri.endswith(name)
        self.references.append(name)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    found = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", found)
    return found


def track(project: str | None, directory: Path, *, mode: str = "offline") -> None:
    tracker = Tracker(project, mode=mode, directory=directory, config={"steps": 2})
    for step in (1, 2):
        tracker.log({"step": step, "loss": 0.5})
    tracker.finish()


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("loss", "train/loss"),
        ("lr/query_encoder", "train/lr/query_encoder"),
        ("grad_norm/generator", "train/grad_norm/generator"),
        ("distinct_top1", "retriever/distinct_top1"),
        ("kl_posterior_prior", "retriever/kl_posterior_prior"),
        ("seconds", "speed/seconds"),
        ("eval/nll", "dev/nll"),
    ],
)
def test_names_say_what_a_figure_is_of(key: str, name: str) -> None:
    assert clear_name(key) == name


def test_wandb_gets_each_row_once_when_asked(tmp_path: Path, fake: FakeWandb) -> None:
    track("capitals", tmp_path)
    assert fake.rows == [(1, {"train/loss": 0.5}), (2, {"train/loss": 0.5})]
    assert (fake.started[0]["project"], fake.started[0]["mode"], fake.ended) == ("capitals", "offline", [0])


def test_wandb_is_not_touched_unless_asked(tmp_path: Path, fake: FakeWandb) -> None:
    track(None, tmp_path)
    assert (fake.started, fake.rows) == ([], []) and not (tmp_path / ID_FILE).exists()


@pytest.mark.parametrize("fails", ["init", "log", "finish"])
def test_a_failing_wandb_is_one_warning(
    fails: str, tmp_path: Path, fake: FakeWandb, caplog: pytest.LogCaptureFixture
) -> None:
    fake.fails = fails
    track("capitals", tmp_path)
    assert caplog.text.count("wandb is off for the rest of the run (ConnectionError: no network)") == 1


def test_a_missing_wandb_is_one_warning_and_the_record_is_complete(
    make_model: MakeModel,
    examples: list[Example],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    train(make_model(), examples, settings=SETTINGS, run_dir=tmp_path)
    assert [r.levelno for r in caplog.records if r.name == "ragx.training.tracking"] == [logging.WARNING]
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def test_online_without_a_key_becomes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb(key=None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    track("capitals", tmp_path, mode="online")
    assert fake.started[0]["mode"] == "offline"


def test_a_training_inside_a_job_shares_its_run(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, fake: FakeWandb
) -> None:
    outer: dict[str, Any] = {"mode": "offline", "directory": tmp_path / "job", "config": {"job": 1}, "group": "sweep"}
    with tracked("capitals", **outer) as tracker:
        train(make_model(), examples, settings=SETTINGS, run_dir=tmp_path / "model", dev_examples=examples)
        assert fake.ended == []
        tracker.history(tmp_path / "model" / "metrics.jsonl")  # has nothing to add
        tracker.summary({"test/exact_match": 0.5, "test/mrr": None})
        tracker.predictions([ANSWERED])
    assert fake.ended == [0] and len(fake.started) == 1
    started = fake.started[0]
    assert (started["group"], started["name"], started["config"]["job"]) == ("sweep", "job", 1)
    assert started["config"]["steps"] == 3 and "data.examples" in started["config"]["reads"]
    assert [step for step, _ in fake.rows] == [1, 2, 3, None]
    assert {"train/loss", "dev/nll", "retriever/prior_entropy", "speed/seconds"} <= fake.rows[2][1].keys()
    assert fake.summary == {"test/exact_match": 0.5}
    assert fake.rows[3][1] == {"test/predictions": (list(COLUMNS), table_rows([ANSWERED]))}
    model, index = fake.artifacts
    assert (model.type, index.type, index.files) == ("model", "index", ["manifest.json"])
    assert {"ragx.json", "generator/model.safetensors"} <= set(model.references) and model.files == []


def test_a_checkpoint_is_uploaded_when_asked_and_never_the_optimizer(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, fake: FakeWandb
) -> None:
    train(make_model("closed_book"), examples, settings=replace(SETTINGS, wandb_upload=True), run_dir=tmp_path)
    (model,) = fake.artifacts  # closed book has no index
    assert "generator/model.safetensors" in model.files and model.references == []
    assert (tmp_path / "checkpoints/last/optimizer.safetensors").exists() and "optimizer.safetensors" not in model.files


def test_a_job_that_fails_is_marked_as_failed(tmp_path: Path, fake: FakeWandb) -> None:
    with pytest.raises(ValueError, match="broken"), tracked("p", mode="offline", directory=tmp_path, config={}):
        raise ValueError("broken")
    assert fake.ended == [1]
    with tracked("p", mode="offline", directory=tmp_path, config={}) as tracker:
        tracker.log({"step": 1, "loss": 1.0})
    assert fake.ended == [1, 0] and len(fake.rows) == 1
    assert fake.started[0]["id"] == fake.started[1]["id"]  # the same run goes on


def test_a_resumed_run_sends_its_earlier_rows_again_under_the_same_id(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, fake: FakeWandb
) -> None:
    constant = replace(SETTINGS, schedule="constant")
    train(make_model(), examples, settings=replace(constant, steps=2), run_dir=tmp_path)
    train(make_model(), examples, settings=constant, run_dir=tmp_path)
    assert [step for step, _ in fake.rows] == [1, 2, 1, 2, 3]
    assert fake.started[0]["id"] == fake.started[1]["id"]
    train(make_model(), examples, settings=constant, run_dir=tmp_path, resume=False)
    assert fake.started[2]["id"] != fake.started[0]["id"]  # another run in the same folder


def test_the_table_names_the_passage_that_the_answer_owes_most_to() -> None:
    (row,) = table_rows([ANSWERED])
    assert dict(zip(COLUMNS, row, strict=True)) == {
        "id": "q1", "question": "Who leads Peru?", "answer": "Humala", "gold": None, "exact match": None,
        "log p(y|x)": -0.5, "first passage": "Rain", "passage": "peru@2016-12#0", "title": "Peru", "p(z|x)": 0.1,
        "p(z|x,y)": 0.8, "cited": 1, "cut tokens": 3,
    }  # fmt: skip
    (closed,) = table_rows([replace(ANSWERED, passages=(), citations=())])
    assert closed[6:11] == [None] * 5
    assert len(table_rows([ANSWERED] * (MOST + 1))) == MOST


def test_the_table_compares_with_every_accepted_answer_and_shows_the_first() -> None:
    other = replace(ANSWERED, id="q2", answer="the humala!")
    examples = [Example("q2", "Who?", ("García", "Humala")), Example("q1", "Who?", ("García",))]
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in table_rows([ANSWERED, other], examples)]
    assert [(row["id"], row["gold"], row["exact match"]) for row in rows] == [
        ("q1", "García", 0.0), ("q2", "García", 1.0),
    ]  # fmt: skip


def tables(fake: FakeWandb) -> dict[str, list[dict[str, Any]]]:
    """Rows of the tables that were sent, by name."""
    sent = {name: table for _, row in fake.rows for name, table in row.items() if name.endswith("/predictions")}
    return {name: [dict(zip(columns, row, strict=True)) for row in data] for name, (columns, data) in sent.items()}


@pytest.mark.parametrize(("dev", "name"), [(True, "dev/predictions"), (False, "train/predictions")])
def test_a_tracked_training_ends_with_a_table_of_answers(
    dev: bool, name: str, make_model: MakeModel, examples: list[Example], tmp_path: Path, fake: FakeWandb
) -> None:
    """As scripts/train.py has it answered: the last weights, one beam, gold and exact match beside it."""
    model = make_model("rag_token", n_docs=2)
    with answered_by(answers_of):
        train(model, examples, settings=SETTINGS, run_dir=tmp_path, dev_examples=examples[:2] if dev else None)
    (sent,) = tables(fake).items()
    assert sent[0] == name and len(sent[1]) == (2 if dev else 6)
    expected = answers_of(model, examples[:1])[0]
    assert sent[1][0]["answer"] == expected.answer
    assert sent[1][0]["log p(y|x)"] == pytest.approx(expected.logprob, abs=1e-5)  # rounding differs by batch
    assert sent[1][0]["gold"] == "lima" and sent[1][0]["first passage"] == expected.passages[0].title
    assert fake.ended == [0]


def test_a_bounded_number_of_questions_is_asked_and_none_where_nothing_is_tracked(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, fake: FakeWandb
) -> None:
    asked: list[int] = []

    def answer(model: RagModel, some: Sequence[Example]) -> list[Prediction]:
        asked.append(len(some))
        assert not model.training and not torch.is_grad_enabled()
        return [replace(ANSWERED, id=example.id) for example in some]

    many = [replace(examples[0], id=str(number)) for number in range(ASKED + 1)]
    with answered_by(answer):
        train(make_model("closed_book"), many, settings=replace(SETTINGS, wandb_project=None), run_dir=tmp_path / "a")
        assert asked == []
        train(make_model("closed_book"), many, settings=SETTINGS, run_dir=tmp_path / "b")
        train(make_model("closed_book"), many, settings=SETTINGS, run_dir=tmp_path / "b")  # is complete
    train(make_model("closed_book"), many, settings=SETTINGS, run_dir=tmp_path / "c")
    assert asked == [ASKED] and len(tables(fake)["train/predictions"]) == ASKED


def test_answers_that_fail_are_one_warning_and_the_run_ends_well(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, fake: FakeWandb, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(model: RagModel, some: Sequence[Example]) -> list[Prediction]:
        raise RuntimeError("out of memory")

    with answered_by(answer):
        result = train(make_model("closed_book"), examples, settings=SETTINGS, run_dir=tmp_path)
    assert caplog.text.count("wandb is off for the rest of the run (RuntimeError: out of memory)") == 1
    assert result.step == 3 and result.checkpoint.is_dir() and len(fake.artifacts) == 1


def records(path: Path) -> Iterator[Any]:
    """The records of an offline run: frames of at most 32 KiB blocks, as LevelDB's log has them."""
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            record = proto.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def test_the_real_package_offline_writes_a_run_that_can_be_read_back(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    outer: dict[str, Any] = {"mode": "offline", "directory": tmp_path / "job", "config": {"n_docs": 3}}
    with tracked("capitals", **outer, group="sweep") as tracker:
        train(make_model(), examples, settings=SETTINGS, run_dir=tmp_path / "model")
        tracker.predictions([ANSWERED])
    (path,) = (tmp_path / "job" / "wandb").glob("offline-run-*/run-*.wandb")
    found = list(records(path))
    for _ in range(600):  # the service process writes the end a moment after the run has ended
        if found and found[-1].WhichOneof("record_type") == "exit":
            break
        time.sleep(0.1)
        found = list(records(path))
    run = next(record.run for record in found if record.WhichOneof("record_type") == "run")
    assert (run.project, run.run_group, run.display_name) == ("capitals", "sweep", "job")
    assert {"n_docs": "3"}.items() <= {item.key: item.value_json for item in run.config.update}.items()
    rows = [record.history for record in found if record.WhichOneof("record_type") == "history"]
    logged = [{".".join(item.nested_key) or item.key: item.value_json for item in row.item} for row in rows]
    losses = [json.loads(row["train/loss"]) for row in logged if "train/loss" in row]
    assert losses == [row["loss"] for row in read_metrics(tmp_path / "model" / "metrics.jsonl")] and len(losses) == 3
    kinds = [record.artifact.type for record in found if record.WhichOneof("record_type") == "artifact"]
    assert sorted(kinds) == ["index", "model", "run_table"]
