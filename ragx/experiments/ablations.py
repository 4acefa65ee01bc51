"""One job of a sweep: index -> train -> generate -> evaluate -> result.json, which is written last.

    result.json with the same resolved config    the job is done and nothing is run again
    result.json with another config              refused: its figures would be taken for these
    no result.json                               the job goes on where it was killed

One decision: jobs that would build the same index or train the same model share it. It lies in the folder of the sweep
under a digest of everything that it depends on, and the first job that needs it makes it, the others wait. Equal
configs train equal weights, so sharing changes no figure.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import OmegaConf

from ragx import atomic, build, config
from ragx.data.predictions import read_predictions
from ragx.errors import ConfigError
from ragx.evaluation.columns import Row, columns
from ragx.experiments.ablations_checks import check_metrics
from ragx.experiments.ablations_parts import checkpoint_of, index_of
from ragx.experiments.evaluate import evaluate, paired
from ragx.experiments.predict import predict_to_file
from ragx.model import CLOSED_BOOK
from ragx.records import Prediction
from ragx.schema_ablation import Ablate
from ragx.training.settings import FREE_TO_CHANGE
from ragx.training.tracking import Tracker, tracked

FORMAT = 1
RESULT, FAILURE, PREDICTIONS = "result.json", "failure.json", "predictions.jsonl"
logger = logging.getLogger(__name__)


def run_job(cfg: Ablate, *, run_dir: Path, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Does what is left of a job and returns its result.

    Args:
        cfg: of the job.
        run_dir: its folder, in that of the sweep.
        overrides: what tells it from the other jobs, as on the command line.

    Raises:
        ConfigError: the folder holds the result of another config, or a metric is none of the task's.
        RagxError: a stage cannot do its work.
    """
    check_metrics(cfg.ablation.metrics, task=cfg.data.task, ks=cfg.ablation.success_at)  # before hours of work
    result = read_json(run_dir / RESULT)
    changed = _changes(cfg, run_dir)
    if result is not None:
        if changed:
            advice = "Give hydra.sweep.dir=... another folder, or delete this job's to run it again"
            raise ConfigError(
                f"{key} must be {then!r} as in the finished job of {run_dir}, got {now!r}. {advice}."
                for key, (then, now) in changed.items()
            )
        logger.info("%s: done before, reused", run_dir)
        return result
    if changed:  # what another config left unfinished
        for file in (*run_dir.glob(f"{PREDICTIONS}*"), *run_dir.glob("*.json")):
            file.unlink()
    config.save(cfg, run_dir)
    seconds: dict[str, float] = {}
    with _tracker(cfg, run_dir, overrides) as tracker:
        with _timed("index", seconds):
            cfg = _over_index(cfg, run_dir.parent)
        with _timed("train", seconds):
            training = checkpoint_of(cfg, run_dir.parent)
        with _timed("generate", seconds):
            predictions = _answer(cfg, run_dir, run_dir.parent / training["checkpoint"])
        with _timed("evaluate", seconds):
            metrics = _score(cfg, run_dir, predictions)
        result = {
            "format": FORMAT,
            "folder": run_dir.name,
            "overrides": dict(overrides),
            "seed": cfg.experiment.seed,
            "config_sha256": hashlib.sha256((run_dir / "config.yaml").read_bytes()).hexdigest(),
            "metrics": metrics,
            "training": training,
            "null_document": _null_document(predictions),
            "seconds": {name: round(value, 2) for name, value in seconds.items()},
        }
        write_json(run_dir / RESULT, result)
        _publish(tracker, cfg, result, predictions, sweep=run_dir.parent)
    return result


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object of a file; None where there is no such file."""
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object, whole or not at all; what JSON does not have (nan) is refused."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic.open_file(path) as handle:
        handle.write(text + "\n")


def _changes(cfg: Ablate, run_dir: Path) -> dict[str, tuple[Any, Any]]:
    """Keys that differ from the config that was saved in the folder; none where there is none."""
    path = run_dir / "config.yaml"
    if not path.exists():
        return {}
    then: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    before, now = dict(_flat(then)), dict(_flat(json.loads(json.dumps(asdict(cfg)))))
    free = {f"training.{key}" for key in FREE_TO_CHANGE} | {"ablation.baseline", "decoding.device"}
    keys = [key for key in (now | before) if not any(key == f or key.startswith(f"{f}.") for f in free)]
    return {key: (before.get(key), now.get(key)) for key in keys if before.get(key) != now.get(key)}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@contextmanager
def _timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    logger.info(name)
    began = time.monotonic()
    yield
    seconds[name] = time.monotonic() - began


def _over_index(cfg: Ablate, sweep: Path) -> Ablate:
    """`cfg` over the index of the sweep that it needs."""
    if cfg.model.kind == CLOSED_BOOK or not cfg.ablation.build_index:
        return cfg
    return replace(cfg, index=replace(cfg.index, directory=str(index_of(cfg, sweep))))


def _answer(cfg: Ablate, run_dir: Path, checkpoint: Path) -> list[Prediction]:
    """The predictions of the trained model, written to the folder of the job."""
    n_docs = cfg.ablation.n_docs
    trained = replace(cfg, model=replace(cfg.model, checkpoint=str(checkpoint), n_docs=n_docs))
    model = build.model(trained).to(build.device(cfg.decoding.device))
    build.check_labels(cfg.data, model.generator)
    path = predict_to_file(
        model,
        build.examples(cfg.data.questions, data=cfg.data),
        run_dir / PREDICTIONS,
        decoder=build.decoder(cfg.decoding.decoder, model.kind),
        settings=cfg.decoding.settings(),
        batch_size=cfg.decoding.batch_size,
        labels=cfg.decoding.labels,
        provenance={"questions": cfg.data.questions, "seed": cfg.experiment.seed},
    )
    return read_predictions(path)


def _score(cfg: Ablate, run_dir: Path, predictions: list[Prediction]) -> dict[str, Any]:
    """Every figure by its dotted name; metrics.json and scores.json are written."""
    examples = build.examples(cfg.data.questions, data=cfg.data)
    task, ks = cfg.data.task, cfg.ablation.success_at
    table = columns(paired(predictions, examples), task=task, ks=ks)
    metrics = evaluate(predictions, examples, task=task, ks=ks)
    write_json(run_dir / "metrics.json", metrics)
    scores = {name: dict(zip([e.id for e in examples], table[name].rows, strict=True)) for name in cfg.ablation.metrics}
    write_json(run_dir / "scores.json", {name: _plain(rows) for name, rows in scores.items()})
    return dict(_figures({name: value for name, value in metrics.items() if name != "by_kind"}))


def _plain(rows: Mapping[str, Row]) -> dict[str, Any]:
    return {key: [float(v) for v in row] if isinstance(row, tuple) else row for key, row in rows.items()}


def _figures(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in tree.items():
        if "value" in value:
            yield f"{prefix}{name}", value
        else:
            yield from _figures(value, f"{prefix}{name}.")


def _null_document(predictions: list[Prediction]) -> dict[str, float] | None:
    """What of prior and posterior went to the null document, on average over the questions."""
    found = [prediction.null_document for prediction in predictions if prediction.null_document is not None]
    if not found:
        return None
    return {"prior": fmean(share.prior for share in found), "posterior": fmean(share.posterior for share in found)}


def _tracker(cfg: Ablate, run_dir: Path, overrides: Mapping[str, str]) -> Any:
    """The wandb run of the job, which training joins; grouped by sweep."""
    settings = cfg.training
    return tracked(
        settings.wandb_project,
        mode=settings.wandb_mode,
        directory=run_dir,
        config={**asdict(cfg), "overrides": dict(overrides)},
        group=cfg.ablation.name,
    )


def _publish(
    tracker: Tracker, cfg: Ablate, result: Mapping[str, Any], predictions: list[Prediction], *, sweep: Path
) -> None:
    """The end of the job's wandb run: test figures and answers; checkpoint and index are those of its training."""
    if result["training"]["directory"] is not None:  # the curve of a model that another job trained
        tracker.history(sweep / result["training"]["directory"] / "metrics.jsonl")
    tracker.summary({f"test/{name}": metric["value"] for name, metric in result["metrics"].items()})
    tracker.predictions(predictions, build.examples(cfg.data.questions, data=cfg.data))
