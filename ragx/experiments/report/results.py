"""Results with intervals: exact match by model and decoder, by kind of question, success@k, and evaluated files.

One decision: demos of the same settings and other seeds are one experiment and get a mean and a range beside each
run's own interval; runs that differ in anything else stand apart, since their mean would mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragx.experiments.demo_seeds import OWN
from ragx.experiments.report.documents import Document, metrics_of
from ragx.experiments.report.files import Holdings
from ragx.experiments.report.parts import Block, Cell, Section, Table, figure, interval, spread

INTERVALS = "Small figures are 95% bootstrap intervals over questions; under a mean over seeds, the range of the seeds."


def experiments(found: Holdings) -> list[list[Document]]:
    """The demos, those that differ in nothing but their seed together, in the order of their seeds."""
    groups: list[tuple[object, list[Document]]] = []
    for demo in found.demos:
        asked = next((s.values for s in found.settings if s.path == demo.path.parent / "demo.json"), {})
        own = {key: value for key, value in asked.items() if key not in OWN}
        seed = demo.get("seed")
        group = next((docs for key, docs in groups if key == own and all(d.get("seed") != seed for d in docs)), None)
        if group is None:
            groups.append((own, [demo]))
        else:
            group.append(demo)
    return [sorted(docs, key=lambda demo: str(demo.get("seed"))) for _, docs in groups]


def of_runs(found: Holdings, group: Sequence[Document]) -> str:
    """What a caption adds to say which runs it is of; nothing where there is no other."""
    return f" ({', '.join(demo.name for demo in group)})" if len(group) < len(found.runs) else ""


def results(found: Holdings) -> Section:
    """Every figure of answers and retrieval."""
    blocks: list[Block] = []
    for group in experiments(found):
        of = of_runs(found, group)
        blocks += [_exact_match(group, of), _kinds(group, of), _retrieval(group, of)]
    blocks += _evaluations(found.evaluations)
    return Section(
        "results",
        "Results",
        "How often the answer is right, and whether a passage that states it was found. " + INTERVALS,
        blocks,
        command="python scripts/demo.py, or python scripts/evaluate.py predictions=... data.questions=...",
    )


def _exact_match(group: Sequence[Document], of: str) -> Table:
    first = group[0]
    several = len(group) > 1
    rows = []
    for model in first.table("exact_match"):
        for decoder in first.table("exact_match", model):
            before = first.table("exact_match_before").get(model, {})
            own = [
                Cell(figure(demo.number("exact_match", model, decoder)), interval(_ci(demo, model, decoder)))
                for demo in group
            ]
            mean = [spread([_value(demo, "exact_match", model, decoder) for demo in group])] if several else []
            supported = spread(_given(group, "supported_share", model, decoder))
            earlier = Cell(figure(first.number("exact_match_before", model, decoder)) if decoder in before else "")
            rows.append([Cell(model), Cell(decoder), earlier, *mean, *own, supported])
    heads = [f"seed {demo.get('seed')}" for demo in group] if several else ["after training"]
    columns = ["model", "decoder", "before training", *(["mean over seeds"] if several else []), *heads, "supported"]
    return Table(
        f"Exact match on {first.get('questions')} test questions{of}",
        columns,
        rows,
        labels=2,
        note="Supported: the share of answers that stand word for word in a passage they cite.",
    )


def _ci(demo: Document, model: str, decoder: str) -> tuple[float, float] | None:
    return demo.bounds("exact_match_ci95", model, decoder)


def _value(demo: Document, *names: str) -> float:
    value = demo.number(*names)
    return demo.fail(names, "be a number", None) if value is None else value


def _given(group: Sequence[Document], *names: str) -> list[float]:
    return [value for demo in group if (value := demo.number(*names)) is not None]


def _kinds(group: Sequence[Document], of: str) -> Table:
    models = list(group[0].table("exact_match_by_kind"))
    kinds = group[0].table("exact_match_by_kind", models[0]) if models else {}
    rows = [
        [Cell(kind), *(spread(_given(group, "exact_match_by_kind", model, kind)) for model in models)] for kind in kinds
    ]
    caption = f"Exact match by kind of question, with each model's first decoder{of}"
    return Table(caption, ["kind", *models], rows)


def _retrieval(group: Sequence[Document], of: str) -> Table:
    rows = [
        [
            Cell(k),
            Cell(figure(group[0].number("retrieval", "success_at_before", k))),
            spread(_given(group, "retrieval", "success_at", k)),
        ]
        for k in group[0].table("retrieval", "success_at")
    ]
    caption = f"Retrieval, success@k: a passage that states the answer is among the first k{of}"
    return Table(caption, ["k", "before training", "after"], rows)


def _evaluations(documents: Sequence[Document]) -> Iterator[Table]:
    """One table of the figures of all evaluated files, and for each its kinds of question and its differences."""
    if documents:
        flat = [dict(metrics_of(document.values)) for document in documents]
        places = list(dict.fromkeys(place for own in flat for place in own))
        rows = [[Cell("questions"), *(Cell(str(max(m["n"] for m in own.values()))) for own in flat)]]
        for place in places:
            cells = (metric(d, *place) if place in own else Cell("") for d, own in zip(documents, flat, strict=True))
            rows.append([Cell(".".join(place)), *cells])
        yield Table("Evaluated files", ["figure", *(document.name for document in documents)], rows)
    for document in documents:
        if document.values.get("by_kind"):
            yield _by_kind(document)
        if "difference" in document.values:
            yield _differences(document)


def metric(document: Document, *place: str) -> Cell:
    """A metric with its interval."""
    return Cell(figure(document.number(*place, "value")), interval(document.bounds(*place, "ci95")))


def _by_kind(document: Document) -> Table:
    """The figures that are no tables of k and that some kind has."""
    kinds = {kind: dict(metrics_of(document.table("by_kind", kind))) for kind in document.table("by_kind")}
    places = dict.fromkeys(place for own in kinds.values() for place, found in own.items() if _told(place, found))
    rows = [
        [Cell(kind), *(metric(document, "by_kind", kind, *place) if place in own else Cell("") for place in places)]
        for kind, own in kinds.items()
    ]
    columns = ["kind", *(place[0] for place in places)]
    return Table(f"By kind of question ({document.name})", columns, rows, folded=True)


def _told(place: tuple[str, ...], found: Mapping[str, Any]) -> bool:
    return len(place) == 1 and found["value"] is not None


def _differences(document: Document) -> Table:
    rows = []
    for place, found in metrics_of(document.table("difference")):
        p = found.get("p_value")
        cell = metric(document, "difference", *place)
        rows.append([Cell(".".join(place)), cell, Cell("" if p is None else f"{p:.4f}")])
    note = "Positive where this file is better than the one it was compared with; p of a paired bootstrap."
    return Table(f"Difference from another file ({document.name})", ["figure", "difference", "p"], rows, note=note)
