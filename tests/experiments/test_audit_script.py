"""scripts/audit_citations.py as it is called: exit status, overrides, what is printed; predictions of ragx as input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ragx.data.predictions import write_predictions
from ragx.data.tasks import write_examples
from ragx.records import AnswerTokens, Citation, Example, Passage, Prediction, RetrievedPassage
from tests.scripts import run_script

PERU = Passage("peru", "2018", "0", "Peru", "The leader of Peru is Vizcarra.")
CHILE = Passage("chile", "2018", "0", "Chile", "The leader of Chile is Pinera.")
Script = Callable[..., int]


def prediction(identity: str, answer: str, cited: Passage) -> Prediction:
    """An answer of RAG-Token over two passages that cites one of them."""
    passages = tuple(
        RetrievedPassage(p.key, p.title, p.text, p.sha256, 2.0 - z, 0.5, 0.9 if p is cited else 0.1, (0, len(p.text)))
        for z, p in enumerate((PERU, CHILE))
    )
    start = cited.text.find(answer)
    span = (start, start + len(answer)) if start >= 0 else None
    posterior = 0.9
    rows = tuple((-0.1,) if p is cited else (-0.1 - 2.197225,) for p in (PERU, CHILE))  # log 9
    return Prediction(
        identity,
        f"Who leads {identity}?",
        answer,
        -0.5,
        ((answer, -0.5),),
        passages,
        (Citation(cited.key, posterior, 1.6, span, "full" if span else "not_judged"),),
        0,
        {"kind": "rag_token", "decoder": "token_beam", "index": "i"},
        AnswerTokens(((0, len(answer)),), rows),
    )


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs the script in a folder with predictions, a corpus and questions; returns its exit status."""
    answers = [prediction("peru", "Vizcarra", PERU), prediction("chile", "Vizcarra", CHILE)]
    write_predictions(tmp_path / "predictions.jsonl", answers)
    (tmp_path / "2018.jsonl").write_text("".join(json.dumps(p.to_json()) + "\n" for p in (PERU, CHILE)))
    asked = [("peru", "Vizcarra", PERU), ("chile", "Pinera", CHILE)]
    examples = [Example(name, f"Who leads {name}?", (right,), "leader", (p.key,), "2018") for name, right, p in asked]
    write_examples(tmp_path / "questions.jsonl", examples)

    def run(*overrides: str, into: str = "run") -> int:
        given = ["predictions=predictions.jsonl", "corpus=[2018.jsonl]", "gold=questions.jsonl"]
        return run_script("audit_citations", *given, *overrides, folder=tmp_path, into=into)

    return run


def test_predictions_are_audited(script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """C6, DS8: tables on the screen, a folder with the page; the right answer is supported, the wrong one is not."""
    assert script() == 0
    printed = capsys.readouterr().out
    assert "2 questions, 2 claims, 2 citations" in printed and "report.html" in printed
    claims = [json.loads(line) for line in (tmp_path / "runs/run/audit/claims.jsonl").read_text().splitlines()]
    assert {claim["qid"]: claim["covered"] for claim in claims} == {"peru": True, "chile": False}
    summary = json.loads((tmp_path / "runs/run/audit/summary.json").read_text())
    assert summary["metrics"]["answer"]["exact_match"]["value"] == 0.5
    assert summary["metrics"]["attribution"]["gain_sign_agreement"]["value"] == 1.0
    assert "finding" not in summary["counts"]
    assert (tmp_path / "runs/run/config.yaml").exists()


def test_exit_status_1_where_a_gate_failed(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("fail_under.coverage_any=0.5", "max.forbidden=0") == 0
    assert script("fail_under.coverage_any=0.8", "max.forbidden=0") == 1
    assert "Gate coverage_any at least 0.8: 0.5, FAILED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("gold=2018.jsonl", "2018.jsonl:1: query: must be given"),
        ("predictions=questions.jsonl", "questions.jsonl:1: acl: must be one of"),
        ("judge=oracle", "judge must be one of frozen"),
        ("corpus=[absent.jsonl]", "corpus must be one or more files"),
        ("compare_with=nowhere", "folder must hold an audit, got no citations.jsonl"),
    ],
)
def test_exit_status_2_on_bad_input(
    script: Script, capsys: pytest.CaptureFixture[str], override: str, message: str
) -> None:
    """C7: one line that names file, line and field."""
    assert script(override) == 2
    assert message in capsys.readouterr().err


def test_gold_that_asks_something_else_under_the_same_id_is_refused(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = [Example(name, f"Who led {name}?", ("Vizcarra",)) for name in ("peru", "chile")]
    write_examples(tmp_path / "other.jsonl", examples)
    assert script("gold=other.jsonl") == 2
    (line,) = capsys.readouterr().err.splitlines()
    expected = "got 'Who leads peru?' for 'peru', which asks 'Who led peru?'. Audit them with the questions they were"
    assert line.startswith("error: predictions must be of the same questions, ") and expected in line
    assert not (tmp_path / "runs/run/audit").exists()


def test_two_audits_side_by_side(script: Script, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert script(into="first") == 0
    assert script("compare_with=runs/first/audit", "judge=frozen", "swapped=predictions.jsonl", into="second") == 0
    printed = capsys.readouterr().out
    assert '"full -> not_judged": 1' not in printed and '"none -> not_judged": 1' in printed
    assert '"rate": 1.0' in printed
    assert (tmp_path / "runs/second/audit/diff.json").exists()
