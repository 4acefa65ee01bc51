"""What an approximate index finds of what an exact one finds, stated in its manifest.

    recall@10  =  mean over queries of  |{found passages that score no less than the exact tenth}| / 10

For the manifest, queries are stored vectors, drawn by a seed: at build time no question is known. Real questions lie
further from the passages and find less; `evaluate_retrieval.py` measures it on those. By score, because of equal
vectors any one is as good as another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ragx.retriever.index import VectorIndex

K, QUERIES = 10, 200


def measured(index: VectorIndex, *, seed: int = 0) -> dict[str, Any]:
    """recall@10 of `index` against exact search, and how it was measured; `flat` is what others are measured by."""
    k = min(K, len(index))
    note: dict[str, Any] = {"k": k, "against": "flat", "seed": seed}
    if index.kind == "flat":
        return {**note, "recall": 1.0, "queries": 0, "by": "is flat"}
    rows = np.random.default_rng(seed).choice(len(index), size=min(QUERIES, len(index)), replace=False)
    queries = index.embeddings.rows(np.sort(rows))
    return {**note, "recall": recall(index, queries, k), "queries": len(queries), "by": "sampled passages"}


def recall(index: VectorIndex, queries: np.ndarray, k: int) -> float:
    """recall@k on `queries` (B, D)."""
    return float(recall_of_each(index, queries, k).mean())


def recall_of_each(index: VectorIndex, queries: np.ndarray, k: int) -> np.ndarray:
    """recall@k of each of `queries` (B, D), (B,)."""
    _, exact = index.search_exactly(queries, k)
    _, found = index.search(queries, k)
    shares: np.ndarray = (found >= exact[:, -1:]).mean(axis=1)
    return shares
