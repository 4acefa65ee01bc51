"""The main job on the embedded knowledge base, end to end: `make demo`.

    index two editions -> train rag_sequence, rag_token, closed_book and a frozen retriever -> decode the test questions
    -> evaluate -> hot swap (section 4.5) -> results.json

Every stage goes on where an earlier run of the same demo stopped, and one that is done is reused; the log says so.
"""

from __future__ import annotations

import json
import logging
import platform
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from ragx import atomic, build
from ragx.data.predictions import read_predictions, write_predictions
from ragx.data.tasks import write_examples
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.facts import EDITIONS
from ragx.data.world_leaders.questions import hot_swap_questions, questions
from ragx.experiments.evaluate import SUCCESS_AT, evaluate
from ragx.experiments.hot_swap import answer_matrix, summarize
from ragx.experiments.predict import predict_to_file
from ragx.model import RagModel
from ragx.records import Example, Prediction
from ragx.retriever.dense import DenseRetriever, build_index
from ragx.schema import Demo
from ragx.training.loop import train

logger = logging.getLogger(__name__)

KINDS = {
    "rag_sequence": "rag_sequence",
    "rag_token": "rag_token",
    "closed_book": "closed_book",
    "frozen": "rag_sequence",
}
DECODERS = {
    "rag_sequence": ("thorough", "fast"),
    "rag_token": ("token_beam", "greedy"),
    "closed_book": ("token_beam", "greedy"),
    "frozen": ("thorough", "fast"),
}
MAIN, OTHER = EDITIONS


class Stages:
    """Seconds of each stage, kept over runs: a stage that is reused keeps the time it took when it was done.

    Args:
        path: a JSON file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage and remembers it once it is done."""
        reused = name in self.seconds
        logger.info("%s%s", name, ": done before, reused" if reused else "")
        began = time.monotonic()
        yield
        if not reused:
            self.seconds[name] = round(time.monotonic() - began, 2)
            with atomic.open_file(self.path) as handle:
                json.dump(self.seconds, handle, indent=1)


def run_demo(config: Demo) -> dict[str, Any]:
    """Runs what is missing under `config.run_dir` and returns what results.json holds.

    Raises:
        RagxError: the folder holds a demo with other settings, or any stage cannot do its work.
    """
    run_dir = Path(config.run_dir)
    stages = Stages(run_dir / "stages.json")
    tests = questions("test")
    write_examples(run_dir / "questions.jsonl", tests)
    indexes, retriever = _index(config, run_dir, stages)
    exact_match: dict[str, dict[str, Any]] = {name: {} for name in KINDS}
    before: dict[str, dict[str, Any]] = {}
    retrieval: dict[str, Any] = {}
    swap: dict[str, Any] = {}
    for name in KINDS:
        model = _model(config, name, retriever)
        first = DECODERS[name][0]
        if name != "frozen":
            before[name] = {first: _answer(model, tests, first, config, stages, name=f"before.{name}")["exact_match"]}
        if name == "rag_sequence":
            retrieval["before"] = _success(model, tests, stages, name="before")
        with stages.stage(f"train.{name}"):
            train(
                model,
                questions("train"),
                settings=config.training.settings(seed=config.seed),
                run_dir=run_dir / "models" / name,
                card={"Task": "The embedded demo: world leaders as of 2016-12."},
            )
        for decoder in DECODERS[name]:
            metrics = _answer(model, tests, decoder, config, stages, name=name)
            exact_match[name][decoder] = metrics
        if name == "rag_sequence":
            retrieval["after"] = _success(model, tests, stages, name="after")
            swap = _hot_swap(model, retriever, indexes, config, stages)
    results = {
        "exact_match": _values(exact_match, "exact_match"),
        "exact_match_before": {name: {d: m["value"] for d, m in row.items()} for name, row in before.items()},
        "exact_match_ci95": {
            name: {d: m["exact_match"]["ci95"] for d, m in row.items()} for name, row in exact_match.items()
        },
        "exact_match_by_kind": _by_kind(exact_match),
        "supported_share": _values(
            {name: row for name, row in exact_match.items() if name != "closed_book"}, "cited_full"
        ),
        "questions": len(tests),
        "retrieval": {"success_at": retrieval["after"], "success_at_before": retrieval["before"]},
        "hot_swap": swap,
        "seconds": {**stages.seconds, "total": round(sum(stages.seconds.values()), 2)},
        "peak_rss_mib": _peak_rss(run_dir),
        "seed": config.seed,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "fingerprints": {"indexes": {name: DenseRetriever.open(path).fingerprint for name, path in indexes.items()}},
    }
    with atomic.open_file(run_dir / "results.json") as handle:
        handle.write(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return results


def _index(config: Demo, run_dir: Path, stages: Stages) -> tuple[dict[str, Path], DenseRetriever]:
    encoder = build.passage_encoder(config.retriever)
    indexes = {name: run_dir / "indexes" / name for name in EDITIONS}
    for name, directory in indexes.items():
        with stages.stage(f"index.{name}"):
            build_index(edition(name), passage_encoder=encoder, directory=directory, edition=name, reuse=True)
    return indexes, DenseRetriever.open(indexes[MAIN], passage_encoder_fingerprint=encoder.fingerprint())


def _model(config: Demo, name: str, retriever: DenseRetriever) -> RagModel:
    """A model of pretrained parts, before any joint training."""
    kind, generator = KINDS[name], build.generator(config.generator)
    if kind == "closed_book":
        return RagModel(kind=kind, generator=generator)
    encoder = build.query_encoder(config.retriever)
    model = RagModel(kind=kind, generator=generator, query_encoder=encoder, retriever=retriever, n_docs=config.n_docs)
    model.freeze_query_encoder = name == "frozen"
    return model


def _answer(
    model: RagModel, tests: Sequence[Example], decoder: str, config: Demo, stages: Stages, *, name: str
) -> dict:
    """Metrics of the test questions, after writing their predictions file."""
    path = stages.path.parent / "predictions" / f"{name}.{decoder}.jsonl"
    with stages.stage(f"decode.{name}.{decoder}"):
        predict_to_file(
            model,
            tests,
            path,
            decoder=decoder,
            settings=config.decoding.settings(),
            batch_size=config.decoding.batch_size,
            provenance={"seed": config.seed},
        )
    return evaluate(read_predictions(path), tests)


def _success(model: RagModel, tests: Sequence[Example], stages: Stages, *, name: str) -> dict[str, float]:
    """success@k of the query encoder as it is now."""
    hits = dict.fromkeys(SUCCESS_AT, 0)
    with stages.stage(f"retrieve.{name}"), torch.no_grad():
        for start in range(0, len(tests), 64):
            batch = tests[start : start + 64]
            found, _ = model.retrieve([example.query for example in batch], n_docs=max(SUCCESS_AT))
            for example, passages in zip(batch, found.passages, strict=True):
                ranks = [rank for rank, passage in enumerate(passages, 1) if passage.key in example.gold]
                for k in SUCCESS_AT:
                    hits[k] += bool(ranks) and ranks[0] <= k
    return {str(k): count / len(tests) for k, count in hits.items()}


def _hot_swap(
    model: RagModel, retriever: DenseRetriever, indexes: dict[str, Path], config: Demo, stages: Stages
) -> dict[str, Any]:
    asked = {name: hot_swap_questions(name) for name in EDITIONS}
    paths = {
        (index, about): stages.path.parent / "predictions" / f"hot_swap.index-{index}.questions-{about}.jsonl"
        for index in EDITIONS
        for about in EDITIONS
    }
    with stages.stage("hot_swap"):
        if not all(path.exists() for path in paths.values()):
            answers = answer_matrix(
                model,
                retriever=retriever,
                index_dirs=indexes,
                questions=asked,
                decoder=DECODERS["rag_sequence"][0],
                settings=config.decoding.settings(),
            )
            for (index, about), path in paths.items():
                write_predictions(path, answers[index][about])
    read: dict[str, dict[str, list[Prediction]]] = {
        index: {about: read_predictions(paths[index, about]) for about in EDITIONS} for index in EDITIONS
    }
    return summarize(read, asked)


def _values(metrics: dict[str, dict[str, Any]], key: str) -> dict[str, dict[str, float]]:
    return {name: {decoder: m[key]["value"] for decoder, m in row.items()} for name, row in metrics.items()}


def _by_kind(metrics: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Exact match by kind of question, with the main decoder of each model."""
    return {
        name: {kind: m["exact_match"]["value"] for kind, m in row[DECODERS[name][0]]["by_kind"].items()}
        for name, row in metrics.items()
    }


def _peak_rss(run_dir: Path) -> int:
    """Peak resident memory of the process in MiB, or of the run that did the work where this one reused it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    earlier = run_dir / "results.json"
    return max(peak, json.loads(earlier.read_text())["peak_rss_mib"]) if earlier.exists() else peak
