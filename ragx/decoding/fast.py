"""RAG-Sequence, Fast Decoding (section 2.5): no further reading once the passages' beams are done.

    p(y|x)  ~  sum over the z whose beam found y  of  p(z|x)  p(y|x,z)

An answer that a passage's beam did not find counts zero there, so the value is a lower bound of thorough decoding's,
and the answer it prefers may be another one.
"""

from __future__ import annotations

from ragx.decoding.batch import Answers, Batch, decoder
from ragx.decoding.hypotheses import ranked_by_marginal, search_passages


@decoder
def decode(batch: Batch) -> Answers:
    """The best answers by the mass that the passages' beams found.

    `logprob` is at most log p_RAG-Sequence(y|x). `passage_logprobs` is -inf and `doc_posterior` 0 for a passage outside
    `produced_by`.
    """
    batch.refuse_sampling("fast")
    return ranked_by_marginal(batch, search_passages(batch))
