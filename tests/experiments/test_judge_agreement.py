"""The measurement of the judges against people, on rows made here and, where they are, on the real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragx.citations.judges.lexical import LexicalJudge
from ragx.errors import ConfigError, DataError
from ragx.experiments.judge_agreement import (
    LabelledClaim,
    as_markdown,
    judge_agreement,
    offline_judges,
    read_claims,
    split,
)
from tests.scripts import run_script


def row(i: int, *, supported: bool, **given: Any) -> dict[str, Any]:
    text = "The old lease allows cats on the second floor." if supported else "Trains run to the coast at night."
    return {
        "id": f"r{i}", "set": "dev" if i % 2 else "test", "source": "made", "question": f"q{i // 2}",
        "claim": "The lease allows cats [1, 2].", "references": [f"[1] {text}"], "supported": supported, **given,
    }  # fmt: skip


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def claims(tmp_path: Path) -> list[LabelledClaim]:
    return read_claims(write(tmp_path / "rows.jsonl", [row(i, supported=i % 4 < 2) for i in range(40)]))


def test_markers_and_numbers_are_no_part_of_claim_and_passage(claims: list[LabelledClaim]) -> None:
    assert claims[0].claim == "The lease allows cats."
    assert claims[0].passages[0].text.startswith("The old lease")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("supported", "yes", "supported: must be true or false, got 'yes'"),
        ("references", "text", "references: must be a list"),
        ("claim", " ", "claim: must be text that is not blank"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(tmp_path: Path, field: str, value: Any, message: str) -> None:
    path = write(tmp_path / "rows.jsonl", [row(0, supported=True), {**row(1, supported=False), field: value}])
    with pytest.raises(DataError, match=rf"rows.jsonl:2: {message}"):
        read_claims(path)


def test_the_two_parts_share_no_question(claims: list[LabelledClaim]) -> None:
    tune, report = split(claims, tune_sets=[])
    assert {c.id for c in tune} | {c.id for c in report} == {c.id for c in claims}
    assert not {c.question for c in tune} & {c.question for c in report}
    assert split(claims[::-1], tune_sets=[])[0] == tune[::-1]
    assert {c.set for c in split(claims, tune_sets=["dev"])[0]} == {"dev"}
    with pytest.raises(ConfigError, match="tune part must hold supported and unsupported rows, got 0 rows"):
        split(claims, tune_sets=["no such set"])


def test_a_separable_file_is_separated_and_the_table_says_so(claims: list[LabelledClaim]) -> None:
    tune, report = split(claims, tune_sets=["dev"])
    results = judge_agreement(tune, report, offline_judges(tune))
    judges = results["judges"]
    assert list(judges) == ["exact_span", "constraints", "lexical", "composite(lexical)"]
    assert judges["lexical"]["report"]["auc"] == 1.0 and judges["lexical"]["report"]["kappa"] == 1.0
    assert judges["exact_span"]["report"]["not_judged"] == 1.0
    assert judges["lexical"]["by_source"]["made"] == judges["lexical"]["report"]
    table = as_markdown(results)
    assert "| lexical | 0.000 | 0.500 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 |" in table
    assert "0.698 (recall), 0.525 (precision)" in table


@pytest.mark.shared
@pytest.mark.slow
def test_without_weights_the_judges_agree_with_people_on_real_answers(shared: Path) -> None:
    """HAGRID and BEGIN, halves by question: every figure is of rows that chose nothing."""
    tune, report = split(read_claims(shared / "citation_audit" / "hagrid_beginwow_subset.jsonl.gz"), tune_sets=[])
    results = judge_agreement(tune, report, offline_judges(tune))["judges"]
    assert results["lexical"]["report"]["auc"] > 0.80
    assert results["composite(lexical)"]["report"]["auc"] > 0.80
    assert results["composite(lexical)"]["report"]["kappa"] > 0.55
    assert results["constraints"]["report"]["precision_unsupported"] > 0.80
    assert results["exact_span"]["report"]["precision"] > 0.90


def test_a_judge_is_measured_as_it_is_given(claims: list[LabelledClaim]) -> None:
    tune, report = split(claims, tune_sets=["dev"])
    found = judge_agreement(tune, report, [LexicalJudge()])["judges"]["lexical"]
    assert found["tune"]["n"] == found["report"]["n"] == 20


def test_the_script_prints_and_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "rows.jsonl", [row(i, supported=i % 4 < 2) for i in range(40)])
    given = ["claims=rows.jsonl", "tune_sets=[dev]", "output=out.json"]
    assert run_script("judge_agreement", *given, folder=tmp_path) == 0
    results = json.loads((tmp_path / "out.json").read_text())
    assert results["judges"]["lexical"]["report"]["auc"] == 1.0
    assert (tmp_path / "out.md").read_text() in capsys.readouterr().out
