"""Figure 2 of the paper as a number: does a text of RAG-Token come from more than one passage?

    p(z|x,y_i)  ~  p(z|x) p(y_i|x,z,y_<i)          1 where two passages have more than half of it, each at some token

One decision: more than half, so that a token under an even posterior counts for no passage. In RAG-Sequence one passage
explains the whole text, and there is nothing to count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def two_passages(prior: Sequence[float], token_logprobs: Sequence[Sequence[float]]) -> float:
    """1.0 or 0.0 of one text.

    Args:
        prior: (K,) p(z|x).
        token_logprobs: (K, T) log p(y_i|x,z,y_<i), natural log.
    """
    with np.errstate(divide="ignore"):
        joint = np.log(np.asarray(prior, dtype=np.float64))[:, None] + np.asarray(token_logprobs, dtype=np.float64)
    largest = joint.max(0, keepdims=True, initial=-np.inf)
    weights = np.exp(joint - np.where(np.isfinite(largest), largest, 0.0))
    leads = (weights > 0.5 * weights.sum(0)).any(1)
    return float(leads.sum() > 1)
