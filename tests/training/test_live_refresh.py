"""Live refresh: d(z) learns only when it is told to, and the index follows it as the steps alone say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, IndexMismatchError
from ragx.model import RagModel
from ragx.records import Example
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.edition import Edition
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.trained_passage_encoder import TrainedPassageEncoder
from ragx.training import live_refresh
from ragx.training.checkpoint import load_checkpoint, read_record
from ragx.training.loop import TrainingSettings, train
from ragx.training.metrics_log import TIMINGS, read_metrics
from ragx.training.step import Stepper
from tests.training.conftest import PASSAGES, build_model

EVERY = 2
SETTINGS = TrainingSettings(
    steps=7, batch_size=4, generator_lr=3e-3, query_encoder_lr=3e-2, schedule="constant", live_refresh=EVERY,
    save_every=3, eval_every=3, device="cpu", progress=False,
)  # fmt: skip
WEIGHTS = ("generator", "query_encoder", "passage_encoder")


class KilledError(BaseException):
    """Ends a run in the middle, past every `except Exception`."""


def live_model(parts: Path, index: Path | None = None) -> RagModel:
    model = build_model(parts)
    if index is not None:
        model.retriever = DenseRetriever.open(index)
    model.passage_encoder = TrainedPassageEncoder.from_pretrained(parts / "context")
    return model


def go(model: RagModel, examples: list[Example], run_dir: Path, **changes: Any) -> Any:
    settings = replace(SETTINGS, **changes)
    return train(model, examples, settings=settings, run_dir=run_dir, dev_examples=examples[:3])


def outcome(run_dir: Path) -> dict[str, Any]:
    """All that must not depend on interruptions: rows, weights of `last` and `best`, and the index."""
    rows = [{k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(run_dir / "metrics.jsonl")]
    files = [
        run_dir / "checkpoints" / kind / part / "model.safetensors" for kind in ("last", "best") for part in WEIGHTS
    ]
    files += [run_dir / "index" / name for name in ("embeddings.npy", "manifest.json")]
    return {"rows": rows, **{str(file.relative_to(run_dir)): file.read_bytes() for file in files}}


@pytest.fixture(scope="module")
def whole(parts: Path, examples: list[Example], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never interrupted."""
    run_dir = tmp_path_factory.mktemp("live")
    go(live_model(parts), examples, run_dir)
    return run_dir


def test_the_index_is_the_one_built_of_the_trained_encoder(whole: Path, parts: Path, tmp_path: Path) -> None:
    """Final and refreshed alike: the same bytes as from scratch, the manifest names encoder and corpus."""
    for encoder, index in (
        (whole / "checkpoints/last/passage_encoder", whole / "index"),
        (whole / "refresh/step-000004/passage_encoder", whole / "refresh/step-000004/index"),
    ):
        trained = PassageEncoder.from_pretrained(encoder)
        scratch = tmp_path / encoder.parent.name
        build_index(PASSAGES, passage_encoder=trained, directory=scratch, edition="1", progress=False)
        assert (index / "embeddings.npy").read_bytes() == (scratch / "embeddings.npy").read_bytes()
        assert Manifest.read(index) == Manifest.read(scratch)
        assert Manifest.read(index).encoder_fingerprint == trained.fingerprint()
        Edition.open(index, verify_hashes=True).require_encoder(trained)
    assert not np.array_equal(np.load(whole / "index/embeddings.npy"), np.load(parts / "index/embeddings.npy"))


def test_each_step_searches_the_index_that_its_number_says(whole: Path) -> None:
    """Noted after steps 2, 4 and 6; in use from N steps later on, whatever the encoder's speed."""
    rows = read_metrics(whole / "metrics.jsonl")
    assert [row["index_step"] for row in rows] == [0, 0, 0, 0, 2, 2, 4]
    assert all(row["grad_norm/passage_encoder"] > 0 and row["lr/passage_encoder"] == 3e-2 for row in rows)
    assert sorted(folder.name for folder in (whole / "refresh").iterdir()) == ["step-000004", "step-000006"]


def test_off_nothing_of_passages_is_trained_or_written(parts: Path, examples: list[Example], tmp_path: Path) -> None:
    """Section 2.4: the very bytes of index and encoder, no such group, no such folder."""
    files = [file for file in [*(parts / "index").rglob("*"), *(parts / "context").rglob("*")] if file.is_file()]
    before = {file: file.read_bytes() for file in files}
    model = build_model(parts)
    go(model, examples, tmp_path, live_refresh=0)
    assert {file: file.read_bytes() for file in files} == before
    assert model.passage_encoder is None and not any("passage" in name for name, _ in model.named_parameters())
    assert set(read_record(tmp_path / "checkpoints/last")["parts"]) == {"generator", "query_encoder"}
    assert not {"refresh", "index"} & {entry.name for entry in tmp_path.iterdir()}
    assert not any(
        "passage_encoder" in key or key == "index_step" for key in read_metrics(tmp_path / "metrics.jsonl")[0]
    )


def test_the_gradient_reaches_d_of_the_passages_found(parts: Path, examples: list[Example]) -> None:
    """d loss / d doc_scores = prior - posterior, and from there to both halves; the scores are those of the index."""
    queries, answers = [e.query for e in examples], [e.answers[0] for e in examples]
    frozen, model = build_model(parts).eval(), live_model(parts).eval()
    expected, output = frozen(queries, answers), model(queries, answers)
    torch.testing.assert_close(output.doc_scores, expected.doc_scores, rtol=1e-5, atol=1e-4)
    output.doc_scores.retain_grad()
    output.nll.sum().backward()
    joint = output.token_logprobs.sum(2) + output.doc_logprobs
    posterior = joint.log_softmax(1).exp()
    torch.testing.assert_close(output.doc_scores.grad, output.doc_logprobs.exp() - posterior, rtol=1e-4, atol=1e-5)
    assert model.passage_encoder is not None
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.passage_encoder.parameters()
               if p.ndim == 2 and p.shape[0] == p.shape[1])  # fmt: skip


@pytest.mark.parametrize("step", [3, 7])
def test_a_killed_run_ends_as_the_one_that_never_was(
    step: int,
    whole: Path,
    parts: Path,
    examples: list[Example],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed before anything was saved; and behind two swaps, the second of which is done again."""
    run = Stepper.run

    def killed(self: Stepper, number: int, *arguments: Any) -> dict[str, Any]:
        if number == step:
            raise KilledError("killed")
        return run(self, number, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Stepper, "run", killed)
        with pytest.raises(KilledError, match="killed"):
            go(live_model(parts), examples, tmp_path)
    go(live_model(parts), examples, tmp_path)
    assert outcome(tmp_path) == outcome(whole)


def test_a_kill_while_the_corpus_is_encoded_loses_nothing(
    whole: Path, parts: Path, examples: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refresh of step 4 is killed before its index is there; the run that goes on encodes it, then swaps."""
    build = live_refresh.build_index

    def killed(*arguments: Any, **options: Any) -> Any:
        if "step-000004" in str(options["directory"]):
            raise KilledError("killed")
        return build(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(live_refresh, "build_index", killed)
        with pytest.raises(KilledError, match="killed"):
            go(live_model(parts), examples, tmp_path)
    assert not (tmp_path / "refresh/step-000004/index").exists()
    go(live_model(parts), examples, tmp_path)
    assert outcome(tmp_path) == outcome(whole)


def test_a_run_made_longer_equals_the_long_one(
    whole: Path, parts: Path, examples: list[Example], tmp_path: Path
) -> None:
    go(live_model(parts), examples, tmp_path, steps=6)
    go(live_model(parts), examples, tmp_path)
    kept = ("checkpoints/last/passage_encoder/model.safetensors", "index/embeddings.npy")
    assert [outcome(tmp_path)[name] for name in kept] == [outcome(whole)[name] for name in kept]


def test_a_checkpoint_is_read_with_its_own_index_alone(whole: Path, parts: Path, examples: list[Example]) -> None:
    last = whole / "checkpoints/last"
    assert set(read_record(last)["parts"]) == set(WEIGHTS)
    advice = r"It learned with the model: python scripts/build_index.py retriever.passage_encoder="
    with pytest.raises(IndexMismatchError, match=r"retriever must be over vectors of passage encoder .*" + advice):
        load_checkpoint(last, retriever=DenseRetriever.open(parts / "index"))
    model = load_checkpoint(last, retriever=DenseRetriever.open(whole / "index"))
    assert model.passage_encoder is None  # its vectors are in the index
    live = live_model(parts, whole / "index")
    live.passage_encoder = TrainedPassageEncoder.from_pretrained(last / "passage_encoder")
    live.query_encoder, live.generator = model.query_encoder, model.generator
    queries, answers = [e.query for e in examples], [e.answers[0] for e in examples]
    torch.testing.assert_close(live.eval()(queries, answers).nll, model(queries, answers).nll)


def test_deleted_passages_do_not_come_back(parts: Path, examples: list[Example], tmp_path: Path) -> None:
    shutil.copytree(parts / "index", tmp_path / "index")
    gone = PASSAGES[0].key
    DenseRetriever.open(tmp_path / "index").delete([gone])
    go(live_model(parts, tmp_path / "index"), examples, tmp_path / "run", steps=3)
    assert [p.key for p in DenseRetriever.open(tmp_path / "run/index").passages] == [p.key for p in PASSAGES[1:]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: setattr(model, "passage_encoder", None),
         "live_refresh must be above 0 with model.passage_encoder alone, got 2 without a passage encoder"),
        (lambda model: setattr(model, "retriever", None), "live_refresh must be 0 without an index of vectors alone"),
        (lambda model: model.passage_encoder.tower.model.get_input_embeddings().weight.data.add_(1.0),
         "retriever.passage_encoder must be the one that the index was built with to be trained on"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_the_first_step(
    change: Callable[[Any], None], message: str, parts: Path, examples: list[Example], tmp_path: Path
) -> None:
    model = live_model(parts)
    change(model)
    with pytest.raises(ConfigError, match=message):
        go(model, examples, tmp_path)
    with pytest.raises(ConfigError, match=r"got 0 with a passage encoder that learns"):
        go(live_model(parts), examples, tmp_path, live_refresh=0)
    with pytest.raises(ConfigError, match="training.fsdp must be false with live_refresh, got True"):
        go(live_model(parts), examples, tmp_path, fsdp=True)


CHILD = """
import sys
from dataclasses import replace
from pathlib import Path
from ragx.training.loop import train
from tests.training.conftest import EXAMPLES
from tests.training.test_live_refresh import SETTINGS, live_model

settings = replace(SETTINGS, steps=5, save_every=5, eval_every=0)
train(live_model(Path(sys.argv[1])), EXAMPLES, settings=settings, run_dir=Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_two_processes_swap_the_index_that_the_main_one_built(parts: Path, tmp_path: Path) -> None:
    script, run_dir = tmp_path / "child.py", tmp_path / "run"
    script.write_text(CHILD)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(parts), str(run_dir)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["index_step"] for row in read_metrics(run_dir / "metrics.jsonl")] == [0, 0, 0, 0, 2]
    trained = PassageEncoder.from_pretrained(run_dir / "checkpoints/last/passage_encoder")
    Edition.open(run_dir / "index", verify_hashes=True).require_encoder(trained)
