"""The probability of each target token under each passage (section 2.3).

    log p(y_i|x,z,y_<i)  =  logit[y_i]  -  logsumexp over v of logit[v]

Decision: the losses need one number per target, never the (B, K, T, V) logits. `linear_token_logprobs` gets it from
the decoder's states and the LM head a block of the vocabulary at a time; `token_logprobs` is the plain form for tests
and for callers that hold logits anyway. Padding is the label -100, never a token id: a pad or EOS id is a real target.

Shapes: N rows (B*K*T flattened), D hidden size, T target length, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragx.errors import ShapeError
from ragx.losses.shapes import float32_or_wider
from ragx.losses.vocabulary_blocks import linear_logprobs

IGNORE_INDEX = -100


def check_labels(labels: Tensor, vocab_size: int) -> None:
    """Raises ShapeError, naming the position, unless every label is -100 or a token id below `vocab_size`.

    Copies one flag to the host: call it on the CPU labels, before they travel, to keep a GPU step free of waits.
    """
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ShapeError(f"labels must be integers, got {labels.dtype}. Pass token ids.")
    outside = ((labels < 0) & (labels != IGNORE_INDEX)) | (labels >= vocab_size)
    if outside.any():
        position = tuple(outside.nonzero()[0].tolist())
        raise ShapeError(
            f"labels must be {IGNORE_INDEX} or in [0, {vocab_size}), got {int(labels[position])} "
            f"at position {position}. Check that the tokenizer belongs to this generator."
        )


def token_logprobs(logits: Tensor, labels: Tensor) -> Tensor:
    """log p(label), shape (..., T), float32 (float64 stays), natural logarithm; 0 where the label is -100.

    Args:
        logits: (..., T, V) in any floating dtype; log-probabilities are logits too.
        labels: (..., T) token ids, -100 at padding.

    Raises:
        ShapeError: shapes that differ, or a label outside the vocabulary (names the position).
    """
    if logits.shape[:-1] != labels.shape:
        raise ShapeError(
            f"logits must have the shape of labels {tuple(labels.shape)} and a last axis V, got {tuple(logits.shape)}. "
            "Expand the labels over the passages first."
        )
    check_labels(labels, logits.shape[-1])
    ignored = labels == IGNORE_INDEX
    # Logits at padding may be anything, nan included; zeroed here they cannot reach a gradient.
    logits = float32_or_wider(logits).masked_fill(ignored.unsqueeze(-1), 0.0)
    index = labels.long().clamp(min=0).unsqueeze(-1)
    return (logits.gather(-1, index).squeeze(-1) - logits.logsumexp(-1)).masked_fill(ignored, 0.0)


def linear_token_logprobs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    block_size: int = 2048,
    validate: bool = True,
) -> Tensor:
    """log p(label) of a linear LM head, shape (N,), without its (N, V) logits; 0 where the label is -100.

    Equals `token_logprobs(hidden @ weight.T + bias, labels)` with its first derivatives with respect to hidden, weight
    and bias. On the CPU half-precision operands are computed in float32. On an accelerator the two operands are
    multiplied in their own (or autocast's) dtype, as any LM head there; everything after the product is float32.

    Args:
        hidden: (N, D) decoder states.
        weight: (V, D) LM head.
        bias: (V,), or None.
        labels: (N,) token ids, -100 at padding.
        block_size: vocabulary entries at a time; the working memory is N * block_size numbers.
        validate: False skips the look at the labels' values, for labels that `check_labels` has seen on the CPU; a
            label outside the vocabulary then gives nan.

    Returns:
        (N,) float32, natural logarithm (float64 where an operand is float64).

    Raises:
        ShapeError: shapes that disagree, a label outside the vocabulary (names the position), or block_size < 1.
    """
    if validate:
        _check_linear(hidden, weight, bias, labels, block_size)
        check_labels(labels, weight.shape[0])
    return linear_logprobs_and_normalizers(hidden, weight, bias, labels, block_size=block_size)[0]


def linear_logprobs_and_normalizers(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, block_size: int = 2048
) -> tuple[Tensor, Tensor]:
    """As `linear_token_logprobs` with `validate=False`, and the logsumexp over the vocabulary of each row, (N,).

    Both are differentiable, and 0 where the label is -100.
    """
    _check_linear(hidden, weight, bias, labels, block_size)
    dtype = operand_dtype(hidden, weight)
    labels = labels.long()
    ignored = labels == IGNORE_INDEX
    if hidden.device.type == "cpu":
        # Padded rows are left out of the product altogether. Elsewhere finding them would make the host wait.
        rows = (~ignored).nonzero().squeeze(1)
        both = linear_logprobs(hidden[rows].to(dtype), weight, bias, labels[rows], block_size=block_size)
        logprobs, normalizers = (scored.new_zeros(labels.shape).index_put((rows,), scored) for scored in both)
        return logprobs, normalizers
    hidden = hidden.to(dtype).masked_fill(ignored.unsqueeze(1), 0.0)
    both = linear_logprobs(hidden, weight, bias, labels.masked_fill(ignored, 0), block_size=block_size)
    return both[0].masked_fill(ignored, 0.0), both[1].masked_fill(ignored, 0.0)


def operand_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype in which hidden and weight are multiplied."""
    device = hidden.device.type
    if torch.float64 in (hidden.dtype, weight.dtype):
        return torch.float64
    if device == "cpu":
        return torch.float32
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def _check_linear(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, block_size: int) -> None:
    if hidden.dim() != 2 or weight.dim() != 2 or hidden.shape[1] != weight.shape[1] or weight.shape[0] == 0:
        raise ShapeError(
            "hidden and weight must have shapes (N, D) and (V, D), got "
            f"{tuple(hidden.shape)} and {tuple(weight.shape)}. Flatten (B, K, T) to N first."
        )
    if labels.shape != hidden.shape[:1]:
        raise ShapeError(
            f"labels must have shape ({hidden.shape[0]},), one per row of hidden, got {tuple(labels.shape)}. "
            "Flatten them in the same order."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"bias must have shape ({weight.shape[0]},), one per vocabulary entry, got {tuple(bias.shape)}. "
            "Squeeze BART's final_logits_bias."
        )
    if block_size < 1:
        raise ShapeError(f"block_size must be >= 1, got {block_size}. A few thousand suit a CPU's cache.")
