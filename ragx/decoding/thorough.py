"""RAG-Sequence, Thorough Decoding (section 2.5): every answer found is scored under every passage.

    p(y|x)  =  sum_z  p(z|x)  p(y|x,z)        for each y that the beam of some passage found

What a passage's own beam found is scored already; only the missing (answer, passage) pairs are read again, teacher
forced, the whole batch together. An answer that `max_length` cut is scored the same way: as a prefix, without EOS.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ragx.decoding.batch import Answers, Batch, decoder
from ragx.decoding.beams import END
from ragx.decoding.candidates import check_numbers
from ragx.decoding.hypotheses import Pool, ranked_by_marginal, search_passages


@decoder
def decode(batch: Batch) -> Answers:
    """The best answers under RAG-Sequence among all that the passages' beams found.

    `logprob` is log p_RAG-Sequence(y|x), and `passage_logprobs` is -inf only for masked passages.
    """
    batch.refuse_sampling("thorough")
    return ranked_by_marginal(batch, score_missing(batch, search_passages(batch)))


def score_missing(batch: Batch, pool: Pool) -> Pool:
    """`pool` with log p(y|x,z) of every pair that no beam has scored, masked passages left out.

    At most `max_sequences_in_flight` pairs are scored at a time. Pairs of one passage share a call, so that what
    depends on the passage alone is computed once.
    """
    missing = ~pool.produced_by & (batch.doc_logprobs > -torch.inf)[pool.questions]
    answers, passages = missing.nonzero(as_tuple=True)
    rows = pool.questions[answers] * batch.n_docs + passages
    by_row = rows.argsort(stable=True)
    passage_logprobs = pool.passage_logprobs.clone()
    for pairs in by_row.split(batch.settings.max_sequences_in_flight or max(1, len(by_row))):
        if len(pairs) == 0:
            break
        labels = pool.token_ids[answers[pairs]]
        labels = labels[:, : int((labels != END).sum(1).max())]
        scored = batch.reader.token_logprobs(batch.encoded, labels, rows[pairs])
        passage_logprobs[answers[pairs], passages[pairs]] = scored.sum(1)
    check_numbers(passage_logprobs)
    return replace(pool, passage_logprobs=passage_logprobs)
