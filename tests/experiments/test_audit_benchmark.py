"""The benchmark of the audit: rows are whole, of the right size, and on disk as soon as they are measured."""

from __future__ import annotations

import json
from pathlib import Path

from ragx.experiments.audit_benchmark import measure


def test_every_size_is_audited_and_its_row_is_on_disk_at_once(tmp_path: Path) -> None:
    rows = measure(tmp_path, [5, 40], workers=2)
    first = next(rows)
    assert json.loads((tmp_path / "benchmark_audit.json").read_text()) == {"workers": 2, "rows": [first]}
    second = next(rows)
    assert [first["answers"], second["answers"]] == [5, 40]
    for row in (first, second):
        assert row["seconds"] > 0 and row["cpu_s"] > 0
        assert 10 < row["mib"] < 4000  # MiB, whatever unit the system counts in
        summary = json.loads((tmp_path / str(row["answers"]) / "audit" / "summary.json").read_text())
        assert sum(summary["counts"]["citation_status"].values()) == 5 * row["answers"]
