"""Ablation sweeps (table 6 and beyond): the arms of each with their difference from what they are compared with."""

from __future__ import annotations

from ragx.experiments.report.documents import Document
from ragx.experiments.report.files import Holdings
from ragx.experiments.report.parts import Block, Cell, Section, Table, figure, interval


def ablations(found: Holdings) -> Section:
    """The table of every sweep, and what of it failed or never ended."""
    blocks: list[Block] = []
    for sweep in found.sweeps:
        blocks.append(_arms(sweep))
        if sweep.rows("failed") or sweep.rows("missing"):
            blocks.append(_unfinished(sweep))
    return Section(
        "ablations",
        "Ablations",
        "One thing is changed at a time. Differences are from the arm named last, question by question, with the p of "
        "a paired bootstrap; figures are means over seeds with their standard deviation.",
        blocks,
        command="python scripts/ablate.py ablation=...",
    )


def _arms(sweep: Document) -> Table:
    """The main figure, the difference in it, and then the other figures, since a phone shows the first columns."""
    names = sweep.names("metrics")
    rows = []
    for arm in sweep.rows("arms"):
        main, *others = [_mean(arm, name) for name in names]
        head = [Cell(str(arm.get("arm"))), Cell(str(len(arm.get("seeds")))), main]
        rows.append([*head, *_difference(arm), *others, Cell(str(arm.values.get("compared_with") or ""))])
    columns = ["arm", "seeds", names[0], "difference", "p", *names[1:], "difference from"]
    return Table(f"Sweep {sweep.get('name')} ({sweep.name})", columns, rows)


def _difference(arm: Document) -> list[Cell]:
    """The difference in the main figure and its p."""
    if arm.values.get("difference") is None:
        return [Cell("baseline" if arm.values.get("is_baseline") else ""), Cell("")]
    value, p = arm.number("difference", "value"), arm.number("difference", "p_value")
    change = Cell("–" if value is None else f"{value:+.3f}", interval(arm.bounds("difference", "ci95")))
    return [change, Cell("–" if p is None else f"{p:.4f}")]


def _mean(arm: Document, name: str) -> Cell:
    if arm.table("metrics").get(name) is None:
        return Cell("–")
    std = arm.number("metrics", name, "std")
    return Cell(figure(arm.number("metrics", name, "mean")), "" if std is None else f"± {std:.3f}")


def _unfinished(sweep: Document) -> Table:
    failed = [[Cell(str(job.get("folder"))), Cell("failed: " + str(job.get("error")))] for job in sweep.rows("failed")]
    missing = [[Cell(str(job.get("folder"))), Cell("never ended")] for job in sweep.rows("missing")]
    note = "Start the same command again: it runs only what is missing."
    return Table(f"Jobs of {sweep.get('name')} without a result", ["job", "why"], [*failed, *missing], 2, note)
