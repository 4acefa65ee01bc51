"""RAG-Sequence, Fast Decoding (section 2.5): no further reading once the passages' beams are done.

    p(y|x)  ~  sum over the z whose beam found y  of  p(z|x)  p(y|x,z)

An answer that a passage's beam did not find counts zero there, so the value is a lower bound of thorough decoding's,
and the answer it prefers may be another one.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ragx.decoding.beam import DecodingSettings, check_doc_logprobs
from ragx.decoding.hypotheses import ranked_by_marginal, search_passages
from ragx.protocols import Generator
from ragx.records import Hypothesis


def decode(
    generator: Generator, encoded: Any, doc_logprobs: Tensor, *, settings: DecodingSettings
) -> list[list[Hypothesis]]:
    """The best answers by the mass that the passages' beams found, one list per question.

    Args:
        encoded: R = B*K encoded inputs, row b*K + k is passage k of question b.
        doc_logprobs: (B, K) log p(z|x), -inf for a masked passage.

    Returns:
        Hypotheses whose `logprob` is at most log p_RAG-Sequence(y|x). `passage_logprobs` is -inf and
        `doc_posterior` 0 for a passage outside `produced_by`.

    Raises:
        ShapeError: `doc_logprobs` is no distribution over passages.
    """
    doc_logprobs = check_doc_logprobs(doc_logprobs)
    pool = search_passages(generator, encoded, doc_logprobs, settings=settings)
    return ranked_by_marginal(pool, doc_logprobs, settings=settings)
