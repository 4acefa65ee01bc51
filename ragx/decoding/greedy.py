"""Greedy decoding: the most probable token at every step, up to EOS or `max_length`.

    y_i  =  argmax  sum_z  p(z|x)  p(y_i | x, z, y_<i)

With one row per question (K = 1, `doc_logprobs` zero) this is how the closed-book baseline answers (section 4);
with more it is RAG-Token's greedy search. Of equally probable tokens the one with the lower id is taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from ragx.decoding import token_beam
from ragx.decoding.beam import DecodingSettings
from ragx.protocols import Generator
from ragx.records import Hypothesis


def decode(
    generator: Generator, encoded: Any, doc_logprobs: Tensor, *, settings: DecodingSettings
) -> list[list[Hypothesis]]:
    """One answer per question; `num_beams`, `num_return_sequences` and `length_penalty` have no say.

    Args:
        encoded: R = B*K encoded inputs, row b*K + k is passage k of question b.
        doc_logprobs: (B, K) log p(z|x); zeros of shape (B, 1) for closed book.

    Raises:
        ShapeError: `doc_logprobs` is no distribution over passages.
    """
    single = replace(settings, num_beams=1, num_return_sequences=1, length_penalty=0.0)
    return token_beam.decode(generator, encoded, doc_logprobs, settings=single)
