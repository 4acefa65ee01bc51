"""Two audits, or two runs, of the same questions side by side.

    compare         figures before and after with a paired interval; citations whose status changed (drift, F14)
    evidence_swap   the key passage replaced by another: an answer that stays the same did not come from it

One decision: a row is the same row by question, claim and place, so that a change of one citation shows as one change
and everything else as none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.errors import DataError
from ragx.evaluation.answers import normalize_answer
from ragx.evaluation.significance import paired_bootstrap
from ragx.experiments.audit_inputs import parser_of
from ragx.jsonl import read_rows

PAIRED = {"covered": "coverage_any", "alce_recall": "alce_recall"}


def compare(before: str | Path, after: str | Path) -> dict[str, Any]:
    """What changed between two audits; also written to diff.json of the later one.

    Raises:
        DataError: a folder that holds no audit.
    """
    earlier, later = (_citations(Path(folder)) for folder in (before, after))
    rows = [row for row in sorted(earlier.keys() | later.keys()) if earlier.get(row) != later.get(row)]
    changed = [
        {"qid": q, "claim_id": c, "number": n, "before": earlier.get((q, c, n)), "after": later.get((q, c, n))}
        for q, c, n in rows
    ]
    moves = Counter(f"{_status(earlier.get(row))} -> {_status(later.get(row))}" for row in rows)
    found = {
        "figures": _figures(Path(before), Path(after)),
        "paired": {name: _paired(Path(before), Path(after), field) for field, name in PAIRED.items()},
        "changed": changed,
        "moves": dict(sorted(moves.items())),
        "unchanged": sum(earlier.get(row) == later.get(row) for row in earlier.keys() & later.keys()),
    }
    with atomic.open_file(Path(after) / "diff.json") as handle:
        handle.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found


def evidence_swap(before: str | Path, after: str | Path) -> dict[str, Any]:
    """The questions answered the same, in words, after their evidence was swapped: `parametric_suspect`.

    Args:
        before, after: traces or predictions of the same questions.

    Returns:
        `suspects` (ids), `passed`, `n` answered both times or abstained after, and `rate`; None without any.
    """
    first, second = (_answers(path) for path in (before, after))
    asked = [qid for qid in sorted(first.keys() & second.keys()) if first[qid] is not None]
    suspects = [qid for qid in asked if second[qid] is not None and second[qid] == first[qid]]
    rate = len(suspects) / len(asked) if asked else None
    return {"suspects": suspects, "passed": len(asked) - len(suspects), "n": len(asked), "rate": rate}


def _answers(path: str | Path) -> dict[str, str | None]:
    """The answer of each question in normal form; None where none was given."""
    parse = parser_of(path, dates={}, claims="answer", task="")
    traces = (parse(row) for row in read_rows(path))
    return {t.qid: normalize_answer(t.answer.text) if t.answer.status == "answered" else None for t in traces}


def _status(row: Mapping[str, Any] | None) -> str:
    return "absent" if row is None else str(row["status"])


def _citations(folder: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {
        (row.values["qid"], row.values["claim_id"], row.values["number"]): {
            name: row.values[name] for name in ("key", "status", "label")
        }
        for row in read_rows(_file(folder, "citations.jsonl"))
    }


def _figures(before: Path, after: Path) -> dict[str, list[float | None]]:
    """The figures that have a value in both and differ, or in one only."""
    values = []
    for folder in (before, after):
        summary = json.loads(_file(folder, "summary.json").read_text(encoding="utf-8"))
        values.append({k: m["value"] for section in summary["metrics"].values() for k, m in section.items()})
    one, other = values
    return {name: [one.get(name), other.get(name)] for name in other if one.get(name) != other.get(name)}


def _paired(before: Path, after: Path, field: str) -> dict[str, Any] | None:
    """The mean difference, later less earlier, over questions that have the figure both times."""
    one, other = (_by_question(folder, field) for folder in (before, after))
    both = one.keys() & other.keys()
    if not both:
        return None
    found = paired_bootstrap({qid: other[qid] for qid in both}, {qid: one[qid] for qid in both})
    return {"difference": found.value, "ci95": list(found.ci95), "p_value": found.p_value, "n": found.n}


def _by_question(folder: Path, field: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in read_rows(_file(folder, "claims.jsonl")):
        if row.values["status"] != "exempt" and row.values[field] is not None:
            values.setdefault(row.values["qid"], []).append(float(row.values[field]))
    return {qid: sum(own) / len(own) for qid, own in values.items()}


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise DataError(f"folder must hold an audit, got no {name}. Name the folder of an audit", path=folder)
    return path
