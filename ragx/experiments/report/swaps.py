"""Section 4.5, index hot-swapping: exact match by edition of the index and edition of the questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ragx.experiments.report.documents import Document
from ragx.experiments.report.files import Holdings
from ragx.experiments.report.parts import Block, Cell, Section, Table, figure, interval, spread
from ragx.experiments.report.results import experiments, metric, of_runs


def hot_swap(found: Holdings) -> Section:
    """The matrix of each experiment, the intervals behind it, and the swap between dumps of real text."""
    blocks: list[Block] = []
    for group in experiments(found):
        blocks += _swap(group, of_runs(found, group), "hot_swap")
    for document in found.swaps:
        blocks += _swap([document], of_runs(found, [document]))
    for document in found.dumps:
        blocks += [_dump_retrieval(document), *_dump_answers(document)]
    return Section(
        "hot-swap",
        "Index hot swap",
        "The same weights answer from the index of another edition. Right answers are expected on the diagonal alone. "
        "The paper (section 4.5) has .70 and .68 with the matching index, .12 and .04 with the other one.",
        blocks,
        command="python scripts/hot_swap.py model.checkpoint=runs/train/.../checkpoints/last",
    )


def _swap(group: Sequence[Document], of: str, *above: str) -> Iterator[Table]:
    first = group[0]
    editions = list(first.table(*above, "matrix"))
    asked = list(first.table(*above, "matrix", editions[0])) if editions else []
    rows = []
    for index in editions:
        values = [[d.number(*above, "matrix", index, q, "value") for d in group] for q in asked]
        cells = [spread([v for v in column if v is not None]) for column in values]
        rows.append([Cell(f"index {index}"), *(Cell(c.text, c.note, _shade(c.text)) for c in cells)])
    over = f", mean and range over {len(group)} runs" if len(group) > 1 else ""
    yield Table(f"Exact match by index and questions{over}{of}", ["", *(f"questions of {q}" for q in asked)], rows)
    details = []
    for document in group:
        for edition in document.table(*above, "matched"):
            own, other = (
                Cell(
                    figure(document.number(*above, part, edition)),
                    interval(document.bounds(*above, "ci", part, edition)),
                )
                for part in ("matched", "mismatched")
            )
            count = Cell(str(document.get(*above, "n", edition)))
            details.append([Cell(document.name), Cell(edition), own, other, count])
    columns = ["run", "questions of", "own index", "other index", "questions"]
    yield Table(f"Matched and mismatched index, with 95% intervals{of}", columns, details, labels=2)


def _shade(text: str) -> float | None:
    return None if text == "–" else float(text)


def _dump_retrieval(document: Document) -> Table:
    """A row for each encoder, dump and group of positions."""
    rows, ks = [], [""]
    for name in document.table("retrieval"):
        for edition in document.table("retrieval", name):
            for group in document.table("retrieval", name, edition):
                place = ("retrieval", name, edition, group)
                ks = list(document.table(*place))
                count = Cell(str(document.get(*place, ks[0], "n")))
                rows.append([Cell(name), Cell(edition), Cell(group), count, *(metric(document, *place, k) for k in ks)])
    columns = ["encoders", "dump", "positions", "questions", *(f"success@{k}" for k in ks)]
    return Table(f"Retrieval from dumps of real text ({document.name})", columns, rows, labels=3)


def _dump_answers(document: Document) -> Iterator[Table]:
    """Exact match and stale citations, a column for each pair of dump and date of the questions."""
    leaders = document.table("leaders")
    pairs = [(index, asked) for index in leaders for asked in leaders]
    heads = [f"{index} on leaders of {leaders[asked]}" for index, asked in pairs]
    parts = {"Exact match": ("groups", "exact_match"), "Stale citations": ("stale",)}
    for title, names in parts.items():
        rows = []
        for kind in document.table("models"):
            for group in document.table("n"):
                above = ("models", kind, names[0], group, *names[1:])
                cells = (metric(document, *above, index, asked) for index, asked in pairs)
                rows.append([Cell(kind), Cell(group), Cell(str(document.get("n", group))), *cells])
        if rows:
            columns = ["model", "positions", "questions", *heads]
            yield Table(f"{title} by dump and date ({document.name})", columns, rows, labels=2)
