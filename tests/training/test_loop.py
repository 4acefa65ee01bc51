"""A whole run on a tiny world: what it learns, chooses, refuses and warns of."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragx.errors import CheckpointError, ConfigError, TrainingError
from ragx.model import RagModel
from ragx.records import Example
from ragx.training.checkpoint import load_checkpoint
from ragx.training.loop import TrainingSettings, mean_nll, train
from ragx.training.metrics_log import read_metrics

MakeModel = Callable[..., RagModel]
SETTINGS = TrainingSettings(
    steps=3, batch_size=4, generator_lr=3e-3, query_encoder_lr=1e-3, device="cpu", progress=False
)


def weights(model: RagModel) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def no_dropout(model: RagModel) -> RagModel:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):  # BART's layers hold the rate itself
            setattr(module, "dropout", 0.0)  # noqa: B010
    return model


def scripted(values: Sequence[float], name: str = "metric") -> Callable[..., dict[str, float]]:
    """An evaluation that yields `values` in order, the first of them before training."""
    left = iter(values)
    return lambda model, examples: {name: next(left)}


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token", "closed_book"])
def test_training_lowers_the_loss_of_each_kind_and_logs_every_step(
    kind: str, make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    settings = replace(SETTINGS, steps=12, eval_every=6)
    result = train(make_model(kind), examples, settings=settings, run_dir=tmp_path, dev_examples=examples)
    rows = read_metrics(result.metrics_path)
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert [row["step"] for row in rows if "eval/nll" in row] == [6, 12]
    initial, final = result.initial_metrics["nll"], result.final_metrics["nll"]
    assert initial is not None and final is not None and final < 0.9 * initial
    assert (result.step, result.best_step, result.best_value) == (12, 12, final)
    retrieval = {"distinct_top1", "queries", "prior_entropy", "posterior_entropy", "kl_posterior_prior"}
    retrieval |= {"lr/query_encoder", "grad_norm/query_encoder"}
    assert retrieval <= set(rows[0]) if kind != "closed_book" else not retrieval & set(rows[0])


def test_the_best_checkpoint_gives_the_best_value(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    model = make_model()
    settings = replace(SETTINGS, steps=6, eval_every=2, best_metric="metric", best_mode="max")
    seen = []

    def evaluate(model: RagModel, dev: Sequence[Example]) -> dict[str, float]:
        seen.append(mean_nll(4)(model, dev)["nll"])
        return {"metric": [0.0, 0.2, 0.5, 0.4][len(seen) - 1]}

    result = train(model, examples, settings=settings, run_dir=tmp_path, dev_examples=examples, evaluate=evaluate)
    assert (result.best_step, result.best_value) == (4, 0.5)
    assert result.checkpoint == result.best_checkpoint == tmp_path / "checkpoints" / "best"
    assert not (result.checkpoint / "optimizer.safetensors").exists()
    for checkpoint, expected in ((result.checkpoint, seen[2]), (result.last_checkpoint, seen[3])):
        loaded = load_checkpoint(checkpoint, retriever=model.retriever)
        with torch.no_grad():
            assert mean_nll(4)(loaded, examples)["nll"] == expected


def test_the_useful_passage_gains_while_index_and_passage_vectors_stand_still(
    make_model: MakeModel, examples: list[Example], parts: Path, tmp_path: Path
) -> None:
    def useful_prior(model: RagModel, dev: Sequence[Example]) -> dict[str, float]:
        """The prior of the passage under which the answer is most probable; the generator stands still."""
        output = model([e.query for e in dev], [e.answers[0] for e in dev])
        assert output.doc_logprobs is not None
        useful = output.token_logprobs.sum(2).argmax(1, keepdim=True)
        return {"useful": float(output.doc_logprobs.exp().gather(1, useful).mean())}

    def hashes() -> dict[str, str]:
        files = (file for file in (parts / "index").rglob("*") if file.is_file())
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    before = hashes()
    settings = replace(SETTINGS, steps=60, batch_size=6, generator_lr=0.0, query_encoder_lr=1e-2, schedule="constant")
    settings = replace(settings, best_metric="useful", best_mode="max")
    model = no_dropout(make_model(n_docs=6))
    result = train(model, examples, settings=settings, run_dir=tmp_path, dev_examples=examples, evaluate=useful_prior)
    initial, final = result.initial_metrics["useful"], result.final_metrics["useful"]
    assert initial is not None and final is not None and initial < 0.3 and final > 2 * initial
    assert hashes() == before


def test_each_group_gets_a_gradient_in_every_tensor(make_model: MakeModel, examples: list[Example]) -> None:
    model = make_model().train()
    model([e.query for e in examples], [e.answers[0] for e in examples]).loss.backward()
    assert model.query_encoder is not None
    for name, parameter in model.query_encoder.named_parameters():
        # A key bias shifts all scores of a query alike: its gradient is zero but for rounding.
        if not name.endswith("key.bias"):
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("reduction", ["mean_sequence", "mean_token"])
def test_accumulated_gradients_equal_those_of_the_whole_batch(
    reduction: str, make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    rows = {}
    for parts in (1, 2, 3):
        settings = replace(SETTINGS, steps=2, batch_size=5, gradient_accumulation=parts, reduction=reduction)
        train(no_dropout(make_model()), examples, settings=settings, run_dir=tmp_path / str(parts))
        rows[parts] = read_metrics(tmp_path / str(parts) / "metrics.jsonl")
    for parts in (2, 3):
        for mine, whole in zip(rows[parts], rows[1], strict=True):
            for key in ("loss", "grad_norm/generator", "grad_norm/query_encoder", "prior_entropy"):
                assert mine[key] == pytest.approx(whole[key], rel=1e-4), key
            assert mine["tokens"] == whole["tokens"]


def test_the_mean_is_over_examples_not_over_batches(make_model: MakeModel, examples: list[Example]) -> None:
    model = make_model().eval()
    with torch.no_grad():
        values = [mean_nll(n)(model, examples[:5])["nll"] for n in (1, 4, 5)]
    assert values == pytest.approx([values[0]] * 3, rel=1e-5)


@pytest.mark.parametrize("options", [{"gradient_checkpointing": True}, {"mixed_precision": "bf16"}])
def test_options_that_save_memory_leave_the_step_about_the_same(
    options: dict[str, Any], make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    model = no_dropout(make_model())
    results = {}
    for name, chosen, subject in (("plain", {}, no_dropout(make_model())), ("saving", options, model)):
        train(subject, examples, settings=replace(SETTINGS, steps=2, **chosen), run_dir=tmp_path / name)
        results[name] = read_metrics(tmp_path / name / "metrics.jsonl")
    tolerance = 0.05 if "mixed_precision" in options else 1e-4
    for plain, saving in zip(results["plain"], results["saving"], strict=True):
        assert saving["loss"] == pytest.approx(plain["loss"], rel=tolerance)
        assert saving["grad_norm/generator"] == pytest.approx(plain["grad_norm/generator"], rel=tolerance)
        assert (saving["loss"] == plain["loss"]) == ("mixed_precision" not in options)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_smoothing_is_minimized_logged_and_kept_out_of_the_evaluation(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    settings = replace(SETTINGS, steps=12, label_smoothing=0.2, passages_at_once=2, eval_every=12)
    model = make_model("rag_token")
    result = train(model, examples, settings=settings, run_dir=tmp_path, dev_examples=examples)
    rows = read_metrics(result.metrics_path)
    assert all(row["loss"] > row["nll"] for row in rows[-3:])
    assert rows[-1]["loss"] < rows[0]["loss"] and rows[-1]["nll"] < rows[0]["nll"]
    with torch.no_grad():
        plain = mean_nll(6)(model, examples)["nll"]
    assert rows[-1]["eval/nll"] == pytest.approx(plain, rel=1e-6)
    assert model.passages_at_once == 0  # as it was


def test_passages_in_groups_train_as_all_together(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    rows = {}
    for at_once in (0, 1, 2):
        settings = replace(SETTINGS, steps=2, gradient_accumulation=2, passages_at_once=at_once)
        settings = replace(settings, gradient_checkpointing=at_once == 2)
        train(no_dropout(make_model()), examples, settings=settings, run_dir=tmp_path / str(at_once))
        rows[at_once] = read_metrics(tmp_path / str(at_once) / "metrics.jsonl")
    for at_once in (1, 2):
        for mine, whole in zip(rows[at_once], rows[0], strict=True):
            for key in ("loss", "grad_norm/generator", "grad_norm/query_encoder"):
                assert mine[key] == pytest.approx(whole[key], rel=1e-5), key


def test_small_numbers_are_flushed_in_a_library_call_too(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    torch.set_flush_denormal(False)
    denormal = torch.tensor([1e-40])
    assert (denormal * 1.0).item() > 0
    train(make_model(), examples, settings=SETTINGS, run_dir=tmp_path)
    assert (denormal * 1.0).item() == 0


def test_a_run_never_takes_the_place_of_other_files(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    (tmp_path / "checkpoints" / "best").mkdir(parents=True)
    (tmp_path / "checkpoints" / "best" / "notes.txt").write_text("mine")
    for resume in (True, False):
        with pytest.raises(CheckpointError, match=r"got .*best with notes\.txt"):
            train(make_model(), examples, settings=SETTINGS, run_dir=tmp_path, resume=resume)
    assert (tmp_path / "checkpoints" / "best" / "notes.txt").read_text() == "mine"


def test_training_stops_when_patience_runs_out(make_model: MakeModel, examples: list[Example], tmp_path: Path) -> None:
    settings = replace(SETTINGS, steps=9, eval_every=1, patience=2, best_metric="metric", best_mode="max")
    evaluate = scripted([0.0, 0.1, 0.3, 0.2, 0.3])
    result = train(make_model(), examples, settings=settings, run_dir=tmp_path, evaluate=evaluate)
    assert (result.step, result.best_step, result.stopped_early) == (4, 2, True)
    again = train(make_model(), examples, settings=settings, run_dir=tmp_path, evaluate=evaluate)
    assert replace(again, seconds=result.seconds) == result


def test_a_frozen_query_encoder_stays_and_is_no_error(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    model = make_model()
    model.freeze_query_encoder = True
    before = weights(model)
    train(model, examples, settings=SETTINGS, run_dir=tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == name.startswith("query_encoder"), name


def test_no_step_and_no_example_are_errors(make_model: MakeModel, examples: list[Example], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"training\.steps must be at least 1, got 0"):
        train(make_model(), examples, settings=replace(SETTINGS, steps=0), run_dir=tmp_path)
    with pytest.raises(TrainingError, match="examples must hold at least one example, got none"):
        train(make_model(), [], settings=SETTINGS, run_dir=tmp_path)


def test_weights_that_never_change_are_an_error(make_model: MakeModel, examples: list[Example], tmp_path: Path) -> None:
    settings = replace(SETTINGS, generator_lr=0.0, query_encoder_lr=0.0)
    with pytest.raises(TrainingError, match="generator and query_encoder must change in training, got the same"):
        train(make_model(), examples, settings=settings, run_dir=tmp_path)
    assert not (tmp_path / "checkpoints").exists()


def test_one_group_that_never_changes_is_a_warning(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(make_model(), examples, settings=replace(SETTINGS, query_encoder_lr=0.0), run_dir=tmp_path)
    assert "no weight of query_encoder changed in 3 steps" in caplog.text


def test_a_query_encoder_that_the_loss_does_not_reach_is_an_error(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    monkeypatch.setattr("ragx.model.doc_scores_of", lambda found, q, **_: torch.as_tensor(found.doc_scores))
    with pytest.raises(TrainingError, match="query_encoder must receive a gradient, got none for any"):
        train(model, examples, settings=SETTINGS, run_dir=tmp_path)


def test_one_passage_teaches_the_retriever_nothing_and_that_is_said(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(make_model(n_docs=1), examples, settings=SETTINGS, run_dir=tmp_path)
    assert "gradient of query_encoder is exactly 0" in caplog.text


def test_a_loss_that_is_not_a_number_ends_the_run_before_any_checkpoint(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    model = make_model()
    with torch.no_grad():
        next(model.generator.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="must be finite"):
        train(model, examples, settings=SETTINGS, run_dir=tmp_path)
    assert not (tmp_path / "checkpoints").exists()


def test_a_metric_that_is_never_a_number_leaves_no_best(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    settings = replace(SETTINGS, best_metric="metric")
    evaluate = scripted([float("nan")] * 2)
    result = train(make_model(), examples, settings=settings, run_dir=tmp_path, evaluate=evaluate)
    assert (result.best_step, result.best_checkpoint, result.checkpoint) == (None, None, result.last_checkpoint)
    assert result.final_metrics == {"metric": None}


def test_a_misspelt_metric_ends_the_run_before_the_first_step(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    model = make_model()
    before = weights(model)
    with pytest.raises(ConfigError, match="best_metric must be one of metric, got 'nll'"):
        train(model, examples, settings=SETTINGS, run_dir=tmp_path, evaluate=scripted([0.1]))
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eval_every": 2}, r"training\.eval_every must be 0 without dev examples, got 2"),
        ({"patience": 1}, r"training\.patience must be 0 without dev examples, got 1"),
        ({"label_smoothing": 1.0}, r"training\.label_smoothing must be at least 0 and below 1, got 1\.0"),
        ({"passages_at_once": -1}, r"training\.passages_at_once must be at least 0, got -1"),
        ({"fsdp": True}, r"training\.fsdp must be false with one process, got true"),
        ({"fsdp": True, "compile": True, "mixed_precision": "fp16"}, r"(?s)fsdp must be false with fp16.*with compile"),
        ({"mixed_precision": "fp16"}, r"training\.mixed_precision must be one that cpu has, got 'fp16'"),
        ({"schedule": "linar", "max_grad_norm": -1.0}, r"(?s)schedule must .*max_grad_norm must"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    options: dict[str, Any], message: str, make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(make_model(), examples, settings=replace(SETTINGS, **options), run_dir=tmp_path)


def test_without_wandb_training_ends_as_with_it(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with caplog.at_level(logging.WARNING):
        result = train(make_model(), examples, settings=replace(SETTINGS, wandb_project="capitals"), run_dir=tmp_path)
    assert result.step == 3
    assert "wandb is off" in caplog.text
