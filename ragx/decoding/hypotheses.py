"""From beams to ranked answers (section 2.5): one beam per passage, their union, and the final order.

    p(y|x)  =  sum_z  p(z|x)  p(y|x,z)        for each y that the beam of some passage found

RAG-Sequence does not factor over tokens, so no single beam can search it: each passage has a beam of its own and the
answers found are pooled per question. Answers are equal when their token ids are. Final ties are broken by the token
ids in lexicographic order, which no batch, beam order or passage order can change.

Shapes: C pooled hypotheses of all questions together, K n_docs, T longest hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ragx.decoding.beam import search
from ragx.decoding.beams import END, Beams
from ragx.decoding.settings import DecodingSettings
from ragx.losses.posterior import rag_sequence_posterior
from ragx.losses.rag_sequence import marginalize
from ragx.protocols import Generator
from ragx.records import Hypothesis


@dataclass(frozen=True, slots=True)
class Pool:
    """Distinct hypotheses of all questions.

    Attributes:
        questions: (C,) which question each answers.
        token_ids: (C, T), `END` after the last token.
        passage_logprobs: (C, K) log p(y|x,z); -inf where not known.
        produced_by: (C, K) bool, the passages whose own beam found it.
    """

    questions: Tensor
    token_ids: Tensor
    passage_logprobs: Tensor
    produced_by: Tensor


def search_passages(generator: Generator, encoded: Any, doc_logprobs: Tensor, *, settings: DecodingSettings) -> Pool:
    """Ordinary beam search for each passage alone, by plain probability, pooled per question.

    Args:
        doc_logprobs: (B, K) log p(z|x); a masked passage (-inf) is not searched.
    """
    rows = (doc_logprobs > -torch.inf).flatten().nonzero()
    alone = replace(settings, length_penalty=0.0)
    beams = search(generator, encoded, rows, doc_logprobs=torch.zeros_like(rows).float(), settings=alone)
    return union(beams, rows.squeeze(1), n_docs=doc_logprobs.shape[1])


def union(beams: Beams, rows: Tensor, *, n_docs: int) -> Pool:
    """Pools the beams of single passages per question; what several passages found appears once.

    Args:
        beams: (U, M), one unit per searched (question, passage) pair.
        rows: (U,) position b * K + k of each unit's pair.
    """
    unit, place = (beams.logprobs > -torch.inf).nonzero(as_tuple=True)
    token_ids = beams.token_ids[unit, place]
    questions, passages = rows[unit] // n_docs, rows[unit] % n_docs
    distinct, which = torch.cat([questions.unsqueeze(1), token_ids], 1).unique(dim=0, return_inverse=True)
    passage_logprobs = beams.logprobs.new_full((len(distinct), n_docs), -torch.inf)
    passage_logprobs[which, passages] = beams.logprobs[unit, place]
    longest = int((token_ids != END).sum(1).max()) if len(token_ids) else 0
    return Pool(distinct[:, 0], distinct[:, 1 : 1 + longest], passage_logprobs, passage_logprobs > -torch.inf)


def ranked_by_marginal(pool: Pool, doc_logprobs: Tensor, *, settings: DecodingSettings) -> list[list[Hypothesis]]:
    """`ranked` by log p_RAG-Sequence(y|x), where a pair that `pool` does not know has probability zero."""
    sequences, prior = pool.passage_logprobs.unsqueeze(2), doc_logprobs[pool.questions]
    logprobs, doc_posterior = marginalize(sequences, prior), rag_sequence_posterior(sequences, prior)
    return ranked(pool, logprobs, doc_posterior, n_questions=len(doc_logprobs), settings=settings)


def ranked(
    pool: Pool, logprobs: Tensor, doc_posterior: Tensor, *, n_questions: int, settings: DecodingSettings
) -> list[list[Hypothesis]]:
    """The `num_return_sequences` best hypotheses of each question by logprob / length ** length_penalty, best first.

    Args:
        logprobs: (C,) log p(y|x).
        doc_posterior: (C, K) p(z|x,y).

    Returns:
        One list per question, shorter where fewer distinct hypotheses exist, empty where every one is impossible.
    """
    answers = [tuple(t for t in row if t != END) for row in pool.token_ids.tolist()]
    questions, values = pool.questions.tolist(), logprobs.tolist()
    scores = [value / len(answer) ** settings.length_penalty for value, answer in zip(values, answers, strict=True)]
    members: list[list[int]] = [[] for _ in range(n_questions)]
    for c in sorted(range(len(answers)), key=lambda c: (-scores[c], answers[c])):
        if len(members[question := questions[c]]) < settings.num_return_sequences:
            members[question].append(c)
    return [
        [
            Hypothesis(
                token_ids=answers[c],
                logprob=values[c],
                passage_logprobs=tuple(pool.passage_logprobs[c].tolist()),
                doc_posterior=tuple(doc_posterior[c].tolist()),
                produced_by=tuple(pool.produced_by[c].nonzero().flatten().tolist()),
            )
            for c in chosen
        ]
        for chosen in members
    ]
