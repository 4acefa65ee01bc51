"""What an interrupted run left behind, and whether this is the same run.

progress   what was decided so far: step, best value, counters; goes into state.json
identity   settings, and what the run reads: model kind, n_docs, index, examples; compared key by key
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ragx.errors import CheckpointError, ConfigError
from ragx.model import RagModel
from ragx.records import Example
from ragx.retriever.filtered import own_filter
from ragx.training.selection import Selection
from ragx.training.settings import changes

logger = logging.getLogger(__name__)


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        selection: the best evaluation so far.
        step: optimizer steps done.
        seconds: time in the loop.
        stopped_early: `patience` ran out.
        skipped_steps: fp16 overflows.
        start_sums: checksum of the starting weights by group.
        initial_metrics, final_metrics: first and latest evaluation; null where a value is not finite.
    """

    selection: Selection
    step: int = 0
    seconds: float = 0.0
    stopped_early: bool = False
    skipped_steps: int = 0
    start_sums: dict[str, int] = field(default_factory=dict)
    initial_metrics: dict[str, float | None] = field(default_factory=dict)
    final_metrics: dict[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Progress:
        """The progress of a JSON object that `to_json` wrote."""
        return cls(**{**row, "selection": Selection(**row["selection"])})


def identity(
    model: RagModel, examples: Sequence[Example], dev_examples: Sequence[Example], *, processes: int
) -> dict[str, Any]:
    """What a run reads beside its settings, by dotted key."""
    tower = None if model.query_encoder is None else model.query_encoder.tower
    return {
        "model.kind": model.kind,
        "model.n_docs": model.n_docs,
        "model.max_target_length": model.max_target_length,
        "model.null_document": None if model.null_document is None else model.null_document.kind,
        "generator.template": model.generator.inputs.template,
        "generator.max_length": model.generator.inputs.max_length,
        "model.freeze_query_encoder": model.freeze_query_encoder,
        "model.passages_at_once": model.passages_at_once,
        "retriever.filter": own_filter(model.retriever),
        "retriever.filter.by_question": list(model.filtered_by),
        "retriever.max_query_length": None if tower is None else tower.max_length,
        "retriever.pooling": None if tower is None else tower.pooling,
        "retriever.fingerprint": model.retriever.fingerprint if model.retriever is not None else None,
        "data.examples": digest(example.to_json() for example in examples),
        "data.dev_examples": digest(example.to_json() for example in dev_examples),
        "processes": processes,
    }


def require_same(record: Mapping[str, Any], settings: Any, reads: Mapping[str, Any]) -> None:
    """Refuses to go on with another run than the one that wrote `record`.

    Args:
        settings: a flat record of settings, of this loop or of `bi_encoder_loop`.

    Raises:
        ConfigError: one sentence for each key that differs.
        CheckpointError: `record` is not one that a run wrote.
    """
    missing = [key for key in ("progress", "settings", "reads") if not isinstance(record.get(key), dict)]
    if missing:
        raise CheckpointError(
            f"state.json must hold {' and '.join(missing)} of the interrupted run, got none. Copy the run again, whole."
        )
    problems = changes(record["settings"], settings)
    for key, before in record["reads"].items():
        if key == "processes" and reads[key] != before:
            # The gradient is the same mean over the same batch; only its rounding and the dropout masks differ.
            logger.warning("resumed with %s processes after %s: equal but for rounding and dropout", reads[key], before)
        elif reads.get(key) != before:
            problems.append(f"{key} must equal {before!r} of the interrupted run, got {reads.get(key)!r}.")
    if problems:
        problems.append(
            "Resume with the old values, choose another folder (hydra.run.dir=... of a script), or delete this run's."
        )
        raise ConfigError(problems)


def finite_or_none(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics as JSON can hold them: None in place of what is not a finite number."""
    return {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}


def digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Names a list of JSON objects by their number and content."""
    found, count = hashlib.sha256(), 0
    for row in rows:
        count += 1
        found.update(json.dumps(row, ensure_ascii=False, sort_keys=True).encode())
    return f"{count} examples, sha256 {found.hexdigest()[:16]}"
