"""results.json of `make demo`, put together from the files that the demo wrote; no model is opened."""

from __future__ import annotations

import json
import platform
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from ragx import atomic
from ragx.data.predictions import read_predictions
from ragx.experiments.evaluate import evaluate
from ragx.experiments.hot_swap import summarize
from ragx.records import Example
from ragx.retriever.dense import DenseRetriever

# What is trained, and as which kind; `frozen` is rag_sequence whose query encoder stands still.
MODELS = {
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


def predictions_path(run_dir: Path, name: str, decoder: str) -> Path:
    """Where the answers of a model (`before.<model>` untrained) and decoder are."""
    return run_dir / "predictions" / f"{name}.{decoder}.jsonl"


def swapped_path(run_dir: Path, *, index: str, questions: str) -> Path:
    """Where the answers to an edition's questions from an edition's index are."""
    return run_dir / "predictions" / f"hot_swap.index-{index}.questions-{questions}.jsonl"


def questions_path(run_dir: Path, edition: str) -> Path:
    """Where the questions asked about an edition are; a short demo asks only some."""
    return run_dir / f"questions.{edition}.jsonl"


def collect(
    run_dir: Path,
    tests: Sequence[Example],
    swapped: Mapping[str, Sequence[Example]],
    *,
    audits: Mapping[str, Mapping[str, float | None]],
    seconds: Mapping[str, float],
    seed: int,
) -> dict[str, Any]:
    """Every figure of the demo, written to results.json and returned.

    Args:
        tests: the questions that were answered.
        swapped: hot-swap questions by edition.
        audits: figures of the citation audits by audit.
        seconds: of each stage.
    """

    def metrics(name: str, decoder: str) -> dict[str, Any]:
        return evaluate(read_predictions(predictions_path(run_dir, name, decoder)), tests)

    after = {name: {decoder: metrics(name, decoder) for decoder in row} for name, row in DECODERS.items()}
    before = {name: {row[0]: metrics(f"before.{name}", row[0])} for name, row in DECODERS.items() if name != "frozen"}
    answers = {
        index: {about: read_predictions(swapped_path(run_dir, index=index, questions=about)) for about in swapped}
        for index in swapped
    }
    results = {
        "exact_match": _each(after, lambda m: m["exact_match"]["value"]),
        "exact_match_before": _each(before, lambda m: m["exact_match"]["value"]),
        "exact_match_ci95": _each(after, lambda m: m["exact_match"]["ci95"]),
        "exact_match_by_kind": {
            name: {kind: m["exact_match"]["value"] for kind, m in row[DECODERS[name][0]]["by_kind"].items()}
            for name, row in after.items()
        },
        "different_answers": {name: _different(run_dir, name) for name in DECODERS},
        "supported_share": _each(after, lambda m: m["cited_full"]["value"]),
        "questions": len(tests),
        "retrieval": {
            "success_at": json.loads((run_dir / "retrieval.after.json").read_text()),
            "success_at_before": json.loads((run_dir / "retrieval.before.json").read_text()),
        },
        "hot_swap": summarize(answers, swapped),
        "audit": audits,
        "seconds": {**seconds, "total": round(sum(seconds.values()), 2)},
        "peak_rss_mib": _peak_rss(run_dir),
        "seed": seed,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "fingerprints": {
            **json.loads((run_dir / "demo.json").read_text())["base"],
            "indexes": {name: DenseRetriever.open(run_dir / "indexes" / name).fingerprint for name in swapped},
        },
    }
    with atomic.open_file(run_dir / "results.json") as handle:
        handle.write(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return results


def _different(run_dir: Path, name: str) -> int:
    """To how many questions the two decoders of a model give different answers."""
    one, other = (read_predictions(predictions_path(run_dir, name, decoder)) for decoder in DECODERS[name])
    return sum(a.answer != b.answer for a, b in zip(one, other, strict=True))


def _each(metrics: Mapping[str, Mapping[str, Any]], pick: Any) -> dict[str, dict[str, Any]]:
    return {name: {decoder: pick(m) for decoder, m in row.items()} for name, row in metrics.items()}


def _peak_rss(run_dir: Path) -> int:
    """Peak resident memory of the process in MiB, or of the run that did the work where this one reused it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    earlier = run_dir / "results.json"
    return max(peak, json.loads(earlier.read_text())["peak_rss_mib"]) if earlier.exists() else peak
