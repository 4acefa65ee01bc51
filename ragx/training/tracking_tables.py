"""Answers as rows of a table: what was asked and said, how sure it is, and the passage that the answer owes most to."""

from __future__ import annotations

from collections.abc import Sequence

from ragx.records import Prediction

COLUMNS = ("id", "question", "answer", "log p(y|x)", "passage", "title", "p(z|x)", "p(z|x,y)", "cited", "cut tokens")
MOST = 1000
Cell = str | float | int | None


def table_rows(found: Sequence[Prediction]) -> list[list[Cell]]:
    """One row of `COLUMNS` for each of the first `MOST` predictions; no passage cells for `closed_book`."""
    return [_row(prediction) for prediction in found[:MOST]]


def _row(prediction: Prediction) -> list[Cell]:
    best = max(prediction.passages, key=lambda passage: passage.posterior, default=None)
    evidence: list[Cell] = [None] * 4
    if best is not None:
        evidence = ["@".join(best.key[:2]) + f"#{best.key.chunk}", best.title, best.prior, best.posterior]
    return [
        prediction.id, prediction.query, prediction.answer, prediction.logprob, *evidence, len(prediction.citations),
        prediction.cut_tokens,
    ]  # fmt: skip
