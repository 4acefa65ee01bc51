"""Bi-encoder training: it learns, a kill anywhere changes no byte of the end, two processes do what one does."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import DPRContextEncoder, DPRQuestionEncoder

from ragx.data.retriever_examples import Context, RetrieverExample
from ragx.errors import ConfigError, TrainingError
from ragx.training import bi_encoder_loop, bi_encoder_step
from ragx.training.bi_encoder_evaluation import Pool, evaluate
from ragx.training.bi_encoder_loop import BiEncoderResult, train_bi_encoder
from ragx.training.bi_encoder_model import BiEncoder
from ragx.training.bi_encoder_settings import BiEncoderSettings
from ragx.training.metrics_log import TIMINGS, MetricsLog, read_metrics
from tests.training.conftest import CAPITALS

CONTEXTS = {
    country: Context(country, f"the capital of {country} is {city}", country) for country, city in CAPITALS.items()
}
NAMES = list(CAPITALS)
# Each question brings as many hard negatives as its number, so that shares are uneven.
EXAMPLES = [
    RetrieverExample(
        country, f"capital of {country}", (CONTEXTS[country],), tuple(CONTEXTS[NAMES[i - 1]] for i in range(row % 3))
    )
    for row, country in enumerate(NAMES)
]
SETTINGS = BiEncoderSettings(
    steps=6, batch_size=5, hard_negatives=2, learning_rate=3e-3, warmup_steps=1, eval_every=2, save_every=1,
    device="cpu", progress=False, eval_batch_size=4,
)  # fmt: skip
FILES = ("query_encoder/model.safetensors", "passage_encoder/model.safetensors")


def no_dropout(model: BiEncoder) -> BiEncoder:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


@pytest.fixture
def train(parts: Path, tmp_path: Path) -> Callable[..., BiEncoderResult]:
    def run(name: str = "run", *, model: BiEncoder | None = None, dev: bool = True, **changes: Any) -> BiEncoderResult:
        model = model or BiEncoder.from_pretrained(parts / "question")
        dev_examples = EXAMPLES if dev else None
        settings = replace(SETTINGS, **changes)
        return train_bi_encoder(model, EXAMPLES, settings=settings, run_dir=tmp_path / name, dev_examples=dev_examples)

    return run


def outcome(run_dir: Path) -> dict[str, Any]:
    """All that must not depend on interruptions."""
    rows = [{k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(run_dir / "metrics.jsonl")]
    assert len(rows) == len((run_dir / "metrics.jsonl").read_text().splitlines())
    names = [*(f"last/{name}" for name in FILES), "last/optimizer.safetensors", *(f"best/{name}" for name in FILES)]
    state = json.loads((run_dir / "checkpoints" / "last" / "state.json").read_text())
    state["progress"].pop("seconds")
    return {"rows": rows, "state": state, **{n: (run_dir / "checkpoints" / n).read_bytes() for n in names}}


class Killed(BaseException):
    """Stands for the end of the process."""


def test_it_learns_and_transformers_reads_the_best(train: Callable[..., BiEncoderResult], parts: Path) -> None:
    model = no_dropout(BiEncoder.from_pretrained(parts / "question"))
    result = train(model=model, steps=40, eval_every=10, save_every=0, learning_rate=1e-2, weight_decay=0.01)
    start, end = result.initial_metrics["average_rank"], result.best_value
    assert start is not None and end is not None and start > 2 and end < 1.5
    rows = read_metrics(result.metrics_path)
    assert [row["step"] for row in rows] == list(range(1, 41))
    assert rows[-1]["loss"] < rows[0]["loss"] / 2 and rows[-1]["correct"] > rows[0]["correct"]
    assert rows[0]["lr/query_encoder"] == 1e-2 and rows[-1]["lr/passage_encoder"] < 1e-3  # warmed up, then to zero
    best = result.checkpoint
    assert best.name == "best" and not (best / "state.json").exists()
    DPRQuestionEncoder.from_pretrained(best / "query_encoder")
    DPRContextEncoder.from_pretrained(best / "passage_encoder")
    again = BiEncoder.from_pretrained(best / "query_encoder", best / "passage_encoder")
    metrics = evaluate(again, Pool(EXAMPLES, negatives=30), batch_size=2, accelerator=Accelerator(cpu=True))
    assert metrics["average_rank"] == pytest.approx(end)
    assert (metrics["pool"], metrics["success@20"]) == (6, 1.0)


def test_both_towers_are_trained_and_a_shared_one_is_one(train: Callable[..., BiEncoderResult], parts: Path) -> None:
    for shared in (False, True):
        model = BiEncoder.from_pretrained(parts / "question", shared=shared)
        before = {name: p.clone() for name, p in model.named_parameters()}
        train(f"shared-{shared}", model=model)
        moved = {name.split(".")[0] for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        assert moved == ({"query_encoder"} if shared else {"query_encoder", "passage_encoder"})
        assert model.shared is shared


def test_the_loss_of_uniform_scores_is_the_log_of_the_columns(
    train: Callable[..., BiEncoderResult], parts: Path
) -> None:
    """FAULTS D5: batch 4 without negatives, all scores equal."""
    model = no_dropout(BiEncoder.from_pretrained(parts / "question"))
    norm = model.query_encoder.model.question_encoder.bert_model.encoder.layer[-1].output.LayerNorm
    norm.weight.data.zero_(), norm.bias.data.zero_()  # q(x) is 0 for every question
    result = train(model=model, dev=False, steps=1, eval_every=0, batch_size=4, hard_negatives=0)
    assert read_metrics(result.metrics_path)[0]["loss"] == pytest.approx(math.log(4))


@pytest.fixture(scope="module")
def whole(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run that nothing interrupts leaves."""
    run_dir = tmp_path_factory.mktemp("whole")
    model = BiEncoder.from_pretrained(parts / "question")
    train_bi_encoder(model, EXAMPLES, settings=SETTINGS, run_dir=run_dir, dev_examples=EXAMPLES)
    return outcome(run_dir)


@pytest.mark.parametrize("step", [1, 4, 6])
@pytest.mark.parametrize("place", ["in the step", "before the row", "before last", "after best"])
def test_killed_anywhere_it_ends_as_the_run_never_killed(
    train: Callable[..., BiEncoderResult],
    whole: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    place: str,
) -> None:
    saved = bi_encoder_loop.save_bi_encoder
    with monkeypatch.context() as patch:
        if place == "in the step":
            right = bi_encoder_step.in_batch_nll
            losses = {"count": 0}

            def nll(*arguments: Any, **options: Any) -> torch.Tensor:
                losses["count"] += 1
                if losses["count"] == step:
                    raise Killed
                return right(*arguments, **options)

            patch.setattr(bi_encoder_step, "in_batch_nll", nll)
        elif place == "before the row":
            append = MetricsLog.append

            def appended(self: MetricsLog, row: dict[str, Any]) -> None:
                if row["step"] == step:
                    raise Killed
                append(self, row)

            patch.setattr(MetricsLog, "append", appended)
        else:

            def save(model: BiEncoder, directory: Path, *, facts: dict[str, Any], **options: Any) -> None:
                last = directory.name == "last"
                if facts["step"] == step and last and place == "before last":
                    raise Killed
                saved(model, directory, facts=facts, **options)
                if facts["step"] >= step and not last and place == "after best":
                    raise Killed

            patch.setattr(bi_encoder_loop, "save_bi_encoder", save)
        try:
            train("killed")
        except Killed:
            pass
        else:
            assert place == "after best"  # no later evaluation was better
    train("killed")
    assert outcome(tmp_path / "killed") == whole


def test_what_is_complete_is_left_and_another_run_is_refused(
    train: Callable[..., BiEncoderResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(steps=2)
    before = outcome(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(bi_encoder_step, "in_batch_nll", lambda *_, **__: pytest.fail("a step was done"))
        assert train(steps=2).step == 2
    assert outcome(tmp_path / "run") == before
    for changes, key in ({"learning_rate": 1.0}, "training.learning_rate"), ({"hard_negatives": 0}, "training.hard"):
        with pytest.raises(ConfigError, match=f"{key}.* must equal .* of the interrupted run"):
            train(steps=2, **changes)
    with pytest.raises(ConfigError, match=r"data.dev_examples must equal '6 examples"):
        train(steps=2, dev=False, eval_every=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 1, "hard_negatives": 0}, "training.batch_size must be above 1 without negatives, got 1"),
        ({"best_metric": "bleu"}, "training.best_metric must be one of average_rank, mrr, success@1"),
        ({"steps": 0}, "training.steps must be at least 1, got 0"),
        ({"mixed_precision": "fp16"}, "training.mixed_precision must be one of no, bf16, got 'fp16'"),
        ({"warmup_steps": 9}, r"training.warmup_steps must be at most steps \(6\), got 9"),
        ({"dev": False}, "training.eval_every must be 0 without dev examples, got 2"),
    ],
)
def test_settings_that_cannot_be_are_named(
    train: Callable[..., BiEncoderResult], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(**changes)


def test_a_run_that_trains_nothing_or_nan_is_an_error(train: Callable[..., BiEncoderResult], parts: Path) -> None:
    with pytest.raises(TrainingError, match="encoders must change in training, got the same weights after step 6"):
        train("still", learning_rate=0.0)
    model = BiEncoder.from_pretrained(parts / "question")
    next(model.parameters()).data[:] = float("nan")
    with pytest.raises(TrainingError, match="loss and gradients must be finite, got loss nan .* at step 1"):
        train("nan", model=model, dev=False, eval_every=0)
    with pytest.raises(TrainingError, match="examples must hold at least one example"):
        train_bi_encoder(model, [], settings=replace(SETTINGS, eval_every=0), run_dir=parts / "none")


def test_the_best_is_the_lowest_rank_or_the_highest_success() -> None:
    assert replace(SETTINGS, best_metric="average_rank").best_mode == "min"
    assert {replace(SETTINGS, best_metric=name).best_mode for name in ("mrr", "success@5")} == {"max"}


CHILD = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
from tests.training.test_bi_encoder_loop import EXAMPLES, SETTINGS, no_dropout
from ragx.training import bi_encoder_loop, bi_encoder_step
from ragx.training.bi_encoder_model import BiEncoder

parts, run_dir, options = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
kill, right = options.pop("kill", None), bi_encoder_step.in_batch_nll
count = [0]

def nll(*arguments, **settings):
    count[0] += 1
    if count[0] == kill and os.environ.get("RANK", "0") == "0":
        os.kill(os.getpid(), 9)
    return right(*arguments, **settings)

bi_encoder_step.in_batch_nll = nll
model = BiEncoder.from_pretrained(parts / "question")
model = no_dropout(model) if options.pop("still", False) else model
bi_encoder_loop.train_bi_encoder(
    model, EXAMPLES, settings=replace(SETTINGS, **options), run_dir=run_dir, dev_examples=EXAMPLES
)
"""


def launch(processes: int, parts: Path, run_dir: Path, **options: Any) -> int:
    """Trains in processes of their own; returns the exit status."""
    script = run_dir.parent / "child.py"
    script.write_text(CHILD)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    command = [sys.executable, *launcher, str(script), str(parts), str(run_dir), json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0 or "kill" in options, done.stderr
    return done.returncode


@pytest.mark.slow
def test_two_processes_have_the_loss_and_gradient_of_one(parts: Path, tmp_path: Path) -> None:
    """FAULTS D5: five questions on two processes, unlike numbers of negatives; each keeps its own positive."""
    for processes in (1, 2):
        launch(processes, parts, tmp_path / str(processes), still=True, steps=4)
    one, two = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("1", "2"))
    assert len(one) == len(two) == 4
    for single, mine in zip(one, two, strict=True):
        for key in ("loss", "grad_norm", "correct", "passages", "false_negatives", "examples"):
            assert mine[key] == pytest.approx(single[key], rel=1e-5), key
    assert two[-1]["eval/average_rank"] == one[-1]["eval/average_rank"]  # its pool is shared out and put together
    # Adam's first moments are means of the gradients, parameter by parameter. Weights would show less: the bias of a
    # key has no gradient but rounding, of which Adam makes full steps.
    moments = [load_file(tmp_path / name / "checkpoints/last/optimizer.safetensors") for name in ("1", "2")]
    names = [name for name in moments[0] if name.startswith("exp_avg/")]
    assert len(names) > 20 and any(float(moments[0][name].abs().max()) > 1e-3 for name in names)
    for name in names:
        torch.testing.assert_close(moments[1][name], moments[0][name], atol=1e-6, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_after_sigkill_it_ends_as_the_run_never_killed(processes: int, parts: Path, tmp_path: Path) -> None:
    launch(processes, parts, tmp_path / "whole", steps=4)
    assert launch(processes, parts, tmp_path / "killed", steps=4, kill=3) != 0  # an end, not a hang (FAULTS D2)
    launch(processes, parts, tmp_path / "killed", steps=4)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
