"""Which passages carry an answer: read off the latent-variable model itself (section 2.1; figure 2).

    RAG-Sequence   r_z   = p(z|x,y)       ~  p(z|x) prod_j p(y_j|x,z,y_<j)
    RAG-Token      r_jz  = p(z|x,y_j..)   ~  p(z|x) p(y_j|x,z,y_<j)      of a span:  ~ p(z|x) prod_j r_jz / p(z|x)
    gain_z = log p(y|C) - log p(y|C without z) = log (1 - p(z|x)) / (1 - r_z)  (RAG-Token: summed over tokens)

The span product of RAG-Token is the RAG-Sequence posterior of the same tokens, so one passage distribution serves both;
the gains differ. The gain is exact and needs no second forward pass.

Which of them are cited says `ragx.citations.emission`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragx.citations.emission import EmissionRule, emit
from ragx.errors import ShapeError
from ragx.losses import posterior

KINDS = ("rag_sequence", "rag_token")


@dataclass(frozen=True, slots=True)
class Attribution:
    """What each of K passages contributed to one answer.

    Attributes:
        doc_posterior: (K,) p(z|x,y); empty where `status` is `incomplete`.
        gain: (K,) nats, log p(y|C) - log p(y|C without z); None with one passage left.
        token_posterior: T rows of K, p(z|x,y_j), for RAG-Token; a token outside `content` repeats the prior.
        cited: positions of the passages cited, highest posterior first.
        status: `cited`, `diffuse_posterior` (no passage passes the rule), `trivial_attribution` (one passage, cited or
            not) or `incomplete` (a passage was never scored; beam scores are no substitute).
    """

    doc_posterior: tuple[float, ...]
    gain: tuple[float, ...] | None
    token_posterior: tuple[tuple[float, ...], ...]
    cited: tuple[int, ...]
    status: str


def attribute(
    token_logprobs: Tensor,
    doc_logprobs: Tensor,
    *,
    kind: str,
    content: Sequence[bool] | None = None,
    rule: EmissionRule | None = None,
) -> Attribution:
    """Attributes one answer, or one span of it, to its passages.

    Args:
        token_logprobs: (K, T) teacher-forced log p(y_j|x,z,y_<j) of the answer under every passage; NaN where a passage
            was not scored.
        doc_logprobs: (K,) log p(z|x) over the same passages; -inf for one that is masked out.
        kind: `rag_sequence` or `rag_token`.
        content: T flags, the tokens that count: without EOS, BOS and padding, or those of one claim; default all.
        rule: when a passage is cited.

    Raises:
        ShapeError: shapes that do not fit, priors that do not sum to 1, or another kind.
    """
    rule = rule or EmissionRule()
    tokens, prior = _checked(token_logprobs, doc_logprobs, kind=kind, content=content)
    if bool(tokens.isnan().any()):
        return Attribution(doc_posterior=(), gain=None, token_posterior=(), cited=(), status="incomplete")
    doc_posterior = posterior.rag_sequence_posterior(tokens[None], prior[None])[0].tolist()
    token_posterior: tuple[tuple[float, ...], ...] = ()
    if kind == "rag_token":
        by_passage = posterior.rag_token_posterior(tokens[None], prior[None])[0]
        token_posterior = tuple(tuple(row) for row in by_passage.T.tolist())
    scored = prior.isfinite().nonzero().flatten().tolist()
    if len(scored) == 1:
        cited = tuple(scored) if rule.allow_trivial else ()
        return Attribution(tuple(doc_posterior), None, token_posterior, cited, "trivial_attribution")
    gains = posterior.rag_sequence_gain if kind == "rag_sequence" else posterior.rag_token_gain
    gain = gains(tokens[None], prior[None])[0].tolist()
    cited = emit(doc_posterior, gain, rule=rule)
    return Attribution(
        tuple(doc_posterior), tuple(gain), token_posterior, cited, "cited" if cited else "diffuse_posterior"
    )


def _checked(
    token_logprobs: Tensor, doc_logprobs: Tensor, *, kind: str, content: Sequence[bool] | None
) -> tuple[Tensor, Tensor]:
    """Both in float64; tokens outside `content` and passages masked out become 0, so that they say nothing."""
    if kind not in KINDS:
        raise ShapeError(f"kind must be one of {list(KINDS)}, got {kind!r}. A closed_book answer has no passages")
    if token_logprobs.ndim != 2 or doc_logprobs.shape != token_logprobs.shape[:1] or not len(doc_logprobs):
        raise ShapeError(
            "token_logprobs and doc_logprobs must have shapes (K, T) and (K,) with K >= 1, got "
            f"{tuple(token_logprobs.shape)} and {tuple(doc_logprobs.shape)}. Pass one question at a time"
        )
    prior = doc_logprobs.detach().double().cpu()
    if not prior.logsumexp(0).abs() < 1e-3:
        total = prior.logsumexp(0).exp().item()
        raise ShapeError(f"doc_logprobs must sum to 1 as probabilities, got {total:.6g}. Pass log_softmax(doc_scores)")
    tokens = token_logprobs.detach().double().cpu()
    flags = torch.ones(tokens.shape[1]) if content is None else torch.tensor(list(content))
    if len(flags) != tokens.shape[1]:
        raise ShapeError(
            f"content must have one flag for each of {tokens.shape[1]} tokens, got {len(flags)}. Pass one a token"
        )
    counted = flags.bool()[None] & prior.isfinite()[:, None]
    return tokens.where(counted, 0.0), prior
