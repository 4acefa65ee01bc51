"""RAG-Token (section 2.1): every token may draw on another passage.

    p(y|x)  =  prod_i  sum_z  p(z|x)  p(y_i | x, z, y_<i)

Decision: the sum over passages comes first, then the sum over tokens, and nothing else differs from RAG-Sequence.

Shapes: B batch, K n_docs, T target length.
"""

from __future__ import annotations

from torch import Tensor

from ragx.losses.shapes import check_marginal


def per_token(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """log p(y_i|x,y_<i), shape (B, T), natural logarithm; exactly 0 at padding.

    Args:
        token_logprobs: (B, K, T) log p(y_i|x,z,y_<i), 0 at padding.
        doc_logprobs: (B, K) log p(z|x), normalised, -inf where there is no passage.

    Raises:
        ShapeError: the two disagree on (B, K), or K is 0.
    """
    token_logprobs, doc_logprobs = check_marginal(token_logprobs, doc_logprobs)
    marginal = (doc_logprobs.unsqueeze(2) + token_logprobs).logsumexp(1)
    # Where every passage says log p = 0 the mixture is the prior's total, 1. Rounding would leave 1e-8 per padded
    # place, and more padding would change the loss.
    return marginal.masked_fill((token_logprobs == 0).all(1), 0.0)


def marginalize(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """log p(y|x), shape (B,), natural logarithm; arguments and errors as for `per_token`."""
    return per_token(token_logprobs, doc_logprobs).sum(1)


def nll(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """-log p(y|x), shape (B,), in nats; arguments and errors as for `per_token`."""
    return -marginalize(token_logprobs, doc_logprobs)
