"""Whether vectors are those of an encoder: a few passages, spread over the corpus, are encoded again.

    cosine of the vector that is there and the one that is made  >=  0.999        for each of five

A fingerprint says which encoder an index claims; this says whether that is true, for five passages and not for all.
"""

from __future__ import annotations

import numpy as np

from ragx.errors import IndexMismatchError
from ragx.retriever.embeddings import Embeddings
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import PassageStore

SAMPLE = 5
LEAST_COSINE = 0.999


def require_vectors_of(encoder: PassageEncoder, passages: PassageStore, embeddings: Embeddings, *, advice: str) -> None:
    """Encodes a sample of `passages` again and compares.

    Args:
        embeddings: (N, D), of the passages in their order.
        advice: ends the message.

    Raises:
        IndexMismatchError: vectors of another length, or that `encoder` did not make; the worst one is named.
    """
    if encoder.embedding_size != embeddings.shape[1]:
        got = f"{embeddings.shape[1]} numbers a vector, of the encoder's {encoder.embedding_size}"
        raise IndexMismatchError(f"vectors must be those of the passage encoder, got {got}. {advice}")
    rows = np.unique(np.linspace(0, len(passages) - 1, SAMPLE).astype(np.int64))
    there, anew = embeddings.rows(rows), encoder.encode(passages.take(rows))
    sizes = np.linalg.norm(there, axis=1) * np.linalg.norm(anew, axis=1)
    cosines = (there * anew).sum(1) / np.maximum(sizes, np.finfo(np.float32).tiny)
    worst = int(cosines.argmin())
    if cosines[worst] < LEAST_COSINE:
        got = f"{cosines[worst]:.3f} for row {rows[worst]}, {tuple(passages[int(rows[worst])].key)}"
        raise IndexMismatchError(
            f"vectors must be those of the passage encoder (cosine >= {LEAST_COSINE}), got {got}. {advice}"
        )
