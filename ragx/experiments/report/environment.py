"""What the runs were made with: settings, versions, fingerprints, cost; and which code made the page, on what machine.

One decision: neither a host's name nor the folders above a run are written, since a page is made to be passed on. A
path keeps its last two parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragx.environment import environment as made_with
from ragx.experiments.report.documents import Document
from ragx.experiments.report.files import Holdings
from ragx.experiments.report.parts import Block, Cell, Section, Table

DIGITS = 12  # of a fingerprint
NAMED = 3  # runs in a caption


def environment(found: Holdings) -> Section:
    """Settings and environment."""
    blocks: list[Block] = [
        *_by_key("What the runs were made with", found.environments),
        *_runs(found.demos),
        _versions(found),
        _page(),
        *_by_key("Settings", found.settings, folded=True),
    ]
    return Section(
        "environment",
        "Configuration and environment",
        "What the runs recorded of themselves, and below it the code and the kind of machine that made this page.",
        [block for block in blocks if not isinstance(block, Table) or block.rows],
    )


def _runs(demos: Sequence[Document]) -> Iterator[Table]:
    """Cost and fingerprints of demos."""
    rows = [
        [
            Cell(demo.name),
            Cell(str(demo.get("seed"))),
            Cell(f"{demo.number('seconds', 'total') or 0:.0f}"),
            Cell(str(demo.get("peak_rss_mib"))),
        ]
        for demo in demos
    ]
    yield Table("Cost", ["run", "seed", "seconds, all stages", "peak memory, MiB"], rows)
    prints = [
        [Cell(demo.name), Cell(name), Cell(digest[:DIGITS])]
        for demo in demos
        for name, digest in _flat(demo.table("fingerprints"))
    ]
    yield Table("Fingerprints of what the runs began with", ["run", "of", "fingerprint"], prints, labels=3, folded=True)


def _versions(found: Holdings) -> Table:
    """A row a run; of several checkpoints of one run every version that was used."""
    used: dict[str, dict[str, dict[str, None]]] = {}
    for document in [*found.demos, *found.versions]:
        for name, value in _flat(document.values.get("versions") or {}):
            used.setdefault(document.run, {}).setdefault(name, {})[value] = None
    names = list(dict.fromkeys(name for own in used.values() for name in own))
    rows = [[Cell(run), *(Cell(", ".join(own.get(name, {}))) for name in names)] for run, own in used.items()]
    return Table("Versions the runs recorded", ["run", *names], rows, labels=1 + len(names))


def _page() -> Table:
    rows = [[Cell(name), Cell(value)] for name, value in _flat(made_with())]
    return Table("What made this page", ["part", "is"], rows, labels=2)


def _by_key(title: str, documents: Sequence[Document], *, folded: bool = False) -> Iterator[Table]:
    """A table for all files with the same keys; a value that differs is written once a run."""
    groups: dict[tuple[str, ...], list[tuple[str, dict[str, str]]]] = {}
    for document in documents:
        flat = dict(_flat(document.values))
        groups.setdefault(tuple(flat), []).append((document.name, flat))
    for keys, files in groups.items():
        rows = []
        for key in keys:
            values = [flat[key] for _, flat in files]
            alike = len(set(values)) == 1
            said = values[0] if alike else "; ".join(dict.fromkeys(f"{name}: {flat[key]}" for name, flat in files))
            rows.append([Cell(key), Cell(said)])
        names = list(dict.fromkeys(name for name, _ in files))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        caption = f"{title} ({', '.join(names[:NAMED])}{more})"
        yield Table(caption, ["key", "value"], rows, labels=2, folded=folded)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as text."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, str) and value.startswith("/"):
        return "/".join(["...", *Path(value).parts[-2:]])
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
