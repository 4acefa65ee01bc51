"""The prior over passages (section 2.2).

    p(z|x)  =  softmax over the K retrieved passages of  q(x)·d(z)

Decision: truncate to the K retrieved passages first, normalise second, so that the prior sums to 1 for any n_docs and
a constant added to all scores changes nothing.

Shapes: B batch, K n_docs.
"""

from __future__ import annotations

from torch import Tensor

from ragx.errors import ShapeError
from ragx.losses.shapes import check_n_docs, float32_or_wider


def doc_logprobs(doc_scores: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """log p(z|x), shape (B, K), float32 (float64 stays), natural logarithm.

    Args:
        doc_scores: (B, K) inner products q(x)·d(z).
        mask: (B, K) bool, False where there is no passage; such places get -inf.

    Raises:
        ShapeError: wrong shapes, or a row whose passages are all masked.
    """
    check_n_docs(doc_scores, name="doc_scores")
    scores = float32_or_wider(doc_scores)
    if mask is None:
        return scores.log_softmax(1)
    if mask.shape != doc_scores.shape:
        raise ShapeError(
            f"mask must have the shape of doc_scores {tuple(doc_scores.shape)}, got {tuple(mask.shape)}. "
            "Give one bool per passage."
        )
    mask = mask.bool()
    empty = ~mask.any(1)
    if empty.any():
        raise ShapeError(
            f"mask must keep at least one passage per query, got none in row {int(empty.nonzero()[0])}. "
            "Drop the query or retrieve a passage for it."
        )
    return scores.masked_fill(~mask, float("-inf")).log_softmax(1)
