"""The pretraining loop resumes exactly, refuses other settings and a loss that is not a number."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ragx.errors import CheckpointError, ConfigError, TrainingError
from ragx.training.pretraining import PretrainingSettings, pretrain

SETTINGS = PretrainingSettings(
    steps=12, batch_size=4, learning_rate=0.05, warmup_steps=3, max_grad_norm=1.0, seed=0, save_every=4
)


class Killed(Exception):
    """Stands for a kill."""


def _module() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 1))


def _run(folder: Path, *, die_at: int | None = None, settings: PretrainingSettings = SETTINGS) -> nn.Module:
    module = _module()

    def step_loss(step: int) -> Tensor:
        if step == die_at:
            raise Killed
        data = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
        return ((module(data).squeeze(1) - data.sum(1)) ** 2).mean()

    pretrain(module, step_loss, settings=settings, folder=folder, evaluate=lambda: {"figure": 1.0})
    return module


def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = _run(tmp_path / "whole")
    for die_at in (6, 10):
        with pytest.raises(Killed, match="^$"):
            _run(tmp_path / "killed", die_at=die_at)
    resumed = _run(tmp_path / "killed")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert not torch.equal(whole.state_dict()["0.weight"], _module().state_dict()["0.weight"])


def test_rows_hold_the_mean_loss_and_the_figures(tmp_path: Path) -> None:
    module = _module()
    losses = iter(float(i) for i in range(12))

    def step_loss(step: int) -> Tensor:
        return sum(p.sum() for p in module.parameters()) * 0.0 + next(losses)  # type: ignore[return-value]

    rows = pretrain(module, step_loss, settings=SETTINGS, folder=tmp_path, evaluate=lambda: {"figure": 2.0})
    assert [(row["step"], row["loss"], row["figure"]) for row in rows] == [(4, 1.5, 2), (8, 5.5, 2), (12, 9.5, 2)]


def test_other_settings_are_named(tmp_path: Path) -> None:
    _run(tmp_path)
    with pytest.raises(CheckpointError, match="got other values for learning_rate, seed"):
        _run(tmp_path, settings=dataclasses.replace(SETTINGS, learning_rate=0.1, seed=3))


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path: Path) -> None:
    module = _module()

    def step_loss(step: int) -> Tensor:
        return module(torch.full((1, 5), float("nan"))).sum()

    with pytest.raises(TrainingError, match="gradient norm must be finite, got nan at step 0"):
        pretrain(module, step_loss, settings=SETTINGS, folder=tmp_path, evaluate=dict)
    assert not (tmp_path / "state").exists()


def test_the_learning_rate_rises_then_falls() -> None:
    rates = [SETTINGS.rate(step) for step in range(12)]
    assert rates[:3] == pytest.approx([0.05 / 3, 0.1 / 3, 0.05])
    assert rates[2:] == sorted(rates[2:], reverse=True) and rates[-1] == pytest.approx(0.05 / 9)
    with pytest.raises(ConfigError, match="steps must be >= 1, got 0"):
        dataclasses.replace(SETTINGS, steps=0)
