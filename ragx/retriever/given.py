"""Passages that the caller brings for each question: p(z|x) without a search.

    p(z|x)  =  softmax over the n_docs best given passages of their doc_scores;  1 / n_docs each where none are given

What any other system found (a search engine, an expert, a published run) is read and marginalized over as if it had
been retrieved. Nothing of it is trained. One decision: a question with fewer passages than n_docs is refused, for a
repeated passage would count twice and a silent padding would change the prior.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping

import numpy as np

from ragx.errors import ConfigError, ShapeError
from ragx.filters import PassageFilter
from ragx.records import GivenPassages, Passage, PassageKey, Retrieved
from ragx.retriever.filtered import Asked, FilteredRetriever


class GivenRetriever(FilteredRetriever):
    """Finds the best of what was given for a question, ties in the given order; implements `ragx.protocols.Retriever`.

    A question is known by its exact text; `query_embeds` are not read. A question for which nothing was given, or fewer
    than `n_docs` passages, is a ConfigError.

    Args:
        rankings: by question; without scores the given order is kept.
        name: of where they come from, for messages.
        passage_filter: see `FilteredRetriever`.

    Raises:
        ShapeError: a score that is not finite.
    """

    def __init__(
        self,
        rankings: Mapping[str, GivenPassages],
        *,
        name: str = "the given passages",
        passage_filter: PassageFilter | None = None,
    ) -> None:
        super().__init__(passage_filter)
        self._name, self._rows = name, dict[PassageKey, int]()
        self._found: dict[str, list[tuple[Passage, float]]] = {}
        digest = hashlib.sha256()
        for query, ranking in rankings.items():
            scores = ranking.doc_scores or (0.0,) * len(ranking.passages)
            if not np.isfinite(scores).all():
                raise ShapeError(f"doc_scores must be finite, got {scores} for {query!r}. Repair {name}.")
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
        return min((len(pairs) for pairs in self._found.values()), default=0)

    def how_many(self, query: str, passage_filter: PassageFilter | None = None) -> int:
        """How many passages of `query` may be found.

        Raises:
            ConfigError: nothing was given for it.
        """
        filters = [one for one in (self.passage_filter, passage_filter) if one is not None and one.restricts]
        return len(self._ranked(query, filters))

    def _find(self, asked: Asked) -> Retrieved:
        n_docs = asked.n_docs
        if n_docs < 1:
            raise ConfigError([f"n_docs must be >= 1, got {n_docs}."])
        found = [self._ranked(query, asked.filters)[:n_docs] for query in asked.queries]
        for query, pairs in zip(asked.queries, found, strict=True):
            if len(pairs) < n_docs:
                what = "passages given" if not asked.filters else "given passages that the filter leaves"
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

    def _ranked(self, query: str, filters: Collection[PassageFilter]) -> list[tuple[Passage, float]]:
        if query not in self._found:
            known = f"the {len(self._found)} questions of {self._name}"
            raise ConfigError([f"query must be one of {known}, letter by letter, got {query!r}. Add it there."])
        return [pair for pair in self._found[query] if all(one.allows(pair[0]) for one in filters)]
