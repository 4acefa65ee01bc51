"""RAG-Token decoding (section 2.5): one ordinary search over the mixed next-token distribution.

    p'(y_i | x, y_<i)  =  sum_z  p(z|x)  p(y_i | x, z, y_<i)

All passages of a question read the same prefix and are mixed before every token, so no hypothesis is ever merged
afterwards. `do_sample` draws from p' in place of the beam search.
"""

from __future__ import annotations

import torch

from ragx.decoding.batch import Answers, Batch, decoder
from ragx.decoding.beam import search
from ragx.decoding.hypotheses import Pool, ranked
from ragx.decoding.sampling import draw


@decoder
def decode(batch: Batch) -> Answers:
    """The best answers under RAG-Token, or the distinct ones among `num_return_sequences` samples.

    `logprob` is log p_RAG-Token(y|x), of the prefix where `max_length` cut it. `doc_posterior` is the mean over the
    tokens of p(z|x,y_<=i). The passages are read together, so `produced_by` names every passage not masked.
    """
    n_questions, n_docs = batch.doc_logprobs.shape
    read = batch.doc_logprobs > -torch.inf
    rows = torch.arange(n_questions * n_docs, device=read.device).view(n_questions, n_docs)
    # A masked passage has no weight, but what its row holds could be no number; the best passage stands in for it.
    rows = torch.where(read, rows, rows.gather(1, batch.doc_logprobs.argmax(1, keepdim=True)))
    sources = [(question, None) for question in range(n_questions)]
    find = draw if batch.settings.do_sample else search
    beams = find(batch, rows, batch.doc_logprobs, sources=sources, settings=batch.settings)
    questions, places = (beams.logprobs > -torch.inf).nonzero(as_tuple=True)
    passage_logprobs = beams.passage_logprobs.masked_fill(~read.unsqueeze(1), -torch.inf)
    pool = Pool(questions, beams.token_ids[questions, places], passage_logprobs[questions, places], read[questions])
    doc_posterior = beams.posteriors / beams.lengths().clamp(min=1).unsqueeze(2)
    return ranked(batch, pool, beams.logprobs[questions, places], doc_posterior[questions, places])
