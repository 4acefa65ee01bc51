"""Gold data and answers meet by question id and must be the same questions.

an answer without gold, gold without an answer    pass: figures that need both have no value there
none that meet, or one id with two texts          refused: the files belong to different questions
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ragx.citations.gold import Gold
from ragx.citations.trace_records import Trace
from ragx.errors import RagxError


def check_pair(trace: Trace, gold: Gold | None) -> None:
    """That gold asks what was answered; gold that does not write its question down passes.

    Raises:
        RagxError: another question has its id.
    """
    if gold is not None and gold.question is not None and gold.question != trace.question:
        raise RagxError(
            f"predictions must be of the same questions, got {trace.question!r} for {trace.qid!r}, "
            f"which asks {gold.question!r}. Audit them with the questions they were made for"
        )


def check_some_meet(golds: Mapping[str, Gold], answered: Collection[str]) -> None:
    """That gold is about some of the questions that were answered.

    Raises:
        RagxError: it is about none; the first of each are named.
    """
    if golds and answered and not any(qid in golds for qid in answered):
        raise RagxError(
            f"predictions must answer questions of gold, got {next(iter(answered))!r} and {len(answered) - 1} others, "
            f"where gold has {next(iter(golds))!r} and {len(golds) - 1} others. "
            "Audit them with the questions they were made for"
        )
