"""What lies in the folders of runs: which file is what.

    demo.json + results.json   a demo                         metrics.jsonl   the steps of a training
    results.json               a hot swap, also of dumps,     metrics.json    an evaluation
                               or figures by n_docs
    summary.json               an audit; of a sweep its arms  config.yaml     the settings of a script
    *.jsonl                    predictions, by their first line
    environment.json           what a run was made with, see `ragx.environment`

One decision: a file is known by its name and shape, wherever in a run it lies, so that a page can be made of a demo, of
single scripts' runs or of both. A folder that holds nothing known is an error; a file that looks alike is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragx.environment import ENTRIES
from ragx.environment import FILE as ENVIRONMENT
from ragx.errors import ConfigError, DataError, RagxError
from ragx.experiments.report.documents import Document, metrics_of, read_json, read_yaml
from ragx.jsonl import read_rows
from ragx.training.metrics_log import read_metrics

DEPTH = 4  # folders below a run; a run of ours is flatter
UNREAD = ("checkpoints", "indexes", "wandb")
SWEEP, SUMMARY = "sweep.json", "summary.json"
NOT_SHOWN_ALONE = ("runs", "settings", "versions", "environments")
NOT_ANSWERS = ("before.", "hot_swap.")  # predictions of a demo that are not the answers of a trained model
# By name of the file: which list of `Holdings` it belongs to, by fields that it must have.
KINDS: dict[str, dict[str, set[str]]] = {
    "results.json": {
        "demos": {"exact_match_by_kind", "exact_match"},
        "swaps": {"matrix", "matched", "mismatched"},
        "dumps": {"leaders", "retrieval", "models"},
    },
    "metrics.json": {},
    SUMMARY: {"audits": {"schema", "metrics", "counts"}, "sweeps": {"arms", "axes", "metrics"}},
}


@dataclass(frozen=True)
class Training:
    """The steps of a training, as `ragx.training.metrics_log` wrote them."""

    run: str
    place: str
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Answers:
    """A predictions file, not read yet, with what its first line says of it."""

    run: str
    path: Path
    model: str
    decoder: str


@dataclass
class Holdings:
    """Everything known in the runs, in the order of the runs and of the folders in them."""

    runs: list[str] = field(default_factory=list)
    demos: list[Document] = field(default_factory=list)
    swaps: list[Document] = field(default_factory=list)
    dumps: list[Document] = field(default_factory=list)
    curves: list[Document] = field(default_factory=list)
    sweeps: list[Document] = field(default_factory=list)
    evaluations: list[Document] = field(default_factory=list)
    audits: list[Document] = field(default_factory=list)
    settings: list[Document] = field(default_factory=list)
    versions: list[Document] = field(default_factory=list)
    environments: list[Document] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    answers: list[Answers] = field(default_factory=list)


def read_runs(runs: Sequence[str | Path]) -> Holdings:
    """Everything known in the folders of `runs`.

    Raises:
        ConfigError: no run, no such folder, a folder twice or one that holds nothing known.
        DataError: a file that is known by its name but cannot be read.
    """
    folders = [Path(run) for run in runs]
    problems = [f"runs must name folders that are there, got {p}." for p in folders if not p.is_dir()]
    problems += [
        f"runs must be different folders, got {p} twice." for p in sorted({p for p in folders if folders.count(p) > 1})
    ]
    if not folders:
        problems = ["runs must name at least one folder, got none. Give runs=[runs/demo,...]."]
    if problems:
        raise ConfigError(problems)
    found = Holdings()
    for name, folder in zip(_names(folders), folders, strict=True):
        before = _count(found)
        for path in _files(folder):
            _take(found, name, folder, path)
        if _count(found) == before:
            known = "results.json, metrics.jsonl, metrics.json, summary.json or predictions"
            raise ConfigError(
                [f"runs must hold {known}, got {folder} without. Give folders that scripts of ragx wrote."]
            )
        found.runs.append(name)
    return found


def _names(folders: Sequence[Path]) -> list[str]:
    """The last two parts of each path, or the whole where two would be called alike."""
    short = ["/".join(folder.parts[-2:]) for folder in folders]
    return [name if short.count(name) == 1 else str(folder) for name, folder in zip(short, folders, strict=True)]


def _count(found: Holdings) -> int:
    """How many things to show; settings, versions and environments alone are none."""
    return sum(len(value) for name, value in vars(found).items() if name not in NOT_SHOWN_ALONE)


def _files(folder: Path) -> Iterator[Path]:
    """The files that may be known, those of a folder before those below it; of a sweep its summary and curves."""
    for top, folders, names in os.walk(folder):
        deep = len(Path(top).relative_to(folder).parts) >= DEPTH
        folders[:] = [] if deep else sorted(n for n in folders if n not in UNREAD and not n.startswith("."))
        if SWEEP in names:  # its summary says what its jobs, of which there may be hundreds, found
            folders[:] = []
            names = [SUMMARY] if SUMMARY in names else []
        yield from (Path(top, name) for name in sorted(names))


def _take(found: Holdings, run: str, folder: Path, path: Path) -> None:
    place = path.parent.relative_to(folder).as_posix().removeprefix(".")
    if path.name == "metrics.jsonl":
        found.trainings.append(Training(run, place, _steps(path)))
        versions = path.parent / "checkpoints" / "last" / "ragx.json"
        if versions.is_file():
            found.versions.append(read_json(run, place, versions))
    elif path.suffix == ".jsonl":
        answers = _answers(run, path)
        if answers is not None:
            found.answers.append(answers)
    elif path.name in ("config.yaml", "demo.json"):
        read = read_json if path.suffix == ".json" else read_yaml
        found.settings.append(read(run, place, path))
    elif path.name == ENVIRONMENT:
        found.environments += read_json(run, place, path).rows(ENTRIES)
    elif path.name in KINDS:
        document = read_json(run, place, path)
        kind = _kind(document)
        if kind is not None:
            getattr(found, kind).append(document)


def _kind(document: Document) -> str | None:
    """Which list of `Holdings` a document belongs to."""
    values, name = document.values, document.path.name
    for kind, fields in KINDS[name].items():
        if fields <= values.keys():
            return kind
    if name == "metrics.json":
        return "evaluations" if any(metrics_of(values)) else None
    by_number = name == "results.json" and values and all(key.isdecimal() for key in values)
    return "curves" if by_number and any(metrics_of(values)) else None


def _steps(path: Path) -> list[dict[str, Any]]:
    try:
        return read_metrics(path)
    except (KeyError, TypeError, ValueError) as error:
        message = "lines must be objects with a step, as training writes them, got another. Train again"
        raise DataError(message, path=path) from error


def _answers(run: str, path: Path) -> Answers | None:
    """What the first line says, None where the file holds no predictions."""
    if path.name.startswith(NOT_ANSWERS):
        return None
    try:
        first = next(iter(read_rows(path)), None)
    except RagxError:
        return None
    if first is None or not {"id", "query", "answer", "passages", "provenance"} <= set(first.values):
        return None
    provenance = first.values["provenance"]
    said = provenance if isinstance(provenance, Mapping) else {}
    return Answers(run, path, str(said.get("kind", "")), str(said.get("decoder", "")))
