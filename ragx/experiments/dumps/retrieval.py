"""success@k of BM25 and of pairs of encoders, each on every dump, by questions of the dump's own date.

One decision: gold is the passage that states the holder, so a passage of the right country that names somebody else is
a miss; a position whose holder the dump does not state is not scored and stands in `n_null`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragx import build
from ragx.evaluation.significance import aggregate
from ragx.experiments.dumps.groups import Questions, groups_of, members
from ragx.experiments.retrieval import evaluate_retrieval
from ragx.records import Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.building import build_index
from ragx.schema_dumps import HotSwapDumps
from ragx.schema_retriever import RetrieverConfig

BM25 = "BM25"
Passages = Mapping[str, Sequence[Passage]]


def retrieval(config: HotSwapDumps, passages: Passages, questions: Questions) -> Iterator[tuple[str, dict[str, Any]]]:
    """For BM25 and each pair of encoders its name and {edition: {group: {k: metric}}}; builds what indexes are missing.

    Raises:
        ConfigError, CheckpointError: encoders that cannot be had.
    """
    yield BM25, {edition: _words(config, passages, questions, edition) for edition in passages}
    for settings in (config.retriever, config.other):
        if settings is not None:
            found = {edition: _vectors(config, settings, passages, questions, edition) for edition in passages}
            yield name_of(settings), found


def name_of(settings: RetrieverConfig) -> str:
    """What the table calls a pair of encoders: the last part of the query encoder's name."""
    return Path(str(settings.query_encoder)).name


def index_of(config: HotSwapDumps, name: str, edition: str) -> Path:
    """The folder of one encoder's index of one dump."""
    return Path(config.indexes) / f"{name}-{edition}"


def _words(config: HotSwapDumps, passages: Passages, questions: Questions, edition: str) -> dict[str, Any]:
    directory = index_of(config, BM25, edition)
    found = BM25Retriever.build(passages[edition], directory, edition=edition)
    return _figures(config, questions, edition, retriever=found)


def _vectors(
    config: HotSwapDumps, settings: RetrieverConfig, passages: Passages, questions: Questions, edition: str
) -> dict[str, Any]:
    directory = index_of(config, name_of(settings), edition)
    device = build.device(config.decoding.device)
    encoder = build.passage_encoder(settings).to(device)
    build_index(
        passages[edition], passage_encoder=encoder, directory=directory, edition=edition, reuse=True, progress=True
    )
    found = build.dense_retriever(settings, directory=str(directory))
    query_encoder = build.query_encoder(settings).to(device)
    return _figures(config, questions, edition, retriever=found, query_encoder=query_encoder)


def _figures(config: HotSwapDumps, questions: Questions, edition: str, **searched: Any) -> dict[str, Any]:
    found = {}
    for group, ids in groups_of(questions).items():
        examples = members(questions[edition], ids)
        if any(example.gold for example in examples):
            scored = evaluate_retrieval(examples=examples, ks=config.success_at, seed=config.seed, **searched)
            found[group] = scored["success_at"]
        else:  # the dump states none of them
            found[group] = {str(k): aggregate([None] * len(examples)).to_json() for k in config.success_at}
    return found
