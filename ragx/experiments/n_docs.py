"""Figure 3 of the paper: how many passages are read at test time, under weights that stay as they are.

    {"5": {"exact_match": {...}, "success_at": {"1": ..., "5": ...}, ...}, "10": {...}, ...}

Every point is the metrics of `ragx.experiments.evaluate`, success@k for each k of the curve up to that point beside it.
One decision: the model is opened once and its n_docs alone is changed. Every point keeps its predictions file, so that
a run that was killed goes on at the point where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragx.data.predictions import read_predictions
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from ragx.experiments.evaluate import evaluate
from ragx.experiments.predict import predict_to_file
from ragx.model import RagModel
from ragx.records import Example


def n_docs_curve(
    model: RagModel,
    examples: Sequence[Example],
    directory: str | Path,
    *,
    n_docs: Sequence[int],
    decoder: str,
    settings: DecodingSettings,
    task: str = "open_qa",
    batch_size: int = 32,
) -> dict[str, Any]:
    """The metrics at each number of passages, by that number.

    Args:
        model: a RagModel that retrieves; it is left with the n_docs it came with.
        directory: of the predictions files, `<n_docs>.jsonl`.
        n_docs: points of the curve, in any order.
        decoder, settings, batch_size: as for `predict_to_file`.
        task: as for `evaluate`.

    Raises:
        ConfigError: a model that reads no passages.
    """
    if model.retriever is None:
        raise ConfigError([f"model.kind must be one that reads passages, got {model.kind}. It has no such curve."])
    came_with, points = model.n_docs, sorted(set(n_docs))
    curve: dict[str, Any] = {}
    try:
        for point in points:
            model.n_docs = point
            path = Path(directory) / f"{point}.jsonl"
            predict_to_file(model, examples, path, decoder=decoder, settings=settings, batch_size=batch_size)
            ks = [k for k in points if k <= point]
            curve[str(point)] = evaluate(read_predictions(path), examples, task=task, ks=ks)
    finally:
        model.n_docs = came_with
    return curve
