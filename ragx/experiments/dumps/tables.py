"""The figures of the experiment as Markdown: retrieval by encoders, accuracy and stale citations by dump and date."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def render(found: dict[str, Any]) -> str:
    """Three tables of `hot_swap_dumps`' result, each figure with its 95% interval; those of models where there are."""
    parts = [_table(_retrieval(found))]
    if found["models"]:
        parts += [_table(_by_date(found, "exact_match")), _table(_by_date(found, "stale"))]
    return "\n\n".join(parts)


def _retrieval(found: dict[str, Any]) -> Iterator[list[str]]:
    """A row for each encoder, group and dump."""
    rows = dict(found["retrieval"])
    for kind, model in found["models"].items():
        by_group = {group: figures["success_at"] for group, figures in model["groups"].items()}
        editions = found["leaders"]
        rows[f"{kind}, trained"] = {e: {group: by_group[group][e] for group in by_group} for e in editions}
    ks = list(next(iter(next(iter(next(iter(rows.values())).values())).values())))
    yield ["encoders", "dump", "positions", "n", *(f"success@{k}" for k in ks)]
    for name, by_edition in rows.items():
        for edition, groups in by_edition.items():
            for group, by_k in groups.items():
                if "both" not in group:
                    yield [name, edition, group, str(by_k[ks[0]]["n"]), *(_figure(by_k[k]) for k in ks)]


def _by_date(found: dict[str, Any], name: str) -> Iterator[list[str]]:
    """A row for each model and group, a column for each dump that answers and date of leaders."""
    leaders = found["leaders"]
    cells = [(index, asked) for index in leaders for asked in leaders]
    title = "exact match" if name == "exact_match" else "stale citations"
    yield [title, "positions", "n", *(f"{index} on leaders of {leaders[asked]}" for index, asked in cells)]
    for kind, model in found["models"].items():
        for group, n in found["n"].items():
            matrix = model["stale"][group] if name == "stale" else model["groups"][group][name]
            yield [f"{kind} x {model['checkpoints']}", group, str(n), *(_figure(matrix[i][q]) for i, q in cells)]


def _table(rows: Iterator[list[str]]) -> str:
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def _figure(metric: dict[str, Any]) -> str:
    if metric["value"] is None:
        return ""
    low, high = metric["ci95"]
    return f"{_short(metric['value'])} ({_short(low)} - {_short(high)})"


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")
