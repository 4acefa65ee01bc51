"""The demo end to end on a few questions: everything it promises is there, and a second run does nothing again."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from ragx import config, schema
from ragx.errors import ConfigError
from ragx.experiments.demo import run_demo
from ragx.experiments.demo_results import DECODERS
from ragx.experiments.demo_tables import render

CONFIGS = str(Path(__file__).parents[2] / "configs")


def _config(run_dir: Path, *overrides: str) -> schema.Demo:
    quick = ["training.steps=2", "training.warmup_steps=1", "training.batch_size=2", "training.progress=false"]
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        raw = compose("demo", overrides=[f"run_dir={run_dir}", "max_questions=6", *quick, *overrides])
    return config.resolve(raw, schema.Demo)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    run_dir = tmp_path_factory.mktemp("demo")
    return run_dir, run_demo(_config(run_dir))


@pytest.mark.slow
def test_results_hold_every_figure(demo: tuple[Path, dict[str, Any]]) -> None:
    run_dir, results = demo
    assert json.loads((run_dir / "results.json").read_text()) == json.loads(json.dumps(results))
    assert {name: tuple(row) for name, row in results["exact_match"].items()} == DECODERS
    assert set(results["hot_swap"]["matched"]) == set(results["hot_swap"]["mismatched"]) == {"2016-12", "2018-12"}
    assert set(results["retrieval"]["success_at"]) == {"1", "5", "10"}
    assert results["questions"] == 6 and results["seed"] == 0 and results["peak_rss_mib"] > 100
    assert set(results["exact_match_before"]) == {"rag_sequence", "rag_token", "closed_book"}
    assert {"torch", "transformers", "python"} == set(results["versions"])
    assert len(results["fingerprints"]["indexes"]["2016-12"]) == 64


@pytest.mark.slow
def test_every_answer_names_its_passages(demo: tuple[Path, dict[str, Any]]) -> None:
    run_dir, _ = demo
    for name in ("rag_sequence.thorough", "rag_sequence.fast", "rag_token.token_beam", "frozen.thorough"):
        rows = [json.loads(line) for line in (run_dir / "predictions" / f"{name}.jsonl").read_text().splitlines()]
        assert len(rows) == 6
        for row in rows:
            assert len(row["passages"]) == 5 and row["provenance"]["edition"] == "2016-12"
            assert sum(passage["posterior"] for passage in row["passages"]) == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_answers_of_two_decoders_are_compared(demo: tuple[Path, dict[str, Any]]) -> None:
    run_dir, results = demo
    for name, decoders in DECODERS.items():
        files = [(run_dir / "predictions" / f"{name}.{decoder}.jsonl").read_text() for decoder in decoders]
        one, other = ([json.loads(line)["answer"] for line in file.splitlines()] for file in files)
        differ = len([number for number in range(6) if one[number] != other[number]])
        assert results["different_answers"][name] == differ
        assert f"{name}: {decoders[0]} and {decoders[1]} differ on {differ} questions" in render(results, run_dir)


@pytest.mark.slow
def test_every_audit_has_its_page_and_the_other_year_is_stale(demo: tuple[Path, dict[str, Any]]) -> None:
    run_dir, results = demo
    assert set(results["audit"]) == {"rag_sequence", "rag_token", "stale"}
    for name in results["audit"]:
        assert "<script src" not in (run_dir / "audit" / name / "report.html").read_text()
    assert results["audit"]["rag_sequence"]["stale_rate"] in (0.0, None)  # None: two steps may leave nothing cited
    assert results["audit"]["stale"]["stale_rate"] in (1.0, None)


@pytest.mark.slow
def test_the_tables_show_what_the_results_say(demo: tuple[Path, dict[str, Any]]) -> None:
    run_dir, results = demo
    shown = render(results, run_dir)
    for row in results["exact_match"].values():
        for value in row.values():
            assert f"{value:.3f}" in shown
    assert "own index" in shown and "frozen" in shown and "stale_rate" in shown and str(run_dir) in shown


@pytest.mark.slow
def test_a_second_run_reuses_everything_and_says_so(
    demo: tuple[Path, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    run_dir, results = demo
    files = {path: path.read_bytes() for path in (run_dir / "predictions").iterdir()}
    weights = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*.safetensors")}
    with caplog.at_level(logging.INFO, logger="ragx"):
        again = run_demo(_config(run_dir))
    assert {**again, "peak_rss_mib": 0} == {**results, "peak_rss_mib": 0}
    assert {path: path.read_bytes() for path in (run_dir / "predictions").iterdir()} == files
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*.safetensors")} == weights
    assert "train.rag_token: done before, reused" in caplog.text


@pytest.mark.slow
def test_another_seed_needs_another_folder(demo: tuple[Path, dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="seed must be as in the demo that .* holds, got another value"):
        run_demo(_config(demo[0], "seed=1"))
