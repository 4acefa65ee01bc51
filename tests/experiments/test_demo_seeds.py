"""Figures over seeds: means and ranges by hand, and runs that do not belong together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragx.errors import ConfigError
from ragx.experiments.demo_seeds import read_runs, render


def _run(folder: Path, *, seed: int, match: float, **settings: object) -> Path:
    folder.mkdir()
    results = {
        "seed": seed,
        "exact_match": {"rag_sequence": {"thorough": match, "fast": 0.5}},
        "exact_match_before": {"rag_sequence": {"thorough": 0.25}},
        "retrieval": {"success_at": {"1": match}, "success_at_before": {"1": 0.5}},
        "hot_swap": {"matched": {"2016-12": 1.0}, "mismatched": {"2016-12": 0.0}, "n": {"2016-12": 92}},
        "seconds": {"total": 600.4},
        "peak_rss_mib": 1377,
    }
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "demo.json").write_text(json.dumps({"run_dir": str(folder), "seed": seed, "n_docs": 5, **settings}))
    return folder


def test_mean_and_range_of_each_figure(tmp_path: Path) -> None:
    runs = [_run(tmp_path / str(s), seed=s, match=m) for s, m in ((2, 0.9), (0, 0.8), (1, 0.85))]
    results = read_runs(runs)
    assert [r["seed"] for r in results] == [0, 1, 2]
    lines = render(results).splitlines()
    assert "| `rag_sequence` | thorough | .250 | .850 (.800 - .900) |" in lines
    assert "| `rag_sequence` | fast |  | .500 (.500 - .500) |" in lines
    assert "| 1 | .500 | .850 (.800 - .900) |" in lines
    assert "| 2016-12 | 1.000 (1.000 - 1.000) | .000 (.000 - .000) |" in lines
    assert "| 2 | 600 | 1377 |" in lines


def test_one_run_has_no_range(tmp_path: Path) -> None:
    lines = render(read_runs([_run(tmp_path / "a", seed=0, match=0.8)])).splitlines()
    assert "| `rag_sequence` | thorough | .250 | .800 |" in lines


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    first = _run(tmp_path / "a", seed=0, match=0.8)
    with pytest.raises(ConfigError, match=r"n_docs must be alike in all runs, got another value in .*b"):
        read_runs([first, _run(tmp_path / "b", seed=1, match=0.8, n_docs=10)])
    with pytest.raises(ConfigError, match=r"seed must differ between runs, got 0 again in .*c"):
        read_runs([first, _run(tmp_path / "c", seed=0, match=0.8)])
    with pytest.raises(ConfigError, match=r"results.json must be a file of a finished demo, got none"):
        read_runs([first, tmp_path / "missing"])
    with pytest.raises(ConfigError, match="runs must name at least one demo folder"):
        read_runs([])
