"""Label smoothing per token (used by the authors' training code, not named in the paper).

    loss  =  sum over real i of   (1-e) * -log p(y_i|x,y_<i)   +   e * -(1/V) sum_v log p(v|x,y_<i)
    p(v|x,y_<i)  =  sum_z w_i(z) p(v|x,z,y_<i),     w_i(z) = p(z|x)         RAG-Token
                                                    w_i(z) = p(z|x,y_<i)    RAG-Sequence

Decision: both models are smoothed against their own next-token distribution. The prior is inside the mixture and
enters each term as a weight, never as a summand, so uniform outputs have the plain loss for any prior; with one
passage this is cross-entropy with label smoothing; e = 0 is the plain loss. The gradient of the smoothing term of
RAG-Token with respect to doc_scores is the prior minus the posterior averaged over all v.

`rag_sequence_nll` and `rag_token_nll` are the plain form over logits. Training uses `linear_uniform_nll`, which gets
the second term from decoder states and LM head; the first is (1-e) times the plain loss.

Shapes: B batch, K n_docs, T target length, V vocabulary, D hidden size.
"""

from __future__ import annotations

from torch import Tensor

from ragx.errors import ConfigError, ShapeError
from ragx.losses.posterior import rag_sequence_running_logposterior
from ragx.losses.shapes import check_n_docs, float32_or_wider
from ragx.losses.token_logprobs import IGNORE_INDEX, operand_dtype, token_logprobs
from ragx.losses.vocabulary_mixture import linear_mixture_sums


def rag_sequence_nll(logits: Tensor, labels: Tensor, doc_logprobs: Tensor, *, epsilon: float) -> Tensor:
    """Smoothed -log p(y|x) of RAG-Sequence, shape (B,), in nats.

    Args:
        logits: (B, K, T, V).
        labels: (B, T), -100 at padding.
        doc_logprobs: (B, K) log p(z|x).
        epsilon: share of the probability that is spread over the vocabulary, in [0, 1).

    Raises:
        ShapeError: shapes that disagree, or a label outside the vocabulary.
        ConfigError: epsilon outside [0, 1).
    """
    logits = _checked(logits, labels, doc_logprobs, epsilon)
    tokens = token_logprobs(logits, labels.unsqueeze(1).expand(logits.shape[:3]))
    weights = rag_sequence_running_logposterior(tokens, doc_logprobs)
    return _smoothed_nll(logits, labels, weights, epsilon)


def rag_token_nll(logits: Tensor, labels: Tensor, doc_logprobs: Tensor, *, epsilon: float) -> Tensor:
    """Smoothed -log p(y|x) of RAG-Token, shape (B,), in nats; arguments and errors as for `rag_sequence_nll`."""
    logits = _checked(logits, labels, doc_logprobs, epsilon)
    return _smoothed_nll(logits, labels, float32_or_wider(doc_logprobs).unsqueeze(2), epsilon)


def linear_uniform_nll(
    states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, offsets: Tensor, *, block_size: int = 2048
) -> Tensor:
    """The smoothing term without e, shape (B,): sum over real i of -(1/V) sum_v log p(v|x,y_<i); no logits are held.

    Args:
        states: (B, K, T, D) decoder states.
        weight, bias: (V, D) and (V,) LM head; the bias may be None.
        labels: (B, T), -100 at padding, which adds nothing.
        offsets: (B, K, T) log w_i(z) minus the logsumexp of the passage's logits at i (see
            `linear_logprobs_and_normalizers`); what it is at padding does not matter.
        block_size: vocabulary entries at a time.

    Raises:
        ShapeError: shapes that disagree.
    """
    if states.dim() != 4 or offsets.shape != states.shape[:3] or labels.shape != (states.shape[0], states.shape[2]):
        raise ShapeError(
            "states, labels and offsets must have shapes (B, K, T, D), (B, T) and (B, K, T), got "
            f"{tuple(states.shape)}, {tuple(labels.shape)} and {tuple(offsets.shape)}. Unfold B*K rows first."
        )
    real = labels != IGNORE_INDEX
    states, offsets = states.transpose(1, 2).to(operand_dtype(states, weight)), offsets.transpose(1, 2)
    if states.device.type == "cpu":  # elsewhere finding the padding would make the host wait
        sums = linear_mixture_sums(states[real], weight, bias, offsets[real], block_size=block_size)
        sums = sums.new_zeros(labels.shape).index_put((real,), sums)
    else:
        masked = states.masked_fill(~real[..., None, None], 0.0), offsets.masked_fill(~real[..., None], 0.0)
        sums = linear_mixture_sums(
            masked[0].flatten(0, 1), weight, bias, masked[1].flatten(0, 1), block_size=block_size
        ).view(labels.shape)
    return -sums.masked_fill(~real, 0.0).sum(1) / weight.shape[0]


def _smoothed_nll(logits: Tensor, labels: Tensor, log_weights: Tensor, epsilon: float) -> Tensor:
    """The loss of the module's head from log w_i(z), (B, K, T) or (B, K, 1)."""
    vocab_logprobs = logits.log_softmax(3)
    mixture = (log_weights.unsqueeze(3) + vocab_logprobs).logsumexp(1)  # (B, T, V)
    target = token_logprobs(mixture, labels)  # a mixture is normalised: this only gathers, and checks the labels
    smoothed = (1 - epsilon) * target + epsilon * mixture.mean(2)
    return -smoothed.masked_fill(labels == IGNORE_INDEX, 0.0).sum(1)


def _checked(logits: Tensor, labels: Tensor, doc_logprobs: Tensor, epsilon: float) -> Tensor:
    """The logits in float32 or wider, 0 at padding, where nan could otherwise reach a gradient."""
    check_n_docs(doc_logprobs, name="doc_logprobs")
    fits = logits.dim() == 4 and logits.shape[:2] == doc_logprobs.shape
    if not fits or labels.shape != (logits.shape[0], logits.shape[2]):
        raise ShapeError(
            "logits, labels and doc_logprobs must have shapes (B, K, T, V), (B, T) and (B, K), got "
            f"{tuple(logits.shape)}, {tuple(labels.shape)} and {tuple(doc_logprobs.shape)}. Unfold B*K rows first."
        )
    if not 0 <= epsilon < 1:
        raise ConfigError([f"epsilon must be in [0, 1), got {epsilon}. Use 0 to switch label smoothing off."])
    return float32_or_wider(logits).masked_fill((labels == IGNORE_INDEX)[:, None, :, None], 0.0)
