"""Does the retriever still matter? What each batch tells of it, and two plain warnings (appendix H of the paper).

    prior entropy       H(p(z|x))               in nats; log K where the scores say nothing
    posterior entropy   H(p(z|x,y))             log K where the answer is as likely under any passage
    KL                  sum_z p(z|x,y) log p(z|x,y) / p(z|x)

all averaged over queries; for RAG-Token posterior figures are means over the tokens of each answer. The gradient of
doc_scores is prior minus posterior, so KL 0 is a query encoder that learns nothing.

    collapsed   the last 256 queries: different top-1 passages < 25% of the different queries
    ignored     the last 50 steps: mean KL < 0.01 nats and mean posterior entropy > half of log K

Both stand between what was measured on the embedded base. Of 256 training questions the query encoder found 86%
different top-1 passages before and 91% after a healthy training; one trained at 1000 times its rate found 7% by step
32. In nine healthy trainings (three seeds of rag_sequence, rag_token and frozen) the KL never fell below 0.05 nats;
where the labels of an earlier set of claims could not be learned it went from 0.1 to 0.0005 nats in 100 steps, with an
entropy of 0.7 log K.

One decision: a small KL alone is no alarm. It is small as well where prior and posterior agree on one passage, which is
how a good run ends; only a posterior that is still open says that the generator does not care which passage it reads.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ragx.losses.posterior import rag_sequence_posterior, rag_token_posterior

logger = logging.getLogger(__name__)
WINDOW, LEAST_DISTINCT = 256, 0.25  # queries
STEPS, LEAST_KL, OPEN_POSTERIOR = 50, 0.01, 0.5


def prior_entropy(doc_logprobs: Tensor) -> Tensor:
    """Entropy in nats (B,) of the passage priors (B, K); a masked passage (-inf) adds nothing."""
    return torch.special.entr(doc_logprobs.detach().float().exp()).sum(1)


def posterior_figures(kind: str, token_logprobs: Tensor, doc_logprobs: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior entropy and KL(posterior || prior) in nats, each (B,).

    Args:
        kind: `rag_sequence` or `rag_token`.
        token_logprobs: (B, K, T), 0 at padding.
        doc_logprobs: (B, K), log p(z|x), -inf at a masked passage.
    """
    tokens, prior = token_logprobs.detach().float(), doc_logprobs.detach().float()
    if kind == "rag_sequence":
        posterior, scored = rag_sequence_posterior(tokens, prior).unsqueeze(2), torch.ones_like(prior[:, :1])
    else:
        posterior, scored = rag_token_posterior(tokens, prior), (tokens != 0).any(1).float()
    entropy = torch.special.entr(posterior).sum(1)  # (B, 1) or (B, T)
    # A masked passage has posterior 0, and 0 log 0 is 0.
    cross = -torch.special.xlogy(posterior, prior.exp().unsqueeze(2).where(posterior > 0, 1.0)).sum(1)
    count = scored.sum(1).clamp(min=1)
    return (entropy * scored).sum(1) / count, ((cross - entropy).clamp(min=0) * scored).sum(1) / count


class CollapseWatch:
    """Warns once when the last `WINDOW` queries share too few top-1 passages."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, int]] = deque(maxlen=WINDOW)
        self._warned = False

    def add(self, queries: Sequence[str], top_rows: Sequence[int]) -> None:
        """Takes in the top-1 passage (its row in the index) of each query of a step."""
        self._recent.extend(zip(queries, top_rows, strict=True))
        if self._warned or len(self._recent) < WINDOW:
            return
        asked = len({query for query, _ in self._recent})
        found = len({row for _, row in self._recent})
        if found < LEAST_DISTINCT * asked:
            self._warned = True
            logger.warning(
                "%d different queries got only %d different top-1 passages: the query encoder may have collapsed. "
                "Lower query_encoder_lr or freeze the query encoder.",
                asked,
                found,
            )


class IgnoredWatch:
    """Warns once when the answers of the last `STEPS` steps were as likely under any passage.

    Args:
        n_docs: K; with one passage there is nothing to ignore.
    """

    def __init__(self, *, n_docs: int) -> None:
        self._most = math.log(n_docs) if n_docs > 1 else None
        self._recent: deque[tuple[float, float]] = deque(maxlen=STEPS)
        self._warned = False

    def add(self, row: Mapping[str, Any]) -> None:
        """Takes in a row of metrics.jsonl."""
        if self._most is None or "kl_posterior_prior" not in row:
            return
        self._recent.append((row["kl_posterior_prior"], row["posterior_entropy"]))
        if self._warned or len(self._recent) < STEPS:
            return
        divergence, entropy = (math.fsum(column) / STEPS for column in zip(*self._recent, strict=True))
        if divergence < LEAST_KL and entropy > OPEN_POSTERIOR * self._most:
            self._warned = True
            gradient = row.get("grad_norm/query_encoder")
            logger.warning(
                "step %d: the retriever no longer matters. Over %d steps the answers were as likely under any passage "
                "(KL(posterior || prior) %.2g nats, posterior entropy %.2f of at most %.2f%s). See whether retrieved "
                "passages hold the answers, lower generator_lr, or start from a generator that reads passages.",
                row["step"],
                STEPS,
                divergence,
                entropy,
                self._most,
                "" if gradient is None else f", gradient of the query encoder {gradient:.2g}",
            )
