"""summary.md and report.html: the audit for readers.

One decision: the page is one static file. It runs nothing, loads nothing, and everything in it is escaped, because
answers and passages are data that somebody else wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from ragx.citations.statuses import INVALID

GOOD = ("supported", "full", "exempt", "ok")
OPEN = ("partially_supported", "partial", "not_judged", "uncited", "supported_with_conflict")
TITLES = {
    "validity": "Can citations be looked up?",
    "support": "Do citations support their claims?",
    "precision": "Is every citation needed? (ALCE, Liu, TREC)",
    "provenance": "Were the gold passages found? (KILT, FEVER)",
    "answer": "Is the answer right?",
    "attribution": "What the model's own posterior says",
}
COUNTS = {
    "claim_status": "Claims",
    "citation_status": "Citations",
    "stage": "Where gold evidence was lost",
    "drop_reason": "Why it was dropped while packing",
    "quadrant": "Packed passages: used by the model, and supporting",
    "correct_and_supported": "Answers: right, and supported",
    "answer_status": "Outcomes",
    "judge": "Who judged",
    "granularity": "How exactly citations point",
    "finding": "Records that break a rule",
    "marker_note": "Remarks on citation markers",
}
FIRST = ("claim_status", "citation_status", "stage", "correct_and_supported")  # shown before the answers


def tone(status: str) -> str:
    """How a status is colored: good, bad or open."""
    return "good" if status in GOOD else "open" if status in OPEN else "bad"


def opening(summary: Mapping[str, Any]) -> str:
    """The result in two sentences."""
    claims = summary["counts"].get("claim_status", {})
    citations = summary["counts"].get("citation_status", {})
    supported = sum(claims.get(name, 0) for name in ("supported", "supported_with_conflict"))
    unusable = sum(count for name, count in citations.items() if name in INVALID)
    judged = sum(claims.values()) - claims.get("not_judged", 0) - claims.get("exempt", 0)
    return (
        f"{_many(summary['n_questions'], 'question')}, {_many(summary['n_claims'], 'claim')}, "
        f"{_many(summary['n_citations'], 'citation')}. Of {_many(judged, 'judged claim')}, {supported} "
        f"{'is' if supported == 1 else 'are'} supported by what they cite; {claims.get('not_judged', 0)} could not be "
        f"judged; {_many(unusable, 'citation')} cannot be used at all."
    )


def render_html(summary: Mapping[str, Any], questions: Sequence[Mapping[str, Any]], *, headline: Sequence[str]) -> str:
    """The page.

    Args:
        summary: as in summary.json.
        questions: views of the questions to show (`ragx.citations.report_views`).
        headline: figures of the tables by model, task and category.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ragx.citations", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    sections, empty = _sections(summary)
    left = summary["n_questions"] - len(questions)
    shown = f"{len(questions)} of {_many(summary['n_questions'], 'question')}, those with the gravest faults first"
    page = environment.get_template("report.html.j2")
    return page.render(
        summary=summary,
        questions=questions,
        main=_main(summary, headline),
        sections=sections,
        empty=empty,
        counts=_counts(summary),
        headline=headline,
        opening=opening(summary),
        shown=shown + (f"; {left} left out." if left else "; none left out."),
        tone=tone,
    )


def render_markdown(summary: Mapping[str, Any]) -> str:
    """The tables as text, also printed."""
    sections, empty = _sections(summary)
    lines = ["# Citation audit", "", opening(summary), ""]
    lines += [f"Note: {warning}" for warning in summary["warnings"]]
    for gate in summary["gates"]:
        found = "none" if gate["found"] is None else gate["found"]
        lines.append(f"Gate {gate['name']} {gate['kind']} {gate['bound']}: {found}, {_passed(gate['passed'])}")
    for section in sections:
        lines += ["", f"| {section['title']} | value | 95% interval | n | n_null |", "|---|---:|---:|---:|---:|"]
        for row in section["rows"]:
            interval = "" if row["ci95"] is None else "{:.3f} to {:.3f}".format(*row["ci95"])
            lines.append(f"| {row['name']} | {row['value']:.3f} | {interval} | {row['n']} | {row['n_null']} |")
    for table in _counts(summary):
        lines += ["", f"| {table['title']} | number |", "|---|---:|"]
        lines += [f"| {row['name']} | {row['count']} |" for row in table["rows"]]
    if empty:
        lines += ["", f"Without a value: {', '.join(empty)}."]
    return "\n".join(lines) + "\n"


def _main(summary: Mapping[str, Any], headline: Sequence[str]) -> list[dict[str, Any]]:
    figures = {name: metric for section in summary["metrics"].values() for name, metric in section.items()}
    return [{"name": name, "meaning": summary["meaning"].get(name, ""), **figures[name]} for name in headline]


def _sections(summary: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The figures that have a value, by section, and the names of those that have none."""
    sections, empty = [], []
    for name, figures in summary["metrics"].items():
        rows = [{"name": key, "meaning": summary["meaning"].get(key, ""), **m} for key, m in figures.items()]
        empty += [row["name"] for row in rows if row["value"] is None]
        if name == "attribution" and summary["posterior"]["auroc"] is not None:
            rows.append(_posterior_row(summary["posterior"]))
        kept = [row for row in rows if row["value"] is not None]
        if kept:
            sections.append({"title": TITLES[name], "rows": kept})
    return sections, empty


def _posterior_row(posterior: Mapping[str, Any]) -> dict[str, Any]:
    error = posterior["expected_calibration_error"]
    meaning = f"of the posterior against support, over {posterior['n']} passages; calibration error {error:.3f}"
    return {"name": "auroc", "meaning": meaning, "value": posterior["auroc"], "ci95": None, "n": "", "n_null": ""}


def _counts(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    tables: list[dict[str, Any]] = []
    for name, title in COUNTS.items():
        rows = [{"name": key, "count": count} for key, count in summary["counts"].get(name, {}).items()]
        if rows:
            tables.append(
                {
                    "title": title,
                    "first": name in FIRST,
                    "rows": sorted(rows, key=lambda row: (-row["count"], row["name"])),
                }
            )
    table = summary["abstention"]
    if any(isinstance(value, int) and value for value in table.values()):
        outcomes = [{"name": key, "count": _shown(value)} for key, value in table.items()]
        tables.append({"title": "Answering and abstaining", "first": False, "rows": outcomes})
    return tables


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _passed(flag: bool) -> str:
    return "passed" if flag else "FAILED"


def _shown(value: float | int | None) -> str:
    return "none" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
