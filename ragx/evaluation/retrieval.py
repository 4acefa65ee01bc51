"""Is the evidence among what was retrieved (section 4.1; DPR, table 2).

    success@k   1 where any gold passage is among the first k       DPR and the RAG paper say "top-k accuracy"
    recall@k    the share of the gold passages among the first k

Names are TREC's: what DPR papers often call recall@k is success@k here. Both count passages by (source, version,
chunk); a passage listed twice counts once. One decision: fewer than k passages is not a miss but unknown (None), so
success@10 is never read off five passages.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ragx.errors import RagxError


def success_at(ranked: Sequence[Hashable], gold: Sequence[Hashable], k: int) -> float | None:
    """1.0 or 0.0 of one question; None where no gold passage is known or fewer than k were retrieved.

    Raises:
        RagxError: k < 1.
    """
    share = recall_at(ranked, gold, k)
    return None if share is None else float(share > 0)


def recall_at(ranked: Sequence[Hashable], gold: Sequence[Hashable], k: int) -> float | None:
    """The share of the gold passages among the first k; None and errors as `success_at`."""
    if k < 1:
        raise RagxError(f"k must be >= 1, got {k}. It counts passages from the best")
    if not gold or len(ranked) < k:
        return None
    wanted = set(gold)
    return len(wanted.intersection(ranked[:k])) / len(wanted)


def check_ranking(scores: Sequence[float]) -> None:
    """Refuses scores that are not best first: a list read in the wrong direction scores low without an error.

    Raises:
        RagxError: a score is larger than the one before it.
    """
    for rank in range(1, len(scores)):
        if not scores[rank] <= scores[rank - 1]:
            raise RagxError(
                f"doc_scores must not rise with the rank, got {scores[rank - 1]} then {scores[rank]} at "
                f"rank {rank + 1}. Write the passages best first"
            )
