"""The citation audits in short: headline figures with intervals, and how many claims and citations have a status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ragx.experiments.audit_summary import HEADLINE
from ragx.experiments.report.documents import Document
from ragx.experiments.report.files import Holdings
from ragx.experiments.report.parts import Block, Cell, Section, Table, figure, interval, spread
from ragx.experiments.report.results import experiments, of_runs

SHOWN = (*HEADLINE, "stale_rate", "correct_without_evidence")
STATUSES = {"claim_status": "Claims by status", "citation_status": "Citations by status"}
Groups = Mapping[str, Sequence[Document]]


def citations(found: Holdings) -> Section:
    """Every audit as a column of figures; those of demos that differ in the seed alone are one column."""
    blocks: list[Block] = []
    if found.audits:
        groups = _groups(found)
        several = any(len(audits) > 1 for audits in groups.values())
        blocks.append(_figures("Citation audits" + ", mean and range over seeds" * several, groups))
        if several:
            each = {audit.name.replace("/audit/", " "): [audit] for audit in found.audits}
            blocks.append(_figures("Citation audits of each run, with 95% intervals", each, folded=True))
        blocks += [_statuses(groups, name) for name in STATUSES]
        blocks += _gates(found.audits)
    return Section(
        "citations",
        "Citations",
        "Whether answers are supported by the passages they cite, and whether those can still be looked up. Each "
        "audit has a page of its own beside its summary.json, with every answer and the exact spans it cites.",
        blocks,
        command="python scripts/audit_citations.py predictions=... corpus=[...] gold=...",
    )


def _groups(found: Holdings) -> Groups:
    """Audits by the name of their column."""
    demos = experiments(found)
    owners = {demo.run: group for group in demos for demo in group}
    groups: dict[str, list[Document]] = {}
    for audit in found.audits:
        name = audit.name
        if audit.run in owners:
            name = audit.place.rpartition("/")[2] + (of_runs(found, owners[audit.run]) if len(demos) > 1 else "")
        groups.setdefault(name, []).append(audit)
    return groups


def _figures(caption: str, groups: Groups, *, folded: bool = False) -> Table:
    rows = []
    for name in SHOWN:
        cells = [_figure(audits, name) for audits in groups.values()]
        if any(cell.text for cell in cells):
            rows.append([Cell(name.replace("_", " ")), *cells])
    for name in ("n_questions", "n_claims", "n_citations"):
        counts = (sum(int(audit.number(name) or 0) for audit in audits) for audits in groups.values())
        rows.append([Cell(name.removeprefix("n_")), *(Cell(f"{count:,}") for count in counts)])
    return Table(caption, ["figure", *groups], rows, folded=folded)


def _figure(audits: Sequence[Document], name: str) -> Cell:
    """A figure of one audit with its interval, of several their mean and range; empty where no audit has it."""
    places = [("metrics", part, name) for part, own in audits[0].table("metrics").items() if name in own]
    if not places:
        return Cell("")
    if len(audits) == 1:
        return Cell(figure(audits[0].number(*places[0], "value")), interval(audits[0].bounds(*places[0], "ci95")))
    return spread([value for audit in audits if (value := audit.number(*places[0], "value")) is not None])


def _statuses(groups: Groups, name: str) -> Table:
    """How many claims or citations have each status; of several audits their sum."""
    audits = [audit for own in groups.values() for audit in own]
    statuses = sorted({status for audit in audits for status in _counts(audit, name)})
    rows = []
    for status in statuses:
        counts = (sum(_counts(audit, name).get(status, 0) for audit in own) for own in groups.values())
        rows.append([Cell(status.replace("_", " ")), *(Cell(f"{count:,}") for count in counts)])
    return Table(STATUSES[name] + ", summed over seeds" * (len(audits) > len(groups)), ["status", *groups], rows)


def _counts(audit: Document, name: str) -> Mapping[str, int]:
    return audit.table("counts", name) if name in audit.table("counts") else {}


def _gates(audits: Sequence[Document]) -> Iterator[Table]:
    rows = []
    for audit in audits:
        for gate in audit.rows("gates") if "gates" in audit.values else []:
            found, verdict = gate.get("found"), "passed" if gate.get("passed") else "FAILED"
            cells = [str(gate.get("name")), f"{gate.get('kind')} {gate.get('bound')}"]
            rows.append(
                [Cell(audit.name), *map(Cell, cells), Cell("none" if found is None else str(found)), Cell(verdict)]
            )
    if rows:
        yield Table("Gates", ["audit", "gate", "asked", "found", "verdict"], rows, labels=2)
