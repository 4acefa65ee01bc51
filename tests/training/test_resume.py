"""A run that was killed anywhere ends as the run that never was: weights, log, random state and best checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragx.errors import CheckpointError, ConfigError
from ragx.filters import PassageFilter
from ragx.model import RagModel
from ragx.records import Example
from ragx.retriever.dense import DenseRetriever
from ragx.training.loop import TrainingSettings, mean_nll, train
from ragx.training.metrics_log import TIMINGS, MetricsLog, read_metrics

MakeModel = Callable[..., RagModel]
SETTINGS = TrainingSettings(
    steps=7, batch_size=4, gradient_accumulation=2, generator_lr=3e-3, query_encoder_lr=1e-3, warmup_steps=2,
    weight_decay=0.01, eval_every=3, save_every=2, device="cpu", progress=False,
)  # fmt: skip
FACTS = ("step", "best_step", "best_value", "initial_metrics", "final_metrics", "stopped_early", "skipped_steps")


class KilledError(BaseException):
    """Ends a run in the middle, past every `except Exception`."""


def outcome(run_dir: Path, result: Any) -> dict[str, Any]:
    """All that must not depend on interruptions."""
    rows = [{k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(result.metrics_path)]
    assert len(result.metrics_path.read_text().splitlines()) == len(rows)
    folder = run_dir / "checkpoints"
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != "state.json"]
    return {
        "rows": rows,
        "facts": {name: getattr(result, name) for name in FACTS},
        "files": {str(file.relative_to(folder)): file.read_bytes() for file in files},
        "random": torch.rand(()).item(),
    }


def go(model: RagModel, examples: Sequence[Example], run_dir: Path, **options: Any) -> Any:
    settings = options.pop("settings", SETTINGS)
    return train(model, examples, settings=settings, run_dir=run_dir, dev_examples=examples[:3], **options)


@pytest.fixture(scope="module")
def whole(parts: Path, examples: list[Example], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of the run that was never interrupted."""
    from tests.training.conftest import build_model

    run_dir = tmp_path_factory.mktemp("whole")
    return outcome(run_dir, go(build_model(parts), examples, run_dir))


def kill_in_step(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """In the forward pass of the second micro-batch of `step`."""
    calls, forward = iter(range(1, 1000)), RagModel.forward

    def killed(self: RagModel, *args: Any, **options: Any) -> Any:
        if self.training and next(calls) == 2 * step:
            raise KilledError("killed")
        return forward(self, *args, **options)

    monkeypatch.setattr(RagModel, "forward", killed)


def kill_in_append(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """When half of the row of `step` is written."""
    append = MetricsLog.append

    def killed(self: MetricsLog, row: Any) -> None:
        if row["step"] == step:
            assert self._handle is not None
            self._handle.write(f'{{"step": {step}, "lo')
            self._handle.flush()
            raise KilledError("killed")
        append(self, row)

    monkeypatch.setattr(MetricsLog, "append", killed)


def kill_in_save(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Before `last` of `step` is written; `best` and the row are there."""
    from ragx.training.run import Run

    save = Run._save

    def killed(self: Run) -> None:
        if self.progress.step == step:
            raise KilledError("killed")
        save(self)

    monkeypatch.setattr(Run, "_save", killed)


@pytest.mark.parametrize(
    ("kill", "step"),
    [
        (kill_in_step, 1),  # nothing was saved yet
        (kill_in_step, 5),  # the row of step 5 is not yet there
        (kill_in_step, 6),  # row 5 is beyond the last checkpoint
        (kill_in_append, 5),
        (kill_in_append, 6),  # after its evaluation wrote `best`
        (kill_in_save, 3),
        (kill_in_save, 7),
    ],
)
def test_an_interrupted_run_ends_as_the_whole_one(
    kill: Callable[..., None], step: int, whole: dict[str, Any], make_model: MakeModel, examples: list[Example],
    tmp_path: Path,
) -> None:  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        kill(patch, step)
        with pytest.raises(KilledError, match="killed"):
            go(make_model(), examples, tmp_path)
    torch.manual_seed(99)  # another process has another random state
    assert outcome(tmp_path, go(make_model(), examples, tmp_path)) == whole


def test_two_interruptions_and_length_buckets_change_nothing(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    settings = replace(SETTINGS, bucket_by_length=True)
    expected = outcome(tmp_path / "a", go(make_model("rag_token"), examples, tmp_path / "a", settings=settings))
    for step in (4, 2):  # counted from each start
        with pytest.MonkeyPatch.context() as patch:
            kill_in_step(patch, step)
            with pytest.raises(KilledError, match="killed"):
                go(make_model("rag_token"), examples, tmp_path / "b", settings=settings)
    result = go(make_model("rag_token"), examples, tmp_path / "b", settings=settings)
    assert outcome(tmp_path / "b", result) == expected


CHILD = """
import os, signal, sys
from pathlib import Path
import tests.training.test_resume as resume
from tests.training.conftest import EXAMPLES, build_model
rename, left = os.replace, 2

def kill_at_rename(source, target):
    global left
    left -= Path(target).name == "last"
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)

os.replace = kill_at_rename
resume.go(build_model(Path(sys.argv[1])), EXAMPLES, Path(sys.argv[2]))
"""


def test_kill_9_while_a_checkpoint_is_replaced(
    whole: dict[str, Any], make_model: MakeModel, examples: list[Example], parts: Path, tmp_path: Path
) -> None:
    """When the first `last` is renamed aside and the second not yet renamed in, there is none of that name."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", CHILD, str(parts), str(tmp_path)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    folder = tmp_path / "checkpoints"
    assert not (folder / "last").exists()
    assert (folder / ".last.replaced").exists()
    assert outcome(tmp_path, go(make_model(), examples, tmp_path)) == whole
    assert sorted(path.name for path in folder.iterdir()) == ["best", "last"]


def test_a_moved_run_is_resumed(
    whole: dict[str, Any], make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill_in_step(patch, 6)
        with pytest.raises(KilledError, match="killed"):
            go(make_model(), examples, tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert outcome(tmp_path / "there", go(make_model(), examples, tmp_path / "there")) == whole


def test_early_stopping_counts_on_across_an_interruption(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    settings = replace(SETTINGS, steps=20, warmup_steps=0, eval_every=1, patience=3, best_metric="metric")
    options: dict[str, Any] = {"settings": settings, "evaluate": lambda model, dev: {"metric": 1.0}}
    expected = outcome(tmp_path / "a", go(make_model(), examples, tmp_path / "a", **options))
    assert expected["facts"] | {"step": 4, "best_step": 1, "stopped_early": True} == expected["facts"]
    with pytest.MonkeyPatch.context() as patch:
        kill_in_step(patch, 3)
        with pytest.raises(KilledError, match="killed"):
            go(make_model(), examples, tmp_path / "b", **options)
    assert outcome(tmp_path / "b", go(make_model(), examples, tmp_path / "b", **options)) == expected


def test_a_damaged_state_is_named(make_model: MakeModel, examples: list[Example], tmp_path: Path) -> None:
    go(make_model(), examples, tmp_path)
    (tmp_path / "checkpoints" / "last" / "state.json").write_text('{"progress": {}, "settings": []}')
    with pytest.raises(CheckpointError, match=r"state\.json must hold settings and reads of the interrupted run"):
        go(make_model(), examples, tmp_path)


def test_a_complete_run_is_not_trained_again(make_model: MakeModel, examples: list[Example], tmp_path: Path) -> None:
    first = go(make_model(), examples, tmp_path)
    model = make_model()
    assert go(model, examples, tmp_path, evaluate=lambda *_: pytest.fail("evaluated")) == first
    with torch.no_grad():  # the model that comes out is the trained one all the same
        assert mean_nll(4)(model, examples[:3])["nll"] == first.final_metrics["nll"]


def test_a_run_at_a_constant_rate_made_longer_equals_the_long_one(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    long = replace(SETTINGS, schedule="constant", steps=6)
    expected = outcome(tmp_path / "a", go(make_model(), examples, tmp_path / "a", settings=long))
    go(make_model(), examples, tmp_path / "b", settings=replace(long, steps=3))
    assert outcome(tmp_path / "b", go(make_model(), examples, tmp_path / "b", settings=long)) == expected


def test_whatever_changed_since_is_named_key_by_key(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    go(make_model(), examples, tmp_path)
    changed = replace(SETTINGS, generator_lr=1e-3, seed=5, save_every=1)
    with pytest.raises(ConfigError, match="interrupted run") as caught:
        go(make_model("rag_token", n_docs=2), examples[:5], tmp_path, settings=changed)
    keys = [problem.split(" must equal ")[0] for problem in caught.value.problems[:-1]]
    assert keys == ["training.generator_lr", "training.seed", "model.kind", "model.n_docs", "data.examples"]
    assert "hydra.run.dir=..." in caught.value.problems[-1] and "resume=False" not in caught.value.problems[-1]


def test_a_run_is_not_resumed_under_another_filter_or_other_queries(
    make_model: MakeModel, parts: Path, examples: list[Example], tmp_path: Path
) -> None:
    """Complete as the run is, it read passages that may now not be read."""
    go(make_model(), examples, tmp_path)
    model = make_model()
    model.retriever = DenseRetriever.open(parts / "index", passage_filter=PassageFilter(acl=()))
    assert model.query_encoder is not None
    model.query_encoder.tower.max_length = 8
    with pytest.raises(ConfigError, match=r"retriever.filter must equal None .*, got {'acl': \[\]") as caught:
        go(model, examples, tmp_path)
    keys = [problem.split(" must equal ")[0] for problem in caught.value.problems[:-1]]
    assert keys == ["retriever.filter", "retriever.max_query_length"]
    model.query_encoder.tower.max_length = make_model().query_encoder.tower.max_length  # type: ignore[union-attr]
    first = go(model, examples, tmp_path / "filtered")
    assert go(model, examples, tmp_path / "filtered") == first


def test_starting_over_leaves_nothing_of_the_earlier_run(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    go(make_model(), examples, tmp_path)
    result = train(make_model(), examples, settings=replace(SETTINGS, eval_every=0), run_dir=tmp_path, resume=False)
    assert [row["step"] for row in read_metrics(result.metrics_path)] == list(range(1, 8))
    assert result.best_checkpoint is None
    assert not (tmp_path / "checkpoints" / "best").exists()
