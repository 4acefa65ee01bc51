"""Gold data and answers meet by question id and must be the same questions, as `ragx.experiments.evaluate` asks.

an answer without gold, or of another text    refused on the spot, also with `lenient`, which is about single lines
gold without an answer                        refused at the end; `lenient` forgives as many as lines were refused
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from ragx.citations.gold import Gold
from ragx.citations.trace_records import Trace
from ragx.errors import RagxError


def check_pair(trace: Trace, golds: Mapping[str, Gold]) -> None:
    """That an answer has gold, which asks what it answers.

    Raises:
        RagxError: it has none, or another question has its id. Gold that does not write its question down passes.
    """
    gold = golds.get(trace.qid)
    if gold is None:
        raise RagxError(
            f"predictions must answer the questions of gold, got {trace.qid!r} that is none of them. "
            "Audit them with the questions they were made for"
        )
    if gold.question is not None and gold.question != trace.question:
        raise RagxError(
            f"predictions must be of the same questions, got {trace.question!r} for {trace.qid!r}, "
            f"which asks {gold.question!r}. Audit them with the questions they were made for"
        )


def check_all_answered(golds: Mapping[str, Gold], answered: Container[str], *, n_refused: int) -> None:
    """That every question of gold has an answer, but for lines that were refused.

    Raises:
        RagxError: naming the first that has none.
    """
    missing = [qid for qid in golds if qid not in answered]
    if len(missing) > n_refused:
        got = f"none for {missing[0]!r} ({len(missing)} in all)"
        raise RagxError(f"gold must all have a prediction, got {got}. Finish the run first")
