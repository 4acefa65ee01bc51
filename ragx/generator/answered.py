"""Section 2.5, the result: the answer to a query together with everything it was read from.

Attribution, audit and report work on these alone; nothing of it is computed a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ragx.generator.inputs import IGNORED, GeneratorInputs, InputBuilder
from ragx.records import Hypothesis, Passage, Retrieved


@dataclass(frozen=True)
class NullRow:
    """The null document of a query: log p(z|x), log of what the passages have together, log p(y_i|x,z,y_<i) (T,)."""

    logprob: float
    others: float
    token_logprobs: np.ndarray


@dataclass(frozen=True)
class Answered:
    """The answer to one query and what it was read from.

    Attributes:
        query: the question.
        hypotheses, texts: best first, ids and their text.
        passages: the K passages in rank order; empty for `closed_book`.
        doc_scores, doc_logprobs: (K,) float32, q.d and log p(z|x); empty for `closed_book`.
        token_logprobs: (K, T) float32, log p(y_i|x,z,y_<i) of the best hypothesis, teacher-forced; K is 1 for
            `closed_book`, and T is 0 where nothing was found.
        visible: per passage, code points [start, end) of its text that the generator read.
        cut_tokens: per passage, tokens of its text that did not fit.
        index_fingerprint: the index that answered; empty for `closed_book`.
        null_document: where the model has one; `doc_logprobs` then are those of the passages given that it is none.
    """

    query: str
    hypotheses: tuple[Hypothesis, ...]
    texts: tuple[str, ...]
    passages: tuple[Passage, ...]
    doc_scores: np.ndarray
    doc_logprobs: np.ndarray
    token_logprobs: np.ndarray
    visible: tuple[tuple[int, int], ...]
    cut_tokens: tuple[int, ...]
    index_fingerprint: str
    null_document: NullRow | None = None


def labels_of_best(found: Sequence[Sequence[Hypothesis]]) -> Tensor:
    """Labels (B, T) of the best hypothesis of each query, T at least 1; all -100 for a query without any."""
    best = [list(hypotheses[0].token_ids) if hypotheses else [] for hypotheses in found]
    return pad_sequence([torch.tensor(ids or [IGNORED]) for ids in best], batch_first=True, padding_value=IGNORED)


def collect(
    queries: Sequence[str],
    retrieved: Retrieved | None,
    inputs: GeneratorInputs,
    *,
    found: Sequence[Sequence[Hypothesis]],
    scored: tuple[Tensor, Tensor, Tensor],
    builder: InputBuilder,
) -> list[Answered]:
    """One `Answered` a query.

    Args:
        retrieved: what was read; None for `closed_book`.
        inputs: the rows the generator read.
        found: hypotheses of each query, best first.
        scored: doc_scores (B, K), doc_logprobs (B, K), and token_logprobs (B, K, T) of the best hypotheses; a null
            document is one row more, behind the passages.
        builder: turns ids to text.
    """
    doc_scores, doc_logprobs, token_logprobs = (tensor.float().cpu().numpy() for tensor in scored)
    answers = []
    for b, (query, hypotheses) in enumerate(zip(queries, found, strict=True)):
        passages = () if retrieved is None else tuple(retrieved.passages[b])
        n_docs, n_tokens = len(passages), len(hypotheses[0].token_ids) if hypotheses else 0
        rows = slice(b * doc_logprobs.shape[1], b * doc_logprobs.shape[1] + n_docs)
        priors, read, null = _without_null(doc_logprobs[b], token_logprobs[b, :, :n_tokens], n_docs=n_docs)
        answers.append(
            Answered(
                query=query,
                hypotheses=tuple(hypotheses),
                texts=tuple(builder.decode(h.token_ids) for h in hypotheses),
                passages=passages,
                doc_scores=doc_scores[b, :n_docs],
                doc_logprobs=priors,
                token_logprobs=read,
                visible=tuple(inputs.visible[rows]),
                cut_tokens=tuple(inputs.cut_tokens[rows]),
                index_fingerprint="" if retrieved is None else retrieved.index_fingerprint,
                null_document=null,
            )
        )
    return answers


def _without_null(
    doc_logprobs: np.ndarray, token_logprobs: np.ndarray, *, n_docs: int
) -> tuple[np.ndarray, np.ndarray, NullRow | None]:
    """Priors (n_docs,) and token rows of the passages alone, and what belongs to the null document behind them."""
    if n_docs == 0 or len(doc_logprobs) == n_docs:  # closed book, or no null document
        return doc_logprobs[:n_docs], token_logprobs, None
    others = np.logaddexp.reduce(doc_logprobs[:n_docs])
    null = NullRow(float(doc_logprobs[n_docs]), float(others), token_logprobs[n_docs])
    return doc_logprobs[:n_docs] - others, token_logprobs[:n_docs], null
