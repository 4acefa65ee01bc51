"""Answers as rows of a table: what was asked and said, how sure it is, and the passage that the answer owes most to.

Gold is the first accepted answer; `exact match` compares with all of them, as SQuAD's script does.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragx.evaluation.answers import exact_match
from ragx.records import Example, Prediction

COLUMNS = (
    "id", "question", "answer", "gold", "exact match", "log p(y|x)", "first passage", "passage", "title", "p(z|x)",
    "p(z|x,y)", "cited", "cut tokens",
)  # fmt: skip
MOST = 1000
ASKED = 64  # questions that a training answers for its table
Cell = str | float | int | None


def table_rows(found: Sequence[Prediction], examples: Sequence[Example] = ()) -> list[list[Cell]]:
    """One row of `COLUMNS` for each of the first `MOST` predictions; no passage cells for `closed_book`.

    Args:
        examples: with the accepted answers, in any order; without its example a prediction has no gold cells.
    """
    accepted = {example.id: example.answers for example in examples}
    return [_row(prediction, accepted.get(prediction.id, ())) for prediction in found[:MOST]]


def _row(prediction: Prediction, accepted: Sequence[str]) -> list[Cell]:
    gold: list[Cell] = [None] * 2
    if accepted:
        gold = [accepted[0], exact_match(prediction=prediction.answer, answers=accepted)]
    best = max(prediction.passages, key=lambda passage: passage.posterior, default=None)
    evidence: list[Cell] = [None] * 4
    if best is not None:
        evidence = ["@".join(best.key[:2]) + f"#{best.key.chunk}", best.title, best.prior, best.posterior]
    return [
        prediction.id, prediction.query, prediction.answer, *gold, prediction.logprob,
        prediction.passages[0].title if prediction.passages else None, *evidence, len(prediction.citations),
        prediction.cut_tokens,
    ]  # fmt: skip
