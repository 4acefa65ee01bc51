"""RAG-Sequence, Thorough Decoding (section 2.5): every answer found is scored under every passage.

    p(y|x)  =  sum_z  p(z|x)  p(y|x,z)        for each y that the beam of some passage found

What a passage's own beam found is scored already; only the missing (answer, passage) pairs are read again, teacher
forced, the whole batch together. An answer that `max_length` cut is scored the same way: as a prefix, without EOS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ragx.decoding.beam import DecodingSettings, check_doc_logprobs
from ragx.decoding.beams import END, check_numbers
from ragx.decoding.hypotheses import Pool, ranked_by_marginal, search_passages
from ragx.protocols import Generator
from ragx.records import Hypothesis


def decode(
    generator: Generator, encoded: Any, doc_logprobs: Tensor, *, settings: DecodingSettings
) -> list[list[Hypothesis]]:
    """The best answers under RAG-Sequence among all that the passages' beams found, one list per question.

    Args:
        encoded: R = B*K encoded inputs, row b*K + k is passage k of question b.
        doc_logprobs: (B, K) log p(z|x), -inf for a masked passage.

    Returns:
        Hypotheses whose `logprob` is log p_RAG-Sequence(y|x). `passage_logprobs` is -inf only for masked passages.

    Raises:
        ShapeError: `doc_logprobs` is no distribution over passages.
    """
    doc_logprobs = check_doc_logprobs(doc_logprobs)
    pool = search_passages(generator, encoded, doc_logprobs, settings=settings)
    pool = score_missing(generator, encoded, pool, doc_logprobs, at_once=settings.max_sequences_in_flight)
    return ranked_by_marginal(pool, doc_logprobs, settings=settings)


@torch.no_grad()
def score_missing(generator: Generator, encoded: Any, pool: Pool, doc_logprobs: Tensor, *, at_once: int | None) -> Pool:
    """`pool` with log p(y|x,z) of every pair that no beam has scored, masked passages left out.

    Args:
        doc_logprobs: (B, K); shows which passages are masked.
        at_once: pairs per call of the generator, None for all; pairs of like length share a call.
    """
    n_docs = doc_logprobs.shape[1]
    missing = ~pool.produced_by & (doc_logprobs > -torch.inf)[pool.questions]
    answers, passages = missing.nonzero(as_tuple=True)
    lengths = (pool.token_ids[answers] != END).sum(1)
    by_length = lengths.argsort(descending=True, stable=True)
    passage_logprobs = pool.passage_logprobs.clone()
    for pairs in by_length.split(at_once or max(1, len(by_length))):
        if len(pairs) == 0:
            break
        answer, passage = answers[pairs], passages[pairs]
        labels = pool.token_ids[answer, : int(lengths[pairs[0]])]
        scored = generator.token_logprobs(encoded, labels, pool.questions[answer] * n_docs + passage)
        passage_logprobs[answer, passage] = scored.float().sum(1)
    check_numbers(passage_logprobs)
    return replace(pool, passage_logprobs=passage_logprobs)
