"""Section 4: every figure of one predictions file, recomputed from the file alone; two files give their difference.

    {"exact_match": {value, n, n_null, ci95}, "f1": ..., "success_at": {"1": ..., "5": ..., "10": ...},
     "mrr": ..., "title_success_at": ..., "correct_without_evidence": ..., "by_kind": {kind: {...}}}

`ragx.evaluation.columns` says which figures a task has. `correct_without_evidence` is the share of right answers where
no passage that the generator read holds an accepted answer (the paper's 11.8% on Natural Questions); closed book has
none. One decision: predictions and examples meet by id, and must be the same questions letter by letter. A question
without a prediction is an error, never left out of the mean. Gold passages that are all of other versions than what was
retrieved are not scored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ragx.errors import RagxError
from ragx.evaluation.columns import Column, Pair, columns
from ragx.evaluation.significance import (
    Metric,
    PairedDifference,
    aggregate,
    aggregate_sums,
    paired_bootstrap,
    paired_sums,
)
from ragx.records import Example, Passage, Prediction

SUCCESS_AT = (1, 5, 10)
logger = logging.getLogger(__name__)


def evaluate(
    predictions: Sequence[Prediction],
    examples: Iterable[Example],
    *,
    task: str = "open_qa",
    ks: Sequence[int] = SUCCESS_AT,
    seed: int = 0,
) -> dict[str, Any]:
    """The metrics of a run; each is {value, n, n_null, ci95}.

    Args:
        predictions: one for every example, in any order.
        examples: with their accepted answers, and gold passages or titles where known.
        task: one of `ragx.data.tasks.TASKS`.
        ks: where success, recall, precision and nDCG are read off the ranking.
        seed: of the bootstrap.

    Raises:
        RagxError: predictions and examples are not the same questions, or passages do not come best first.
    """
    pairs = _scorable(paired(predictions, examples), warn=True)
    kinds = sorted({example.kind for _, example in pairs if example.kind})
    by_kind = {
        kind: _table([pair for pair in pairs if pair[1].kind == kind], task=task, ks=ks, seed=seed) for kind in kinds
    }
    return {**_table(pairs, task=task, ks=ks, seed=seed), "by_kind": by_kind}


def compare(
    first: Sequence[Prediction],
    second: Sequence[Prediction],
    examples: Iterable[Example],
    *,
    task: str = "open_qa",
    ks: Sequence[int] = SUCCESS_AT,
    seed: int = 0,
) -> dict[str, Any]:
    """How much better `first` is than `second`, question by question; each figure is {value, ci95, p_value, n}.

    A figure is compared on the questions that it scores for both, and left out where there are none.

    Raises:
        RagxError: as `evaluate`, of either.
    """
    asked = list(examples)
    ids = [example.id for example in asked]
    ours, theirs = (columns(_scorable(paired(found, asked)), task=task, ks=ks) for found in (first, second))
    differences = {name: _difference(ids, column, theirs[name], seed=seed) for name, column in ours.items()}
    return _nested({name: found.to_json() for name, found in differences.items() if found is not None})


def titled(examples: Iterable[Example], passages: Iterable[Passage]) -> list[Example]:
    """The examples with the titles of their gold passages, each by itself, where they have no titles of their own."""
    asked = list(examples)
    wanted = {key for example in asked for key in example.gold if not example.gold_titles}
    titles = {passage.key: passage.title for passage in passages if passage.key in wanted and passage.title}
    return [
        replace(e, gold_titles=e.gold_titles or tuple((titles[key],) for key in e.gold if key in titles)) for e in asked
    ]


def paired(predictions: Sequence[Prediction], examples: Iterable[Example]) -> list[tuple[Prediction, Example]]:
    """Each example with its prediction, in the order of the examples.

    Raises:
        RagxError: an id twice, an example without answer or prediction, a prediction of something else.
    """
    by_id = {prediction.id: prediction for prediction in predictions}
    if len(by_id) != len(predictions):
        raise RagxError(f"predictions must have unique ids, got {len(predictions) - len(by_id)} ids again. Remove them")
    known: set[str] = set()
    pairs: list[tuple[Prediction, Example]] = []
    for example in examples:
        prediction = by_id.get(example.id)
        _check_pair(prediction, example, seen=example.id in known)
        assert prediction is not None
        known.add(example.id)
        pairs.append((prediction, example))
    surplus = sorted(by_id.keys() - known)
    if surplus or not pairs:
        raise RagxError(
            f"predictions must answer the examples, got {len(surplus)} others (such as {surplus[:1]}) and "
            f"{len(pairs)} examples. Score them with the questions they were made for"
        )
    return pairs


def _check_pair(prediction: Prediction | None, example: Example, *, seen: bool) -> None:
    if seen:
        raise RagxError(f"examples must have unique ids, got {example.id!r} again. Rename one")
    if prediction is None:
        raise RagxError(f"examples must all have a prediction, got none for {example.id!r}. Finish the run first")
    if prediction.query != example.query:
        raise RagxError(
            f"predictions must be of the same questions, got {prediction.query!r} for {example.id!r}, "
            f"which asks {example.query!r}. Score them with the questions they were made for"
        )
    if not example.answers:
        raise RagxError(f"examples must have answers to be scored, got none for {example.id!r}. Add them")


def _scorable(pairs: Sequence[Pair], *, warn: bool = False) -> list[Pair]:
    """The pairs, without gold passages where all are of other versions than everything retrieved.

    Keys of different versions never meet: every figure of the ranking would be 0 and mean nothing, so it is null.
    """
    gold = {key.version for _, example in pairs for key in example.gold}
    retrieved = {passage.key.version for prediction, _ in pairs for passage in prediction.passages}
    if not gold or not retrieved or gold & retrieved:
        return list(pairs)
    if warn:
        logger.warning(
            "gold passages are of version %s and those retrieved of %s, so their ranking is not scored. Give "
            "data.passages=FILE that the index was built from",
            sorted(gold)[:3],
            sorted(retrieved)[:3],
        )
    return [(prediction, replace(example, gold=())) for prediction, example in pairs]


def _table(pairs: Sequence[Pair], *, task: str, ks: Sequence[int], seed: int) -> dict[str, Any]:
    found = columns(pairs, task=task, ks=ks)
    return _nested({name: _metric(column, seed).to_json() for name, column in found.items()})


def _metric(column: Column, seed: int) -> Metric:
    rows: Any = column.rows
    return aggregate(rows, seed=seed) if column.statistic is None else aggregate_sums(rows, column.statistic, seed=seed)


def _difference(ids: Sequence[str], first: Column, second: Column, *, seed: int) -> PairedDifference | None:
    both = [(i, a, b) for i, a, b in zip(ids, first.rows, second.rows, strict=True) if a is not None and b is not None]
    ours: dict[str, Any] = {i: a for i, a, _ in both}
    theirs: dict[str, Any] = {i: b for i, _, b in both}
    if not both:
        return None
    if first.statistic is None:
        return paired_bootstrap(ours, theirs, seed=seed)
    return paired_sums(ours, theirs, first.statistic, seed=seed)


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """`success_at.5` as an entry of the table `success_at`."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        table, _, k = name.partition(".")
        if k:
            found.setdefault(table, {})[k] = value
        else:
            found[table] = value
    return found


def metric_line(name: str, metric: dict[str, Any]) -> str:
    """One metric as a line: value, interval, how many questions; of a difference also its p."""
    if metric["value"] is None:
        return f"{name:<26} not scored (n_null {metric['n_null']})"
    low, high = metric["ci95"]
    p = f"  p {metric['p_value']:.4f}" if "p_value" in metric else ""
    return f"{name:<26} {metric['value']:.3f}  [{low:.3f}, {high:.3f}]  n {metric['n']}{p}"
