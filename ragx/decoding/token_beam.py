"""RAG-Token decoding (section 2.5): one ordinary beam search over the mixed next-token distribution.

    p'(y_i | x, y_<i)  =  sum_z  p(z|x)  p(y_i | x, z, y_<i)

All passages of a question read the same prefix and are mixed before every token, so no hypothesis is ever merged
afterwards.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ragx.decoding.beam import DecodingSettings, check_doc_logprobs, search
from ragx.decoding.hypotheses import Pool, ranked
from ragx.protocols import Generator
from ragx.records import Hypothesis


def decode(
    generator: Generator, encoded: Any, doc_logprobs: Tensor, *, settings: DecodingSettings
) -> list[list[Hypothesis]]:
    """The best answers under RAG-Token, one list per question.

    Args:
        encoded: R = B*K encoded inputs, row b*K + k is passage k of question b.
        doc_logprobs: (B, K) log p(z|x), -inf for a masked passage.

    Returns:
        Hypotheses whose `logprob` is log p_RAG-Token(y|x), of the prefix where `max_length` cut it. `doc_posterior` is
        the mean over the tokens of p(z|x,y_<=i). The beam is shared, so `produced_by` names every passage not masked.

    Raises:
        ShapeError: `doc_logprobs` is no distribution over passages.
    """
    doc_logprobs = check_doc_logprobs(doc_logprobs)
    n_questions, n_docs = doc_logprobs.shape
    read = doc_logprobs > -torch.inf
    rows = torch.arange(n_questions * n_docs, device=doc_logprobs.device).view(n_questions, n_docs)
    # A masked passage has no weight, but what its row holds could be no number; the best passage stands in for it.
    rows = torch.where(read, rows, rows.gather(1, doc_logprobs.argmax(1, keepdim=True)))
    beams = search(generator, encoded, rows, doc_logprobs=doc_logprobs, settings=settings)
    questions, places = (beams.logprobs > -torch.inf).nonzero(as_tuple=True)
    passage_logprobs = beams.passage_logprobs.masked_fill(~read.unsqueeze(1), -torch.inf)
    pool = Pool(questions, beams.token_ids[questions, places], passage_logprobs[questions, places], read[questions])
    doc_posterior = (beams.posteriors / beams.lengths().clamp(min=1).unsqueeze(2))[questions, places]
    return ranked(pool, beams.logprobs[questions, places], doc_posterior, n_questions=n_questions, settings=settings)
