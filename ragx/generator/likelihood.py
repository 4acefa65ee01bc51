"""Sections 2.1 and 2.3 together: from the generator's inputs and p(z|x) to log p(y|x), and to what training minimizes.

    rag_sequence  log p(y|x)  =  log sum_z p(z|x) prod_i p(y_i|x,z,y_<i)      `losses.rag_sequence`
    rag_token     log p(y|x)  =  sum_i log sum_z p(z|x) p(y_i|x,z,y_<i)       `losses.rag_token`
    closed_book   log p(y|x)  =  sum_i log p(y_i|x,y_<i)
    smoothed nll  =  (1-e) * -log p(y|x)  +  e * the term of `losses.label_smoothing`

Passages are read `at_once` at a time. A group leaves the decoder's states behind (T x D numbers a passage); the LM head
comes after, once for all passages: label smoothing needs their mixture for every entry of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ragx.errors import ConfigError
from ragx.generator.inputs import GeneratorInputs
from ragx.generator.passage_groups import read_in_groups
from ragx.generator.pretrained import PretrainedGenerator
from ragx.generator.recomputed import recomputed_activations
from ragx.generator.shared_weight import lookups, shared_weight
from ragx.generator.teacher_forcing import head_logprobs, uniform_nll
from ragx.losses import rag_sequence, rag_token
from ragx.losses.posterior import rag_sequence_running_logposterior
from ragx.records import Retrieved


@dataclass(frozen=True)
class Likelihood:
    """What the generator says of one target a query: token_logprobs (B, K, T), nll (B,), smoothed_nll (B,)."""

    token_logprobs: Tensor
    nll: Tensor
    smoothed_nll: Tensor


@dataclass(frozen=True)
class RagOutput:
    """What `ragx.model.RagModel.forward` computed; natural logarithms, float32.

    Attributes:
        loss: (), the mean of `smoothed_nll`.
        nll: (B,), -log p(y|x).
        smoothed_nll: (B,), what training minimizes: `nll`, with label smoothing mixed with its smoothing term.
        doc_logprobs, doc_scores: (B, K), log p(z|x) and q.d; None for `closed_book`.
        token_logprobs: (B, K, T), log p(y_i|x,z,y_<i), 0 at padding; K is 1 for `closed_book`.
        retrieved: the passages; None for `closed_book`.
        n_tokens: scored target tokens of the batch, EOS included.
        cut_tokens: passage tokens of the batch that did not fit the generator's input.
    """

    loss: Tensor
    nll: Tensor
    smoothed_nll: Tensor
    doc_logprobs: Tensor | None
    token_logprobs: Tensor
    doc_scores: Tensor | None
    retrieved: Retrieved | None
    n_tokens: int
    cut_tokens: int


def marginalize(kind: str, token_logprobs: Tensor, doc_logprobs: Tensor | None) -> Tensor:
    """log p(y|x), (B,), as the model kind has it; no `doc_logprobs` (B, K) is one passage of probability 1."""
    if doc_logprobs is None:
        return token_logprobs.sum((1, 2))
    likelihood = {"rag_sequence": rag_sequence, "rag_token": rag_token}[kind]
    return likelihood.marginalize(token_logprobs, doc_logprobs)


def likelihood(
    kind: str,
    generator: PretrainedGenerator,
    inputs: GeneratorInputs,
    labels: Tensor,
    doc_logprobs: Tensor | None,
    *,
    at_once: int,
    label_smoothing: float,
) -> Likelihood:
    """The likelihood of labels (B, T), on the generator's device, under inputs of B*K rows.

    Args:
        doc_logprobs: (B, K) log p(z|x); None for `closed_book`.
        at_once: passages of each query read together; 0 means all.
        label_smoothing: e, in [0, 1).

    Raises:
        ConfigError: `label_smoothing` or `at_once` out of range.
    """
    if not 0 <= label_smoothing < 1:
        raise ConfigError([f"label_smoothing must be in [0, 1), got {label_smoothing}. 0 switches it off."])
    n_docs = len(inputs.input_ids) // len(labels)
    shared = shared_weight(generator.model, compiled=generator.compiled)

    def read(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        with lookups(shared):  # in here, for a group is read a second time in the backward pass
            return generator.target_states(generator.encode(input_ids, attention_mask), labels)

    with recomputed_activations(generator.model, enabled=not generator.compiled):
        states = read_in_groups(read, inputs, n_docs=n_docs, at_once=at_once, device=generator.device)
    token_logprobs, normalizers = head_logprobs(generator, states, labels, shared=shared)
    nll = -marginalize(kind, token_logprobs, doc_logprobs)
    if label_smoothing == 0:
        return Likelihood(token_logprobs, nll, nll)
    offsets = _log_weights(kind, token_logprobs, doc_logprobs) - normalizers
    uniform = uniform_nll(generator, states, labels, offsets, shared=shared)
    return Likelihood(token_logprobs, nll, (1 - label_smoothing) * nll + label_smoothing * uniform)


def _log_weights(kind: str, token_logprobs: Tensor, doc_logprobs: Tensor | None) -> Tensor:
    """log w_i(z) of `losses.label_smoothing`, (B, K, T): what the model believes about z before it reads y_i."""
    if doc_logprobs is None:
        return torch.zeros_like(token_logprobs)
    if kind == "rag_sequence":
        return rag_sequence_running_logposterior(token_logprobs, doc_logprobs)
    return doc_logprobs.unsqueeze(2).expand_as(token_logprobs)
