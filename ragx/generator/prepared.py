"""What of a batch can be done before its turn: the host's work of section 2.4, ahead of the step that needs it.

Tokens of queries and answers depend on the text alone. The search depends on q(x), which the step before still changes;
where q(x) stands still (a frozen query encoder, BM25) it can be done ahead too, and then the generator's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ragx.errors import ShapeError
from ragx.generator.inputs import IGNORED, GeneratorInputs
from ragx.protocols import Filters
from ragx.records import Retrieved

Tokens = tuple[Tensor, Tensor]
"""Ids and mask, (B, S) each."""


@dataclass(frozen=True)
class Prepared:
    """The host's work of B queries; tensors on the CPU.

    Attributes:
        labels: (B, T), -100 at padding.
        n_tokens: scored target tokens of the batch.
        query_ids: the generator's tokens of each query; empty for `closed_book`.
        tokens: of the queries for the query encoder, or None where there is none.
        retrieved: the passages that the caller brought or that were found ahead; None where the search is to come.
        doc_scores: q.d (B, K) without a gradient, of passages that were found ahead.
        inputs: the generator's, where the passages are known.
        filters: what may be searched, where the search is to come.
    """

    labels: Tensor
    n_tokens: int
    query_ids: Sequence[Sequence[int]] = ()
    tokens: Tokens | None = None
    retrieved: Retrieved | None = None
    doc_scores: Tensor | None = None
    inputs: GeneratorInputs | None = None
    filters: Filters = None


def count_tokens(labels: Tensor) -> int:
    """Scored target tokens of a batch."""
    return int((labels != IGNORED).sum())


def doc_scores_of(
    retrieved: Retrieved,
    query_embeds: Tensor | None,
    *,
    device: torch.device,
    encode: Callable[[Retrieved], Tensor] | None = None,
) -> Tensor:
    """q.d (B, K) float32 on `device`, with a gradient to `query_embeds`; without those, the scores that came along.

    Args:
        encode: gives d(z) (B, K, D) in place of the vectors that came along, perhaps with a gradient of its own.

    Raises:
        ShapeError: scores of another number than passages.
    """
    if query_embeds is None or retrieved.doc_embeds is None:
        _require_scores(retrieved)
        return moved(torch.as_tensor(retrieved.doc_scores, dtype=torch.float32), device)
    doc_embeds = torch.as_tensor(retrieved.doc_embeds, dtype=torch.float32) if encode is None else encode(retrieved)
    doc_embeds = moved(doc_embeds, query_embeds.device)
    with torch.autocast(query_embeds.device.type, enabled=False):  # bfloat16 would blur the prior
        scores = torch.einsum("bd,bkd->bk", query_embeds.float(), doc_embeds.float()).to(device)
    offsets = retrieved.doc_offsets
    return scores if offsets is None else scores + moved(torch.as_tensor(offsets, dtype=torch.float32), device)


def check_found(retrieved: Retrieved, *, queries: int, n_docs: int) -> None:
    """Raises ShapeError unless there are 1 to `n_docs` scores for each query; fewer where a filter leaves fewer."""
    found = retrieved.doc_scores.shape
    if len(found) != 2 or found[0] != queries or not 1 <= found[1] <= n_docs:
        raise ShapeError(
            f"retriever must find up to {n_docs} passages for each of {queries} queries, got scores of shape "
            f"{tuple(found)}. Ask for fewer, or index more passages."
        )


def _require_scores(retrieved: Retrieved) -> None:
    n_docs = len(retrieved.passages[0]) if retrieved.passages else 0
    wanted = (len(retrieved.passages), n_docs)
    got = "none" if retrieved.doc_scores is None else np.shape(retrieved.doc_scores)
    if got != wanted:
        raise ShapeError(
            f"retrieved.doc_scores must be one number for each of {wanted[0]} x {n_docs} passages, got {got}. "
            "Give doc_scores with the passages, or doc_embeds with a query encoder to compute them."
        )


def padded(token_ids: Sequence[Sequence[int]], *, pad_token_id: int) -> Tokens:
    """Ids and mask, both (B, longest) int64, padded on the right."""
    rows = [torch.tensor(row) for row in token_ids]
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return pad_sequence(rows, batch_first=True, padding_value=pad_token_id), mask


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`; to a GPU by way of page-locked memory, so that the host does not wait for the copy."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
