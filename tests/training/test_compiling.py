"""`torch.compile` of the generator's halves: the same numbers, nothing left behind, and a word where it cannot be."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ragx.errors import ConfigError
from ragx.model import RagModel
from ragx.records import Example
from ragx.training.compiling import compiled, require_compiler
from ragx.training.loop import train
from ragx.training.metrics_log import read_metrics
from tests.training.test_loop import SETTINGS, no_dropout

MakeModel = Callable[..., RagModel]
CPU = torch.device("cpu")


def test_both_halves_run_compiled_inside_and_as_they_were_outside(
    make_model: MakeModel, examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model().eval()
    queries, answers = [e.query for e in examples[:2]], [e.answers[0] for e in examples[:2]]
    expected = model(queries, answers).nll
    names = list(model.state_dict())
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    with compiled(model.generator, enabled=True, backend=backend):  # type: ignore[arg-type]
        torch.testing.assert_close(model(queries, answers).nll, expected, atol=1e-5, rtol=1e-5)
        assert list(model.state_dict()) == names
        assert len(graphs) >= 2
    seen = len(graphs)
    assert torch.equal(model(queries[:1], answers[:1]).nll, model(queries[:1], answers[:1]).nll)
    assert len(graphs) == seen  # a new shape, and nothing is compiled any more
    torch._dynamo.reset()


def test_without_a_compiler_it_says_so(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    message = r"training\.compile must be false without a C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\), got true"
    with pytest.raises(ConfigError, match=message):
        train(make_model(), examples, settings=replace(SETTINGS, compile=True), run_dir=tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="without the package triton, got true"):
        require_compiler(torch.device("cuda"))


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler")
def test_a_compiled_run_has_the_losses_and_gradients_of_the_plain_one(
    make_model: MakeModel, examples: list[Example], tmp_path: Path
) -> None:
    require_compiler(CPU)
    rows = []
    for compile_ in (False, True):
        settings = replace(SETTINGS, steps=2, compile=compile_, passages_at_once=2)
        train(no_dropout(make_model()), examples, settings=settings, run_dir=tmp_path / str(compile_))
        rows.append(read_metrics(tmp_path / str(compile_) / "metrics.jsonl"))
    for plain, mine in zip(*rows, strict=True):
        for key in ("loss", "grad_norm/generator", "grad_norm/query_encoder"):
            assert mine[key] == pytest.approx(plain[key], rel=1e-3), key
    torch._dynamo.reset()
