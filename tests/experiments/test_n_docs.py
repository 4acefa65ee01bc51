"""Figure 3: one model, several numbers of passages, each with its predictions and its metrics."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragx.data.predictions import read_predictions
from ragx.errors import ConfigError
from ragx.experiments.n_docs import n_docs_curve
from ragx.generator.answered import Answered
from ragx.model import RagModel
from tests.experiments.conftest import SETTINGS, questions_of

ROOT = Path(__file__).parents[2]


def test_each_point_reads_as_many_passages_and_scores_success_up_to_it(
    make_model: Callable[..., RagModel], tmp_path: Path
) -> None:
    model, asked = make_model("rag_token", n_docs=2), questions_of("2016-12")
    curve = n_docs_curve(model, asked, tmp_path, n_docs=[3, 1, 3], decoder="token_beam", settings=SETTINGS)
    assert list(curve) == ["1", "3"]
    for point, ks in (("1", ["1"]), ("3", ["1", "3"])):
        found = read_predictions(tmp_path / f"{point}.jsonl")
        assert {len(prediction.passages) for prediction in found} == {int(point)}
        assert list(curve[point]["success_at"]) == ks
    assert curve["1"]["success_at"]["1"] == curve["3"]["success_at"]["1"]
    assert model.n_docs == 2


def test_a_point_that_is_done_is_not_answered_again(
    make_model: Callable[..., RagModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = make_model("rag_sequence"), questions_of("2016-12")
    first = n_docs_curve(model, asked, tmp_path, n_docs=[1], decoder="fast", settings=SETTINGS)
    read: list[int] = []
    generate = model.generate

    def counted(queries: Sequence[str], **options: Any) -> list[Answered]:
        read.append(model.n_docs)
        return generate(queries, **options)

    monkeypatch.setattr(model, "generate", counted)
    both = n_docs_curve(model, asked, tmp_path, n_docs=[1, 2], decoder="fast", settings=SETTINGS)
    assert set(read) == {2}
    assert both["1"]["exact_match"] == first["1"]["exact_match"]


def test_a_model_without_passages_has_no_curve(make_model: Callable[..., RagModel], tmp_path: Path) -> None:
    closed = make_model("closed_book")
    with pytest.raises(ConfigError, match="model.kind must be one that reads passages, got closed_book"):
        n_docs_curve(closed, questions_of("2016-12"), tmp_path, n_docs=[1], decoder="greedy", settings=SETTINGS)


def test_the_script_writes_the_curve(
    encoder_folder: Path,
    index_dirs: dict[str, Path],
    make_model: Callable[..., RagModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    generator = tmp_path / "generator"
    model = make_model("rag_token")
    model.generator.model.save_pretrained(generator)
    model.generator.tokenizer.save_pretrained(generator)
    rows = [json.dumps(example.to_json()) for example in questions_of("2016-12")]
    (tmp_path / "q.jsonl").write_text("\n".join(rows) + "\n")
    given = [
        f"generator.checkpoint={generator}",
        "generator.max_input_length=48",
        f"retriever.query_encoder={encoder_folder}",
        f"retriever.passage_encoder={encoder_folder}",
        f"index.directory={index_dirs['2016-12']}",
        f"data.questions={tmp_path}/q.jsonl",
        "model.kind=rag_token",
        "model.n_docs=1",
        "n_docs=[1,2]",
        "max_questions=2",
        "decoding.max_length=4",
        "decoding.num_beams=1",
        "decoding.device=cpu",
        f"hydra.run.dir={tmp_path}/run",
    ]
    monkeypatch.setattr(sys, "argv", ["n_docs.py", *given])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "scripts" / "n_docs.py"), run_name="__main__")
    curve = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [curve[k]["exact_match"]["n"] for k in ("1", "2")] == [2, 2]
    assert len(read_predictions(tmp_path / "run" / "predictions" / "2.jsonl")[0].passages) == 2
    assert "success_at.2" in capsys.readouterr().out
