"""Section 4: every figure of one predictions file, recomputed from the file alone.

    {"exact_match": {value, n, n_null, ci95}, "f1": ..., "success_at": {"1": ..., "5": ..., "10": ...},
     "recall_at": ..., "correct_without_evidence": ..., "cited_full": ..., "by_kind": {kind: {...}}}

One decision: predictions and examples meet by id, and must be the same questions letter by letter. A question without
a prediction is an error, never left out of the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ragx.errors import RagxError
from ragx.evaluation.answers import exact_match, f1, has_answer
from ragx.evaluation.retrieval import check_ranking, recall_at, success_at
from ragx.evaluation.significance import aggregate
from ragx.records import Example, Prediction

SUCCESS_AT = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one question; None where there is nothing to score.

    Attributes:
        exact_match, f1: of the answer against the accepted ones.
        success_at, recall_at: per k, of the gold passages among those retrieved.
        correct_without_evidence: exact match, where no passage that the generator read holds an accepted answer (title
            or visible text); None where one does (the paper's 11.8% on Natural Questions). Closed book has none.
        cited_full: 1.0 where a cited passage holds the answer word for word; None without passages.
    """

    exact_match: float
    f1: float
    success_at: dict[int, float | None]
    recall_at: dict[int, float | None]
    correct_without_evidence: float | None
    cited_full: float | None


def evaluate(
    predictions: Sequence[Prediction], examples: Iterable[Example], *, ks: Sequence[int] = SUCCESS_AT, seed: int = 0
) -> dict[str, Any]:
    """The metrics of a run; each is {value, n, n_null, ci95}.

    Args:
        predictions: one for every example, in any order.
        examples: with their accepted answers, and gold keys where known.
        ks: where success and recall are read off the ranking.
        seed: of the bootstrap.

    Raises:
        RagxError: predictions and examples are not the same questions, or passages do not come best first.
    """
    pairs = paired(predictions, examples)
    scores = [score(prediction, example, ks=ks) for prediction, example in pairs]
    kinds = sorted({example.kind for _, example in pairs if example.kind})
    by_kind = {
        kind: _table([s for s, (_, example) in zip(scores, pairs, strict=True) if example.kind == kind], ks, seed)
        for kind in kinds
    }
    return {**_table(scores, ks, seed), "by_kind": by_kind}


def score(prediction: Prediction, example: Example, *, ks: Sequence[int] = SUCCESS_AT) -> Scores:
    """The scores of one question."""
    check_ranking([passage.doc_score for passage in prediction.passages])
    ranked = [passage.key for passage in prediction.passages]
    correct = exact_match(prediction.answer, example.answers)
    read = [f"{p.title}\n{p.text[slice(*p.visible)]}" for p in prediction.passages]
    unread = bool(read) and not any(has_answer(text, example.answers) for text in read)
    cited = float(any(citation.support == "full" for citation in prediction.citations))
    return Scores(
        exact_match=correct,
        f1=f1(prediction.answer, example.answers),
        success_at={k: success_at(ranked, example.gold, k) for k in ks},
        recall_at={k: recall_at(ranked, example.gold, k) for k in ks},
        correct_without_evidence=correct if unread else None,
        cited_full=cited if ranked else None,
    )


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


def _table(scores: Sequence[Scores], ks: Sequence[int], seed: int) -> dict[str, Any]:
    def over(values: Iterable[float | None]) -> dict[str, Any]:
        return aggregate(values, seed=seed).to_json()

    return {
        "exact_match": over(s.exact_match for s in scores),
        "f1": over(s.f1 for s in scores),
        "success_at": {str(k): over(s.success_at[k] for s in scores) for k in ks},
        "recall_at": {str(k): over(s.recall_at[k] for s in scores) for k in ks},
        "correct_without_evidence": over(s.correct_without_evidence for s in scores),
        "cited_full": over(s.cited_full for s in scores),
    }
