"""One optimizer step by hand: which mean, how a batch may be cut, and what happens to values that are not finite."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from ragx.errors import TrainingError
from ragx.records import Example
from ragx.training.collapse import prior_entropy
from ragx.training.optim import build_optimizer, build_schedule
from ragx.training.settings import TrainingSettings
from ragx.training.step import MOST_SKIPPED, Stepper, seed_step

# The answer spells the target tokens and the sum of their negative log-probabilities under a weight of 1: "9:9.0".
ONE_AND_NINE = [Example("short", "a", ("1:2.0",)), Example("long", "b", ("9:9.0",))]
PRIOR = torch.tensor([0.5, 0.25, 0.25]).log()
EXPLAINED = torch.tensor([[0.25], [0.5], [0.5]]).log()  # p(y|x,z), which makes the posterior even


class Scripted(nn.Module):
    """A model whose -log p(y|x) is what the answer says, times its only weight, times `factor`."""

    freeze_query_encoder = False
    query_encoder = None
    kind, n_docs, filtered_by = "rag_sequence", 3, ()

    def __init__(self, *, retrieves: bool = True) -> None:
        super().__init__()
        self.generator = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.generator.weight)
        self.factor, self.retrieves = 1.0, retrieves

    def prepare(self, queries: list[str], answers: list[str], *, filters: Any) -> Any:
        assert filters == [None] * len(queries)
        return list(answers)

    def forward(self, queries: list[str], answers: list[str], *, prepared: Any, label_smoothing: float) -> Any:
        assert prepared == list(answers)
        tokens, sums = zip(*(map(float, answer.split(":")) for answer in answers), strict=True)
        nll = self.generator.weight.squeeze() * torch.tensor(sums) * self.factor
        rows = np.array([[ord(query[0]), 0, 1] for query in queries])
        return SimpleNamespace(
            nll=nll,
            smoothed_nll=nll * (1 + label_smoothing),
            n_tokens=int(sum(tokens)),
            doc_logprobs=PRIOR.expand(len(queries), 3) if self.retrieves else None,
            token_logprobs=EXPLAINED.expand(len(queries), 3, 1),
            retrieved=SimpleNamespace(rows=rows) if self.retrieves else None,
        )


def stepper(model: nn.Module, *, fp16: bool = False, **options: Any) -> Stepper:
    """A stepper at a constant rate of 0.5, without clipping unless told."""
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True)
    if fp16:  # the loss scaling that accelerate sets up on a GPU, on the CPU
        accelerator.state._mixed_precision = "fp16"
        accelerator.native_amp, accelerator.scaler = True, torch.amp.GradScaler("cpu", init_scale=2.0**20)
    values = {"steps": 9, "batch_size": 2, "max_grad_norm": 0.0, "schedule": "constant", **options}
    settings = TrainingSettings(**values)
    optimizer = build_optimizer(model, generator_lr=0.5, query_encoder_lr=0.5)
    schedule = build_schedule(optimizer, name=settings.schedule, warmup_steps=0, total_steps=settings.steps)
    return Stepper(
        accelerator,
        model=model,
        source=model,  # type: ignore[arg-type]
        optimizer=accelerator.prepare(optimizer),
        schedule=schedule,
        settings=settings,
    )


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("reduction", "loss"), [("mean_sequence", (2.0 + 9.0) / 2), ("mean_token", (2.0 + 9.0) / 10)])
def test_loss_and_gradient_are_the_mean_over_the_whole_batch(parts: int, reduction: str, loss: float) -> None:
    row = stepper(Scripted(), gradient_accumulation=parts, reduction=reduction).run(1, ONE_AND_NINE)
    assert row["loss"] == pytest.approx(loss)
    assert row["grad_norm/generator"] == pytest.approx(loss)  # the loss is linear in the weight
    assert (row["tokens"], row["examples"], row["reduction"]) == (10, 2, reduction)


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5])
def test_uneven_micro_batches_weigh_every_example_alike(parts: int) -> None:
    batch = [Example(str(i), "q", (f"1:{i}",)) for i in (1, 2, 4, 8, 16)]
    row = stepper(Scripted(), gradient_accumulation=parts, batch_size=5).run(1, batch)
    assert row["grad_norm/generator"] == pytest.approx(31 / 5)


def test_a_batch_of_doubles_has_the_loss_of_the_batch() -> None:
    one = stepper(Scripted()).run(1, ONE_AND_NINE)
    two = stepper(Scripted()).run(1, ONE_AND_NINE * 2)
    assert one["loss"] == two["loss"]


def test_the_smoothed_loss_is_what_is_minimized_and_both_are_logged() -> None:
    row = stepper(Scripted(), label_smoothing=0.5).run(1, ONE_AND_NINE)
    assert (row["loss"], row["nll"]) == (pytest.approx(5.5 * 1.5), pytest.approx(5.5))
    assert row["grad_norm/generator"] == pytest.approx(5.5 * 1.5)
    assert "nll" not in stepper(Scripted()).run(1, ONE_AND_NINE)


def test_a_batch_beyond_the_memory_names_what_takes_it() -> None:
    model = Scripted()
    model.passages_at_once, model.n_docs = 4, 50
    model.generator.inputs = SimpleNamespace(max_length=300)  # type: ignore[assignment]

    def fail(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    model.forward = fail  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match="got 2 examples with 4 of n_docs=50 passages at once, inputs of up to 300"):
        stepper(model).run(1, ONE_AND_NINE)


def test_clipping_bounds_the_step_and_not_the_reported_norm() -> None:
    clipped, free = Scripted(), Scripted()
    weights = []
    for model, limit in ((clipped, 0.1), (free, 0.0)):
        run = stepper(model, max_grad_norm=limit)
        assert run.run(1, ONE_AND_NINE)["grad_norm/generator"] == pytest.approx(5.5)
        weights.append(run.optimizer.optimizer.state[model.generator.weight]["exp_avg"].item())
    assert weights == pytest.approx([0.1 * 0.1, 0.1 * 5.5])  # Adam's first moment is (1 - beta1) times the gradient


def test_the_row_tells_of_the_retriever() -> None:
    batch = [Example("1", "a", ("1:1",)), Example("2", "a", ("1:1",)), Example("3", "b", ("1:1",))]
    row = stepper(Scripted(), batch_size=3, gradient_accumulation=2).run(1, batch)
    assert (row["distinct_top1"], row["queries"]) == (2, 2)
    assert row["prior_entropy"] == pytest.approx(1.5 * np.log(2))
    assert row["posterior_entropy"] == pytest.approx(np.log(3))
    assert row["kl_posterior_prior"] == pytest.approx((np.log(2 / 3) + 2 * np.log(4 / 3)) / 3)
    assert row["lr/generator"] == 0.5


def test_closed_book_has_no_retrieval_columns() -> None:
    row = stepper(Scripted(retrieves=False)).run(1, ONE_AND_NINE)
    retrieval = {"distinct_top1", "queries", "prior_entropy", "posterior_entropy", "kl_posterior_prior"}
    assert not retrieval & set(row)


def test_entropy_ignores_masked_passages() -> None:
    masked = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).log()
    torch.testing.assert_close(prior_entropy(masked), torch.tensor([np.log(2), 0.0], dtype=torch.float32))


def test_a_loss_that_is_not_a_number_names_the_example_and_spares_the_weights() -> None:
    model = Scripted()
    with pytest.raises(TrainingError, match="got a value of examples broken at step 4 that is not"):
        stepper(model, gradient_accumulation=2).run(4, [ONE_AND_NINE[0], Example("broken", "b", ("1:nan",))])
    assert model.generator.weight.item() == 1.0


def test_a_gradient_that_is_not_finite_is_an_error_though_the_loss_is() -> None:
    model = Scripted()
    model.generator.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(TrainingError, match="got a value in the backward pass at step 1"):
        stepper(model).run(1, ONE_AND_NINE)
    assert model.generator.weight.item() == 1.0


def test_an_fp16_overflow_is_skipped_counted_and_over_when_the_scale_fits() -> None:
    model = Scripted()
    run = stepper(model, fp16=True)
    model.factor = 7e4 * 1e38  # beyond fp32 too, whatever the scale
    row = run.run(1, ONE_AND_NINE)
    assert (row["skipped_steps"], run.last_was_skipped) == (1, True)
    assert model.generator.weight.item() == 1.0
    assert run.accelerator.scaler.get_scale() == 2.0**19
    model.factor = 1.0
    row = run.run(2, ONE_AND_NINE)
    assert (row["skipped_steps"], run.last_was_skipped) == (1, False)
    assert row["grad_norm/generator"] == pytest.approx(5.5)  # the scale is taken out again
    assert model.generator.weight.item() == pytest.approx(0.5)  # Adam's first step is one learning rate


def test_a_run_that_only_overflows_ends() -> None:
    model = Scripted()
    run = stepper(model, fp16=True)
    model.factor = float("nan")
    for step in range(1, MOST_SKIPPED + 1):
        run.run(step, ONE_AND_NINE)
    with pytest.raises(TrainingError, match="must be finite"):
        run.run(MOST_SKIPPED + 1, ONE_AND_NINE)


def test_random_state_is_a_function_of_seed_step_and_process() -> None:
    def draw(*key: int) -> tuple[float, float]:
        seed_step(*key)
        return torch.rand(()).item(), np.random.rand()

    assert draw(0, 1, 0) == draw(0, 1, 0)
    assert len({draw(*key) for key in [(0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1), (0, 11, 0), (0, 1, 10)]}) == 6
