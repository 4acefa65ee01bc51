"""Groups, Adam, schedules, and the optimizer's state as named tensors."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import nn

from ragx.errors import CheckpointError, TrainingError
from ragx.model import RagModel
from ragx.training.optim import (
    build_optimizer,
    build_schedule,
    checksums,
    gradient_norms,
    load_optimizer_tensors,
    optimizer_tensors,
    trainable,
    without_gradient,
)


class Halves(nn.Module):
    """Two linear layers under the names of a model's halves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.generator, self.query_encoder = nn.Linear(3, 2), nn.Linear(2, 2)

    def loss(self) -> torch.Tensor:
        return self.query_encoder(self.generator(torch.ones(1, 3))).square().sum()


def optimizer_of(model: nn.Module, **options: float) -> torch.optim.Optimizer:
    return build_optimizer(model, **{"generator_lr": 0.1, "query_encoder_lr": 0.01, **options})  # type: ignore[arg-type]


def step(model: Halves, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model.loss().backward()
    optimizer.step()


def test_every_trainable_parameter_is_in_one_group_at_its_own_rate(make_model: Callable[..., RagModel]) -> None:
    model = make_model()
    optimizer = optimizer_of(model)
    assert [(group["name"], group["lr"]) for group in optimizer.param_groups] == [
        ("generator", 0.1),
        ("query_encoder", 0.01),
    ]
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in model.parameters())


def test_without_weight_decay_it_is_adam() -> None:
    ours, reference = Halves(), Halves()
    optimizer = optimizer_of(ours)
    adam = torch.optim.Adam(
        [
            {"params": reference.generator.parameters(), "lr": 0.1},
            {"params": reference.query_encoder.parameters(), "lr": 0.01},
        ]
    )
    for _ in range(3):
        step(ours, optimizer)
        step(reference, adam)
    for mine, theirs in zip(ours.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


def test_weight_decay_shrinks_matrices_and_spares_vectors() -> None:
    model = Halves()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = optimizer_of(model, weight_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(model.generator.weight, before["generator.weight"] * (1 - 0.1 * 0.5))
    torch.testing.assert_close(model.query_encoder.weight, before["query_encoder.weight"] * (1 - 0.01 * 0.5))
    assert torch.equal(model.generator.bias, before["generator.bias"])


def test_a_frozen_query_encoder_has_no_group(
    make_model: Callable[..., RagModel], caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model()
    model.freeze_query_encoder = True
    with caplog.at_level(logging.INFO):
        assert list(trainable(model)) == ["generator"]
    assert "query encoder is frozen" in caplog.text


def test_a_frozen_generator_is_an_error() -> None:
    model = Halves()
    model.generator.requires_grad_(False)
    with pytest.raises(TrainingError, match="generator must have trainable parameters"):
        optimizer_of(model)


def test_a_parameter_of_neither_half_is_an_error() -> None:
    model = Halves()
    model.extra = nn.Linear(1, 1)
    with pytest.raises(TrainingError, match=r"extra\.weight must belong to one of generator, query_encoder"):
        optimizer_of(model)


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("constant", [1 / 2, 1, 1, 1, 1, 1]),
        ("linear", [1 / 2, 1, 1, 3 / 4, 2 / 4, 1 / 4]),
        ("cosine", [1 / 2, 1, 1, (1 + 0.5**0.5) / 2, 1 / 2, (1 - 0.5**0.5) / 2]),
    ],
)
def test_schedules_by_hand(name: str, factors: list[float]) -> None:
    optimizer = optimizer_of(Halves())
    schedule = build_schedule(optimizer, name=name, warmup_steps=2, total_steps=6)
    for number, factor in enumerate(factors):
        assert schedule.apply(number) == pytest.approx({"generator": 0.1 * factor, "query_encoder": 0.01 * factor})
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.1 * factor, 0.01 * factor])


def test_rates_are_reported_once_a_group_with_weight_decay() -> None:
    optimizer = optimizer_of(Halves(), weight_decay=0.1)
    assert len(optimizer.param_groups) == 4
    assert list(build_schedule(optimizer, name="linear", warmup_steps=0, total_steps=2).apply(0)) == [
        "generator",
        "query_encoder",
    ]


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(ValueError, match="constant, linear, cosine, got 'linar'"):
        build_schedule(optimizer_of(Halves()), name="linar", warmup_steps=0, total_steps=1)


def test_gradient_norms_by_hand() -> None:
    model = Halves()
    groups = trainable(model)
    model.generator.weight.grad = torch.tensor([[3.0, 0, 0], [0, 0, 0]])
    model.generator.bias.grad = torch.tensor([0.0, 4.0])
    norms = gradient_norms(groups)
    assert {group: float(norm) for group, norm in norms.items()} == {"generator": 5.0, "query_encoder": 0.0}
    assert without_gradient(groups) == {
        "generator": [],
        "query_encoder": ["query_encoder.weight", "query_encoder.bias"],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_checksum_sees_the_smallest_change_of_one_weight(dtype: torch.dtype) -> None:
    model = Halves().to(dtype)
    groups = trainable(model)
    before = checksums(groups)
    assert checksums(groups) == before
    with torch.no_grad():
        weight = model.query_encoder.weight
        weight[1, 1] = torch.nextafter(weight[1, 1].float(), torch.tensor(9.0)) if dtype != torch.bfloat16 else 9.0
    after = checksums(groups)
    assert after["query_encoder"] != before["query_encoder"]
    assert after["generator"] == before["generator"]


def test_state_that_was_stored_continues_bit_for_bit() -> None:
    whole, resumed = Halves(), Halves()
    optimizer = optimizer_of(whole, weight_decay=0.1)
    for _ in range(2):
        step(whole, optimizer)
    resumed.load_state_dict(whole.state_dict())
    tensors = {name: tensor.clone() for name, tensor in optimizer_tensors(whole, optimizer).items()}
    assert {name.split("/")[0] for name in tensors} == {"step", "exp_avg", "exp_avg_sq"}
    second = optimizer_of(resumed, weight_decay=0.1)
    load_optimizer_tensors(resumed, second, tensors)
    for _ in range(2):
        step(whole, optimizer)
        step(resumed, second)
    for mine, theirs in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_state_of_other_parameters_is_refused() -> None:
    model = Halves()
    optimizer = optimizer_of(model)
    step(model, optimizer)
    tensors = optimizer_tensors(model, optimizer)
    tensors["exp_avg/generator.other"] = tensors.pop("exp_avg/generator.bias")
    del tensors["exp_avg_sq/generator.bias"], tensors["step/generator.bias"]
    with pytest.raises(CheckpointError, match=r"surplus \['generator.other'\] \(1\) and missing \['generator.bias'\]"):
        load_optimizer_tensors(model, optimizer, tensors)
