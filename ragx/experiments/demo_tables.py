"""The tables that `make demo` prints, from results.json and the predictions files alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ragx.data.predictions import read_predictions
from ragx.experiments.demo_audit import render_audits
from ragx.records import Prediction

SHOWN = 3


def render(results: dict[str, Any], run_dir: str | Path) -> str:
    """Every table of the demo and a few answers with the passages that support them, as text."""
    parts = (
        _exact_match(results),
        _kinds(results),
        _retrieval(results),
        _hot_swap(results),
        _answers(Path(run_dir)),
        render_audits(results["audit"], Path(run_dir)),
        _cost(results),
    )
    return "\n\n".join(
        ["", *parts, f"predictions with passages: {run_dir}/predictions    figures: {run_dir}/results.json"]
    )


def _exact_match(results: dict[str, Any]) -> str:
    lines = [
        f"Exact match on {results['questions']} test questions (seed {results['seed']})",
        f"  {'model':<14}{'decoder':<12}{'before':>8}{'after':>8}   95% interval    supported",
    ]
    for name, row in results["exact_match"].items():
        for decoder, value in row.items():
            before = results["exact_match_before"].get(name, {}).get(decoder)
            low, high = results["exact_match_ci95"][name][decoder]
            share = results["supported_share"].get(name, {}).get(decoder)
            lines.append(
                f"  {name:<14}{decoder:<12}{_figure(before):>8}{value:>8.3f}   {low:.3f} - {high:.3f}"
                f"   {_figure(share):>8}"
            )
    lines.append("  supported: share of answers that stand word for word in a passage they cite")
    for name, count in results["different_answers"].items():
        lines.append(f"  {name}: {' and '.join(results['exact_match'][name])} differ on {count} questions")
    return "\n".join(lines)


def _kinds(results: dict[str, Any]) -> str:
    by_kind = results["exact_match_by_kind"]
    lines = ["Exact match by kind of question", f"  {'kind':<16}" + "".join(f"{name:>14}" for name in by_kind)]
    for kind in next(iter(by_kind.values())):
        lines.append(f"  {kind:<16}" + "".join(f"{row[kind]:>14.3f}" for row in by_kind.values()))
    return "\n".join(lines)


def _retrieval(results: dict[str, Any]) -> str:
    before, after = results["retrieval"]["success_at_before"], results["retrieval"]["success_at"]
    lines = [
        "Retrieval: a passage that states the answer is among the first k (success@k)",
        f"  {'k':<4}{'before':>8}{'after':>8}",
    ]
    lines += [f"  {k:<4}{before[k]:>8.3f}{after[k]:>8.3f}" for k in after]
    return "\n".join(lines)


def _hot_swap(results: dict[str, Any]) -> str:
    swap = results["hot_swap"]
    lines = [
        "Index hot swap: same weights, positions whose holder changed (paper: .70 and .68 against .12 and .04)",
        f"  {'questions of':<14}{'own index':>10}{'other index':>13}{'n':>6}",
    ]
    lines += [
        f"  {edition:<14}{swap['matched'][edition]:>10.3f}{swap['mismatched'][edition]:>13.3f}{swap['n'][edition]:>6}"
        for edition in swap["matched"]
    ]
    return "\n".join(lines)


def _answers(run_dir: Path) -> str:
    lines = ["Answers and the passages that support them (rag_sequence, thorough)"]
    predictions = read_predictions(run_dir / "predictions" / "rag_sequence.thorough.jsonl")
    for prediction in [p for p in predictions if p.citations][:SHOWN]:
        lines.append(f"  {prediction.query}  ->  {prediction.answer}   p(y|x) = {math.exp(prediction.logprob):.3f}")
        lines += [f"      {line}" for line in _cited(prediction)]
    return "\n".join(lines)


def _cited(prediction: Prediction) -> list[str]:
    texts = {passage.key: passage.text for passage in prediction.passages}
    return [
        f"p(z|x,y) = {c.posterior:.2f}  {c.key.source}@{c.key.version}#{c.key.chunk} ({c.support}): {texts[c.key]}"
        for c in prediction.citations
    ]


def _cost(results: dict[str, Any]) -> str:
    seconds = results["seconds"]
    stages = ", ".join(
        f"{name} {value:.0f}" for name, value in seconds.items() if name.startswith(("index", "train", "hot"))
    )
    return f"Seconds: {seconds['total']:.0f} in all ({stages}); peak memory {results['peak_rss_mib']} MiB"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
