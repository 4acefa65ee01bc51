"""From beams to ranked answers (section 2.5): one beam per passage, their union, and the final order.

    p(y|x)  =  sum_z  p(z|x)  p(y|x,z)        for each y that the beam of some passage found

RAG-Sequence does not factor over tokens, so no single beam can search it: each passage has a beam of its own and the
answers found are pooled per question. Answers are equal when their token ids are. Final ties are broken by the token
ids in lexicographic order, which no batch, beam order or passage order can change.

Shapes: C pooled hypotheses of all questions together, K n_docs, T longest hypothesis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ragx.decoding.batch import Answers, Batch
from ragx.decoding.beam import search
from ragx.decoding.beams import END, Beams
from ragx.losses.posterior import rag_sequence_posterior
from ragx.losses.rag_sequence import marginalize
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


def search_passages(batch: Batch) -> Pool:
    """Ordinary beam search for each passage alone, by plain probability, pooled per question; masked ones are left."""
    rows = (batch.doc_logprobs > -torch.inf).flatten().nonzero()
    sources = [divmod(row, batch.n_docs) for row in rows.flatten().tolist()]
    alone = replace(batch.settings, length_penalty=0.0)
    beams = search(batch, rows, torch.zeros_like(rows).float(), sources=sources, settings=alone)
    return union(beams, rows.squeeze(1), n_docs=batch.n_docs)


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


def ranked_by_marginal(batch: Batch, pool: Pool) -> Answers:
    """`ranked` by log p_RAG-Sequence(y|x), where a pair that `pool` does not know has probability zero."""
    sequences, prior = pool.passage_logprobs.unsqueeze(2), batch.doc_logprobs[pool.questions]
    return ranked(batch, pool, marginalize(sequences, prior), rag_sequence_posterior(sequences, prior))


def ranked(batch: Batch, pool: Pool, logprobs: Tensor, doc_posterior: Tensor) -> Answers:
    """The `num_return_sequences` best hypotheses of each question by logprob / length ** length_penalty, best first.

    Args:
        logprobs: (C,) log p(y|x).
        doc_posterior: (C, K) p(z|x,y).

    Returns:
        One list per question without equal answers, empty where every one is impossible.
    """
    answers = [tuple(t for t in row if t != END) for row in pool.token_ids.tolist()]
    questions, values = pool.questions.tolist(), logprobs.tolist()
    penalty, wanted = batch.settings.length_penalty, batch.settings.num_return_sequences
    scores = [value / len(answer) ** penalty for value, answer in zip(values, answers, strict=True)]
    members: list[dict[tuple[int, ...], int]] = [{} for _ in range(len(batch.doc_logprobs))]
    for c in sorted(range(len(answers)), key=lambda c: (-scores[c], answers[c])):
        chosen = members[questions[c]]
        if values[c] > -math.inf and len(chosen) < wanted:
            chosen.setdefault(answers[c], c)
    by_passage, posterior, found_by = (t.tolist() for t in (pool.passage_logprobs, doc_posterior, pool.produced_by))
    return [
        [
            Hypothesis(
                token_ids=answer,
                logprob=values[c],
                passage_logprobs=tuple(by_passage[c]),
                doc_posterior=tuple(posterior[c]),
                produced_by=tuple(k for k, found in enumerate(found_by[c]) if found),
            )
            for answer, c in chosen.items()
        ]
        for chosen in members
    ]
