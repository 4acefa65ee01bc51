"""What jobs of a sweep share: cut passages, indexes and trained models, each under a digest of what it depends on.

    <sweep>/passages/<digest>.jsonl    <sweep>/indexes/<kind>-<digest>/    <sweep>/models/<kind>-<digest>/

A part is made under a lock that other jobs wait for, on this machine or, where the file system has locks, on another.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ragx import atomic, build
from ragx.data.chunking import Document, passages_of
from ragx.errors import ConfigError
from ragx.records import Passage
from ragx.schema import BuildIndex, DataConfig
from ragx.schema_ablation import Ablate
from ragx.training.lock import locked
from ragx.training.loop import train
from ragx.training.metrics_log import read_metrics
from ragx.training.settings import FREE_TO_CHANGE

logger = logging.getLogger(__name__)
TRAINED = "trained.json"
# What of these groups changes neither an index nor a weight.
_RETRIEVER_FREE = ("device", "shards", "freeze_query_encoder", "query_encoder", "max_query_length", "filter", "given")
_INDEX_FREE = ("directory", "device", "batch_size", "ray_workers", "vectors_from")


def index_of(cfg: Ablate, sweep: Path) -> Path:
    """The folder of the index that a job searches, built where it is not there."""
    data = _cut(cfg, sweep)
    retriever = _without(asdict(cfg.retriever), (*_RETRIEVER_FREE, "reranker"))
    parts = {"data": [data.passages, data.edition], "retriever": retriever}
    name = f"{cfg.index.kind}-{_digest({**parts, 'index': _without(asdict(cfg.index), _INDEX_FREE)})}"
    directory = sweep / "indexes" / name
    with _held(sweep, name):
        wanted = replace(cfg.index, directory=str(directory))
        build.index(BuildIndex(data=data, retriever=cfg.retriever, index=wanted, reuse=True))
    return directory


def checkpoint_of(cfg: Ablate, sweep: Path) -> dict[str, Any]:
    """The model that a job answers with, trained where it is not there: folders below `sweep`, steps, last loss.

    Raises:
        ConfigError: nothing is to be trained, and no checkpoint is named.
    """
    if not cfg.ablation.train:
        if cfg.model.checkpoint is None:
            raise ConfigError(
                ["model.checkpoint must be given where ablation.train is false, got null. Name a folder."]
            )
        return {"directory": None, "checkpoint": cfg.model.checkpoint, "steps": None, "loss": None, "seconds": 0.0}
    directory = sweep / "models" / f"{cfg.model.kind}-{_digest(_training(cfg))}"
    with _held(sweep, directory.name):
        if not (directory / TRAINED).exists():
            _train(cfg, directory, sweep)
        found: dict[str, Any] = json.loads((directory / TRAINED).read_text(encoding="utf-8"))
    return found


def _train(cfg: Ablate, directory: Path, sweep: Path) -> None:
    settings = cfg.training.settings(seed=cfg.experiment.seed)
    dev = cfg.data.dev
    model = build.model(cfg)
    build.check_labels(cfg.data, model.generator)
    result = train(
        model,
        build.examples(cfg.data.train, data=cfg.data, targets=True),
        settings=settings,
        run_dir=directory,
        dev_examples=None if dev is None else build.examples(dev, data=cfg.data, targets=True),
        card={"Run": {"sweep": cfg.ablation.name, "questions": cfg.data.train, "seed": settings.seed}},
    )
    rows = read_metrics(result.metrics_path)
    whole = {
        "directory": directory.relative_to(sweep).as_posix(),
        "checkpoint": result.checkpoint.relative_to(sweep).as_posix(),
        "steps": result.step,
        "loss": rows[-1]["loss"] if rows else None,
        "seconds": round(result.seconds, 2),
    }
    with atomic.open_file(directory / TRAINED) as handle:
        json.dump(whole, handle, indent=1)


def _training(cfg: Ablate) -> dict[str, Any]:
    """Everything that the trained weights depend on."""
    return {
        "model": asdict(cfg.model),
        "retriever": _without(asdict(cfg.retriever), ("device", "shards")),
        "index": Path(cfg.index.directory).name if cfg.ablation.build_index else cfg.index.directory,
        "generator": asdict(cfg.generator),
        "data": _without(asdict(cfg.data), ("questions",)),
        "training": _without(asdict(cfg.training), tuple(FREE_TO_CHANGE)),
        "seed": cfg.experiment.seed,
    }


def _cut(cfg: Ablate, sweep: Path) -> DataConfig:
    """The data group over passages of `ablation.passage_words` words, which are written where they are not there."""
    size, data = cfg.ablation.passage_words, cfg.data
    if size is None:
        return data
    edition = build.edition(data)
    path = sweep / "passages" / f"{_digest({'data': [data.passages, edition], 'words': size})}.jsonl"
    if not path.exists():
        with atomic.open_file(path) as handle:
            for passage in _pieces(build.stream(data), size):
                handle.write(json.dumps(passage.to_json(), ensure_ascii=False) + "\n")
    return replace(data, passages=str(path), edition=edition)


def _pieces(passages: Any, size: int) -> Iterator[Passage]:
    """Each passage in pieces of `size` words; a piece is named after the passage it was cut from."""
    for passage in passages:
        whole = replace(passage, source=f"{passage.source}#{passage.chunk}")
        yield from passages_of(Document.of(whole), size=size)


@contextmanager
def _held(sweep: Path, name: str) -> Iterator[None]:
    """Only this job makes the part of that name; others wait."""
    with locked(sweep / ".locks" / name, wait=True):
        yield


def _without(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in names}


def _digest(parts: Mapping[str, Any]) -> str:
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]
