"""Gates of an audit: what must hold for exit status 0.

    fail_under.coverage_any=0.8     the figure must be at least this
    max.forbidden=0                 at most so many citations or claims of this status, findings of this code, n_error

One decision: a figure without a value passes no gate that asks something of it: nothing judged is not everything fine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ragx.citations.invariants import CODES
from ragx.citations.statuses import INVALID, LABELS

INDEPENDENCE = "independence"


class Gate(NamedTuple):
    """One gate.

    Attributes:
        name: of the figure or count.
        kind: `at least` or `at most`.
        bound: what was asked.
        found: the value; None where the figure has none.
        passed: whether it holds.
    """

    name: str
    kind: str
    bound: float
    found: float | None
    passed: bool


def check_gates(
    summary: Mapping[str, Any], *, fail_under: Mapping[str, float], maximum: Mapping[str, float], strict: bool
) -> list[Gate]:
    """Every gate with its outcome, in the order of its names.

    Args:
        fail_under: lower bounds by the name of a figure.
        maximum: upper bounds by the name of a status, a finding's code, `invalid`, `findings` or `n_error`.
        strict: whether any doubt about the independence of labels and judge fails as well.

    """
    figures = {name: metric for section in summary["metrics"].values() for name, metric in section.items()}
    gates = []
    for name, bound in sorted(fail_under.items()):
        value = figures[name]["value"]
        gates.append(Gate(name, "at least", bound, value, value is not None and value >= bound))
    asked = {**maximum, **({INDEPENDENCE: 0} if strict else {})}
    for name, bound in sorted(asked.items()):
        count = count_of(summary, name)
        gates.append(Gate(name, "at most", bound, count, count <= bound))
    return gates


def count_of(summary: Mapping[str, Any], name: str) -> int:
    """How many citations or claims have a status (`not_judged`: claims), how many findings a code."""
    counts = summary["counts"]
    citations, findings = counts.get("citation_status", {}), counts.get("finding", {})
    if name == "n_error":
        return summary["n_error"]
    if name == "invalid":
        return sum(citations.get(status, 0) for status in INVALID)
    if name == "findings":
        return sum(findings.values())
    if name in CODES:
        return findings.get(name, 0)
    return (citations if name in (*INVALID, *LABELS) else counts.get("claim_status", {})).get(name, 0)
