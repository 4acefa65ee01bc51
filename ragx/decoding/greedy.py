"""Greedy decoding: the most probable token at every step, up to EOS or `max_length`.

    y_i  =  argmax  sum_z  p(z|x)  p(y_i | x, z, y_<i)

With one row per question (K = 1, `doc_logprobs` zero) this is how the closed-book baseline answers (section 4);
with more it is RAG-Token's greedy search. Of equally probable tokens the one with the lower id is taken.
"""

from __future__ import annotations

from dataclasses import replace

from ragx.decoding import token_beam
from ragx.decoding.batch import Answers, Batch, decoder


@decoder
def decode(batch: Batch) -> Answers:
    """One answer per question; `num_beams`, `num_return_sequences` and `length_penalty` have no say."""
    batch.refuse_sampling("greedy")
    single = replace(batch.settings, num_beams=1, num_return_sequences=1, length_penalty=0.0)
    return token_beam.decode(batch.generator, batch.encoded, batch.doc_logprobs, settings=single, allowed=batch.allowed)
