"""How often the answers from each dump are right, by the date of the leaders, and what the trained q(x) finds.

    exact_match[index][questions]      as the paper's four figures of section 4.5
    success_at[edition][k]             on the dump of the questions' own date

One decision: a question's score is its mean over the checkpoints of a kind, so that an interval is over questions, the
unit that was sampled, and several seeds do not make it narrower than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragx.data.predictions import read_predictions
from ragx.evaluation.answers import exact_match, f1
from ragx.evaluation.retrieval import Ranking, rank_scores
from ragx.evaluation.significance import aggregate
from ragx.experiments.dumps.answers import Files
from ragx.experiments.dumps.groups import Questions, groups_of, members
from ragx.experiments.evaluate import paired
from ragx.records import Example, Prediction

Scores = Mapping[str, float | None]
"""By question."""
Run = Sequence[tuple[Prediction, Example]]
_MEASURES: Mapping[str, Callable[..., float]] = {"exact_match": exact_match, "f1": f1}


def accuracy(files: Files, questions: Questions, *, ks: Sequence[int], seed: int) -> dict[str, Any]:
    """{group: {"exact_match": {index: {questions: metric}}, "f1": ..., "success_at": {edition: {k: metric}}}}.

    Args:
        files: of one kind of model.
        ks: of success@k, which is None where fewer than k passages were read.
        seed: of the bootstrap.
    """
    found: dict[str, Any] = {group: {name: {} for name in (*_MEASURES, "success_at")} for group in groups_of(questions)}
    for (index, asked), paths in files.items():
        runs = [paired(list(read_predictions(path)), questions[asked]) for path in paths]
        for name, measure in _MEASURES.items():
            scores = mean_scores([_measured(run, measure) for run in runs])
            for group, metric in _by_group(scores, questions, asked, seed=seed):
                found[group][name].setdefault(index, {})[asked] = metric
        for k in ks if index == asked else ():
            scores = mean_scores([_successes(run, k) for run in runs])
            for group, metric in _by_group(scores, questions, asked, seed=seed):
                found[group]["success_at"].setdefault(asked, {})[str(k)] = metric
    return found


def mean_scores(runs: Sequence[Scores]) -> dict[str, float | None]:
    """By question the mean over runs; None where one of them has none."""
    found: dict[str, float | None] = {}
    for name in runs[0]:
        given = [value for run in runs if (value := run[name]) is not None]
        found[name] = sum(given) / len(given) if len(given) == len(runs) else None
    return found


def _measured(run: Run, measure: Callable[..., float]) -> dict[str, float | None]:
    return {example.id: measure(prediction=found.answer, answers=example.answers) for found, example in run}


def _successes(run: Run, k: int) -> dict[str, float | None]:
    rankings = {
        example.id: Ranking([passage.key for passage in found.passages], example.gold) for found, example in run
    }
    return {name: row[f"success_at.{k}"] for name, row in rank_scores(rankings, [k]).items()}


def _by_group(scores: Scores, questions: Questions, asked: str, *, seed: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        (group, aggregate((scores[e.id] for e in members(questions[asked], ids)), seed=seed).to_json())
        for group, ids in groups_of(questions).items()
    ]
