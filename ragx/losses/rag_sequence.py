"""RAG-Sequence (section 2.1): one passage explains the whole answer.

    p(y|x)  =  sum_z  p(z|x)  prod_i p(y_i | x, z, y_<i)

Decision: add the prior once to the sum over tokens. Added to one token of the sequence, as elsewhere, it vanishes
where that token is padding.

Shapes: B batch, K n_docs, T target length.
"""

from __future__ import annotations

from torch import Tensor

from ragx.losses.shapes import check_marginal


def marginalize(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """log p(y|x), shape (B,), natural logarithm.

    Args:
        token_logprobs: (B, K, T) log p(y_i|x,z,y_<i), 0 at padding.
        doc_logprobs: (B, K) log p(z|x), -inf where there is no passage.

    Raises:
        ShapeError: the two disagree on (B, K), or K is 0.
    """
    token_logprobs, doc_logprobs = check_marginal(token_logprobs, doc_logprobs)
    return (doc_logprobs + token_logprobs.sum(2)).logsumexp(1)


def nll(token_logprobs: Tensor, doc_logprobs: Tensor) -> Tensor:
    """-log p(y|x), shape (B,), in nats; arguments and errors as for `marginalize`."""
    return -marginalize(token_logprobs, doc_logprobs)
