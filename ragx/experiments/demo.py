"""The main job on the embedded knowledge base, end to end: `make demo`.

    index two editions -> train rag_sequence, rag_token, closed_book and a frozen retriever -> decode the test questions
    -> evaluate -> hot swap (section 4.5) -> citation audit -> results.json

Every stage goes on where an earlier run of the same demo stopped, and one that is done is reused; the log says so.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ragx import atomic, build, environment
from ragx.data.predictions import write_predictions
from ragx.data.tasks import write_examples
from ragx.data.world_leaders.editions import edition
from ragx.data.world_leaders.facts import EDITIONS
from ragx.data.world_leaders.questions import hot_swap_questions, questions
from ragx.errors import ConfigError
from ragx.experiments.demo_audit import audit_demo
from ragx.experiments.demo_results import DECODERS, MODELS, collect, predictions_path, questions_path, swapped_path
from ragx.experiments.evaluate import SUCCESS_AT
from ragx.experiments.hot_swap import answer_matrix
from ragx.experiments.predict import predict_to_file
from ragx.model import RagModel
from ragx.records import Example
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.schema import Demo
from ragx.training.loop import train

logger = logging.getLogger(__name__)


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
        ConfigError: the folder holds a demo with other settings.
        RagxError: a stage cannot do its work.
    """
    run_dir = Path(config.run_dir)
    _require_same_demo(config, run_dir)
    environment.record(run_dir)
    stages = Stages(run_dir / "stages.json")
    tests = questions("test")[: config.max_questions]
    swapped = {name: hot_swap_questions(name)[: config.max_questions] for name in EDITIONS}
    write_examples(run_dir / "questions.jsonl", tests)
    for name, asked in swapped.items():
        write_examples(questions_path(run_dir, name), asked)
    indexes, retriever = _index(config, run_dir, stages)
    for name, kind in MODELS.items():
        model = _model(config, name, retriever)
        if name != "frozen":
            _answer(model, tests, f"before.{name}", DECODERS[name][0], config, stages)
        if name == "rag_sequence":
            _retrieve(model, tests, "before", stages)
        with stages.stage(f"train.{name}"):
            train(
                model,
                questions("train"),
                settings=config.training.settings(seed=config.seed),
                run_dir=run_dir / "models" / name,
                card={"Task": f"The embedded demo, {name} ({kind}): world leaders as of {EDITIONS[0]}."},
            )
        for decoder in DECODERS[name]:
            _answer(model, tests, name, decoder, config, stages)
        if name == "rag_sequence":
            _retrieve(model, tests, "after", stages)
            _hot_swap(model, retriever, indexes, swapped, config, stages)
    with stages.stage("audit"):
        audits = audit_demo(run_dir)
    return collect(run_dir, tests, swapped, audits=audits, seconds=stages.seconds, seed=config.seed)


def _require_same_demo(config: Demo, run_dir: Path) -> None:
    """One folder, one demo: predictions and weights of other settings would be taken for these."""
    asked = {**asdict(config), "run_dir": None, "base": _base_fingerprints(config)}
    path = run_dir / "demo.json"
    if not path.exists():
        with atomic.open_file(path) as handle:
            json.dump(asked, handle, indent=1)
        return
    found = json.loads(path.read_text())
    changed = [key for key in asked if found.get(key) != json.loads(json.dumps(asked[key]))]
    if changed:
        raise ConfigError(
            f"{key} must be as in the demo that {run_dir} holds, got another value. Choose another run_dir or delete "
            "that one."
            for key in changed
        )


def _base_fingerprints(config: Demo) -> dict[str, str]:
    return {
        "generator": build.generator(config.generator).fingerprint(),
        "query_encoder": build.query_encoder(config.retriever).fingerprint(),
        "passage_encoder": build.passage_encoder(config.retriever).fingerprint(),
    }


def _index(config: Demo, run_dir: Path, stages: Stages) -> tuple[dict[str, Path], DenseRetriever]:
    encoder = build.passage_encoder(config.retriever)
    indexes = {name: run_dir / "indexes" / name for name in EDITIONS}
    for name, directory in indexes.items():
        with stages.stage(f"index.{name}"):
            build_index(edition(name), passage_encoder=encoder, directory=directory, edition=name, reuse=True)
    return indexes, DenseRetriever.open(indexes[EDITIONS[0]], passage_encoder=encoder)


def _model(config: Demo, name: str, retriever: DenseRetriever) -> RagModel:
    """A model of pretrained parts, before any joint training."""
    kind, generator = MODELS[name], build.generator(config.generator)
    if kind == "closed_book":
        return RagModel(kind=kind, generator=generator)
    encoder = build.query_encoder(config.retriever)
    model = RagModel(kind=kind, generator=generator, query_encoder=encoder, retriever=retriever, n_docs=config.n_docs)
    model.freeze_query_encoder = name == "frozen"
    return model


def _answer(model: RagModel, tests: Sequence[Example], name: str, decoder: str, config: Demo, stages: Stages) -> None:
    """Writes the predictions file of one model and decoder."""
    with stages.stage(f"decode.{name}.{decoder}"):
        predict_to_file(
            model,
            tests,
            predictions_path(stages.path.parent, name, decoder),
            decoder=decoder,
            settings=config.decoding.settings(),
            batch_size=config.decoding.batch_size,
            provenance={"seed": config.seed},
        )


def _retrieve(model: RagModel, tests: Sequence[Example], when: str, stages: Stages) -> None:
    """Writes success@k of the query encoder as it is now."""
    path = stages.path.parent / f"retrieval.{when}.json"
    if path.exists():
        return
    hits = dict.fromkeys(SUCCESS_AT, 0)
    with stages.stage(f"retrieve.{when}"), torch.no_grad():
        for start in range(0, len(tests), 64):
            batch = tests[start : start + 64]
            found, _ = model.retrieve([example.query for example in batch], n_docs=max(SUCCESS_AT))
            for example, passages in zip(batch, found.passages, strict=True):
                ranks = [rank for rank, passage in enumerate(passages, 1) if passage.key in example.gold]
                for k in SUCCESS_AT:
                    hits[k] += bool(ranks) and ranks[0] <= k
    with atomic.open_file(path) as handle:
        json.dump({str(k): count / len(tests) for k, count in hits.items()}, handle)


def _hot_swap(
    model: RagModel,
    retriever: DenseRetriever,
    indexes: dict[str, Path],
    asked: dict[str, list[Example]],
    config: Demo,
    stages: Stages,
) -> None:
    """Writes the answers of both editions' questions from both editions' indexes."""
    paths = {(i, q): swapped_path(stages.path.parent, index=i, questions=q) for i in EDITIONS for q in EDITIONS}
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
