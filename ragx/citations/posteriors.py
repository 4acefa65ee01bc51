"""Posteriors and gains computed again from a trace's numbers (section 2.1; figure 2), without the model.

    whole answer or span:   p(z|x,y)    ~  p(z|x) prod_j p(y_j|x,z,y_<j)
    one token, RAG-Token:   p(z|x,y_j)  ~  p(z|x) p(y_j|x,z,y_<j)
    gain_z  =  log p(y|C) - log p(y|C without z)      RAG-Sequence: of the product; RAG-Token: summed over tokens

One decision: this is a second implementation, in NumPy, of what `ragx.citations.attribution` computes in torch. The
audit compares a citation's posterior with it, and a check that shares code with what it checks finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ragx.citations.trace_records import TokenScores

Array = npt.NDArray[np.float64]


def span_posterior(scores: TokenScores, tokens: Sequence[int]) -> Array:
    """(K,) p(z|x, tokens); the prior where there are no tokens."""
    return _normalized(_prior(scores) + _logp(scores)[:, list(tokens)].sum(1))


def token_posterior(scores: TokenScores, *, kind: str) -> Array:
    """(T, K), row by row what token j says about z; for RAG-Sequence what all tokens up to j say."""
    logp = _logp(scores)
    weights = logp.cumsum(1) if kind == "rag_sequence" else logp
    return _normalized(_prior(scores)[:, None] + weights).T


def span_gain(scores: TokenScores, tokens: Sequence[int], *, kind: str) -> list[float] | None:
    """(K,) nats, log p(y|C) - log p(y|C without z) of those tokens; None with one passage."""
    prior, logp = _prior(scores), _logp(scores)[:, list(tokens)]
    if len(prior) < 2:
        return None
    joint = prior[:, None] + (logp.sum(1, keepdims=True) if kind == "rag_sequence" else logp)
    others = ~np.eye(len(prior), dtype=bool)
    without = np.stack([_logsumexp(joint[rest]) - _logsumexp(prior[rest]) for rest in others])
    return [float(gain) for gain in (_logsumexp(joint) - without).sum(1)]


def tokens_of(scores: TokenScores, span: tuple[int, int] | None, *, kind: str) -> list[int]:
    """The tokens that a claim is attributed by.

    RAG-Sequence has one distribution for the whole answer, which every claim inherits; so has a claim whose place, or
    whose tokens' places, are not known.
    """
    every = list(range(len(scores.token_spans)))
    if kind == "rag_sequence" or span is None or scores.status == "offsets_unreliable":
        return every
    return [j for j in every if scores.token_spans[j][0] < span[1] and span[0] < scores.token_spans[j][1]]


def entropy(posterior: Sequence[float]) -> float | None:
    """Entropy over its maximum, 0 (one passage) to 1 (flat); None with one passage."""
    values = np.asarray([p for p in posterior if p > 0])
    return None if len(posterior) < 2 else float(-(values * np.log(values)).sum() / np.log(len(posterior)))


def _prior(scores: TokenScores) -> Array:
    return np.asarray(scores.log_prior, dtype=np.float64)


def _logp(scores: TokenScores) -> Array:
    return np.asarray(scores.logp, dtype=np.float64).reshape(len(scores.log_prior), -1)


def _logsumexp(values: Array) -> Any:
    """Over passages, the first axis."""
    return np.logaddexp.reduce(values, axis=0)


def _normalized(logits: Array) -> Array:
    """Softmax over passages, the first axis."""
    weights = np.exp(logits - logits.max(0))
    return weights / weights.sum(0)
