"""Passages that the caller brings for each question: p(z|x) without a search.

    p(z|x)  =  softmax over the n_docs best given passages of their doc_scores;  1 / n_docs each where none are given

What any other system found (a search engine, an expert, a published run) is read and marginalized over as if it had
been retrieved. Nothing of it is trained. One decision: a question with fewer passages than n_docs is refused, for a
repeated passage would count twice and a silent padding would change the prior.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from ragx.errors import ConfigError
from ragx.filters import PassageFilter
from ragx.records import GivenPassages, Passage, PassageKey, Retrieved


class GivenRetriever:
    """Finds what was given for a question, by its exact text; implements `ragx.protocols.Retriever`.

    Args:
        rankings: by question; without scores the given order is kept.
        name: of where they come from, for messages.
        passage_filter: narrows every call, whatever the call itself asks for.
    """

    def __init__(
        self,
        rankings: Mapping[str, GivenPassages],
        *,
        name: str = "the given passages",
        passage_filter: PassageFilter | None = None,
    ) -> None:
        self._name, self._rows, self._filter = name, dict[PassageKey, int](), passage_filter
        self._found: dict[str, list[tuple[Passage, float]]] = {}
        digest = hashlib.sha256()
        for query, ranking in rankings.items():
            scores = ranking.doc_scores or (0.0,) * len(ranking.passages)
            pairs = list(zip(ranking.passages, scores, strict=True))
            self._found[query] = sorted(pairs, key=lambda pair: -pair[1])  # stable: ties keep the given order
            for passage in ranking.passages:
                self._rows.setdefault(passage.key, len(self._rows))
            described = [query, [passage.to_json() for passage in ranking.passages], list(scores)]
            digest.update(json.dumps(described, sort_keys=True, ensure_ascii=False).encode("utf-8") + b"\n")
        self._fingerprint = digest.hexdigest()

    @property
    def fingerprint(self) -> str:
        """Of questions, passages and scores."""
        return self._fingerprint

    def __len__(self) -> int:
        """How many passages every question has at least."""
        return min(len(pairs) for pairs in self._found.values())

    def retrieve(
        self,
        queries: Sequence[str],
        n_docs: int,
        *,
        query_embeds: Tensor | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> Retrieved:
        """The `n_docs` best given passages of each of B queries, ties in the given order; `query_embeds` is not used.

        Raises:
            ConfigError: a query for which nothing was given, or fewer than `n_docs` passages.
        """
        if n_docs < 1:
            raise ConfigError([f"n_docs must be >= 1, got {n_docs}."])
        filters = [one for one in (self._filter, passage_filter) if one is not None and one.restricts]
        found = [self._ranked(query, filters)[:n_docs] for query in queries]
        for query, pairs in zip(queries, found, strict=True):
            if len(pairs) < n_docs:
                what = "passages given" if not filters else "given passages that the filter leaves"
                raise ConfigError(
                    [f"n_docs must be at most {len(pairs)}, the {what} for {query!r}, got {n_docs}. Ask for fewer."]
                )
        return Retrieved(
            passages=[[passage for passage, _ in pairs] for pairs in found],
            rows=np.array([[self._rows[passage.key] for passage, _ in pairs] for pairs in found], dtype=np.int64),
            doc_embeds=None,
            doc_scores=np.array([[score for _, score in pairs] for pairs in found], dtype=np.float32),
            index_fingerprint=self.fingerprint,
        )

    def _ranked(self, query: str, filters: Sequence[PassageFilter]) -> list[tuple[Passage, float]]:
        if query not in self._found:
            known = f"the {len(self._found)} questions of {self._name}"
            raise ConfigError([f"query must be one of {known}, letter by letter, got {query!r}. Add it there."])
        return [pair for pair in self._found[query] if all(one.allows(pair[0]) for one in filters)]
