"""The frozen practice set and failure table (CITATIONS E1, E3, D38), composed, written by stage and audited."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ragx.citations.documents import Library
from ragx.citations.trace_file import read_traces
from ragx.citations.trace_records import Trace
from ragx.errors import DataError
from ragx.experiments.audit_inputs import read_corpus, read_gold
from ragx.experiments.practice import PRACTICE, read_requests, run_practice, verify_frozen
from tests.scripts import run_script

EXPECTED = {
    "single-1": None, "single-2": None, "single-3": None, "multi-1": None, "multi-2": None, "multi-3": "budget",
    "none-1": "unsupported_task", "none-2": "insufficient_evidence", "none-3": "insufficient_evidence",
    "version-1": None, "version-2": None, "version-3": "conflicting_evidence",
    "failure-1": "insufficient_evidence", "failure-2": "unsupported_task", "failure-3": "conflicting_evidence",
    "failure-4": "incomplete_source", "failure-5": "budget", "failure-6": None, "failure-7": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("practice") / "composed"
    run_practice(Library.read(PRACTICE / "documents.jsonl"), read_requests(PRACTICE / "requests.jsonl"), folder)
    return folder


@pytest.fixture(scope="module")
def traces(folder: Path) -> dict[str, Trace]:
    return {trace.qid: trace for trace in read_traces(folder / "traces.jsonl")}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_request_ends_as_it_must(traces: dict[str, Trace]) -> None:
    assert {qid: trace.answer.reason_code for qid, trace in traces.items()} == EXPECTED
    assert all((trace.answer.status == "answered") == (EXPECTED[qid] is None) for qid, trace in traces.items())


def test_e1_three_of_each_category(traces: dict[str, Trace]) -> None:
    categories = [trace.category for trace in traces.values()]
    counts = {category: categories.count(category) for category in categories}
    assert counts == {"single_source": 3, "multi_source": 3, "no_answer": 3, "version_conflict": 3, "failure": 7}


def test_the_three_stages_are_written_apart_and_agree_with_the_traces(folder: Path, traces: dict[str, Trace]) -> None:
    for name, fields in {"retrieved": {"C"}, "packed": {"S", "dropped", "budget"}}.items():
        written = rows(folder / f"{name}.jsonl")
        assert [row["qid"] for row in written] == list(traces)
        for row in written:
            whole = json.loads(json.dumps(traces[row["qid"]].to_json()))
            assert set(row) == fields | {"qid"} and all(row[field] == whole[field] for field in fields)
    assert {len(row["citations"]) for row in rows(folder / "cited.jsonl") if row["qid"].startswith("multi")} == {0, 2}


def test_every_stage_accounts_for_every_passage(traces: dict[str, Trace]) -> None:
    for trace in traces.values():
        retrieved = {row.key for row in trace.retrieved}
        packed = {row.key for row in trace.packed}
        assert {citation.key for citation in trace.citations} <= packed
        assert packed <= retrieved | set(trace.extra_retrieval)
        reasons = [row.key for row in trace.dropped]
        assert len(reasons) == len(set(reasons)) and retrieved - packed <= set(reasons)


def test_gold_was_frozen_before_and_names_what_the_corpus_holds(traces: dict[str, Trace]) -> None:
    assert set(verify_frozen()) == {"documents.jsonl", "requests.jsonl", "gold.jsonl"}
    golds, store = read_gold(str(PRACTICE / "gold.jsonl")), read_corpus([str(PRACTICE / "documents.jsonl")])
    assert set(golds) == set(traces)
    for qid, gold in golds.items():
        assert gold.labeller and gold.frozen_at and gold.frozen_at <= "2026-09-01"
        assert gold.reason_code == EXPECTED[qid]
        assert all(key in store for groups in gold.groups.values() for group in groups for key in group)
        cited = {citation.key for citation in traces[qid].citations}
        if cited and qid not in ("failure-6", "failure-7"):
            assert cited in [set(group) for groups in gold.groups.values() for group in groups]


def test_e3_proposed_answers_stop_at_the_gate_that_they_must(folder: Path) -> None:
    checks = {row["qid"]: row["checks"] for row in rows(folder / "answers.jsonl")}
    assert checks["failure-6"] == {"schema": True, "exists": True, "value": False, "support": False}
    assert checks["failure-7"] == {"schema": True, "exists": True, "value": True, "support": False}
    assert all(all(found.values()) for qid, found in checks.items() if qid not in ("failure-6", "failure-7"))


def test_composed_and_audited_by_the_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The words of the configs: `failure-6` contradicts what it cites, `failure-7` cites what is no longer in force."""
    assert run_script("compose", "output=composed", folder=tmp_path) == 0
    assert "multi-3      abstained  budget" in capsys.readouterr().out
    given = ["predictions=composed/traces.jsonl", f"corpus=[{PRACTICE}/documents.jsonl]"]
    audit = [f"gold={PRACTICE}/gold.jsonl", "output=audit", "judge=composite"]
    assert run_script("audit_citations", *given, *audit, folder=tmp_path, into="audited") == 0
    summary = json.loads((tmp_path / "audit/summary.json").read_text(encoding="utf-8"))
    claims = {row["claim_id"]: row["status"] for row in rows(tmp_path / "audit/claims.jsonl")}
    assert claims.pop("failure-6.c1") == "contradicted"
    assert claims.pop("failure-7.c1") == "invalid_citation"
    assert set(claims.values()) == {"supported"} and len(claims) == 7
    assert summary["n_error"] == 0
    stages = rows(tmp_path / "audit/stages.jsonl")
    lost = [row["qid"] for row in stages if any(loss["stage"] == "packing_miss" for loss in row["losses"])]
    assert lost == ["failure-5", "multi-3"]
    assert {row["qid"]: row["findings"] for row in stages if row["findings"]} == {}


def test_a_set_that_was_changed_is_refused(tmp_path: Path) -> None:
    shutil.copytree(PRACTICE, tmp_path / "set")
    with (tmp_path / "set" / "gold.jsonl").open("a") as handle:
        handle.write("\n")
    with pytest.raises(DataError, match=r"gold.jsonl: sha256 must be \w+, got \w+. Restore the file"):
        verify_frozen(tmp_path / "set")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"as_of": ""}, "as_of: must be text that is not blank"),
        ({"mater": ["x"]}, "mater: must be one of .*got an unknown field"),
        ({"window": True}, "window: must be a whole number >= 0, got True"),
        ({"proposal": {}}, "proposal: must be a ka-answer-v1 object"),
    ],
)
def test_requests_that_cannot_be_read_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    row = {"qid": "q", "question": "x?", "matters": ["m"], "as_of": "2026-01-01", **change}
    (tmp_path / "requests.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=rf"requests.jsonl:1: {message}"):
        read_requests(tmp_path / "requests.jsonl")
