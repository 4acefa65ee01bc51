"""A cross-encoder that reads query and passage together and orders the retriever's candidates anew (beyond the paper).

    n candidates by p(z|x)  ->  the n_docs with the largest  f(x, z)          f: a sequence-classification checkpoint

f is the logit of a model with one label, and log-odds, logit 1 - logit 0, of one with two. What the model sums over is
then p(z|x) = softmax of f over the n_docs (`logits="reranker"`; no gradient reaches q), or the retriever's own p(z|x)
over the passages that the reranker chose (`logits="retriever"`; q is trained as before).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ragx.errors import CheckpointError, ConfigError, ShapeError
from ragx.filters import PassageFilter
from ragx.protocols import Retriever
from ragx.records import Passage, Retrieved
from ragx.retriever.by_question import joined
from ragx.retriever.given import GivenRetriever

LOGITS = ("reranker", "retriever")
_DEFAULT_MAX_LENGTH = 512


class CrossEncoder:
    """f(x, z): frozen, in eval mode."""

    def __init__(self, model: Any, tokenizer: Any, *, max_length: int, batch_size: int = 32) -> None:
        if model.config.num_labels not in (1, 2):
            raise ConfigError([f"reranker must have one label or two, got {model.config.num_labels}. Use a ranker."])
        if batch_size < 1:
            raise ConfigError([f"reranker.batch_size must be >= 1, got {batch_size}."])
        self._model, self._tokenizer = model.eval().requires_grad_(False), tokenizer
        self._max_length, self._batch_size = max_length, batch_size

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | Path, *, max_length: int | None = None, batch_size: int = 32
    ) -> CrossEncoder:
        """Loads any sequence-classification folder or hub name of Hugging Face.

        Args:
            max_length: tokens of query and passage together, the longer of the two is cut first; None takes what the
                tokenizer says, at most 512.
            batch_size: pairs scored at a time.

        Raises:
            CheckpointError: nothing there, or weights missing: a head that would have been random.
            ConfigError: more than two labels, or `max_length` beyond the model.
        """
        name = str(path_or_name)
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model, info = AutoModelForSequenceClassification.from_pretrained(
                name, dtype=torch.float32, output_loading_info=True
            )
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(
                f"reranker must be a folder or hub name with config, tokenizer and weights, got {name}. "
                f"{str(error).splitlines()[0]}"
            ) from error
        missing = sorted(info["missing_keys"])
        if missing:
            raise CheckpointError(
                f"reranker must hold every weight of {type(model).__name__}, got {name} without "
                f"{', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}. They would have been random."
            )
        limit = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 1 << 30)
        if max_length is not None and max_length > limit:
            raise ConfigError([f"reranker.max_length must be at most the model's {limit}, got {max_length}."])
        return cls(model, tokenizer, max_length=max_length or min(limit, _DEFAULT_MAX_LENGTH), batch_size=batch_size)

    def to(self, device: torch.device | str) -> CrossEncoder:
        """Moves the weights and returns itself."""
        self._model.to(device)
        return self

    def scores(self, queries: Sequence[str], passages: Sequence[Passage]) -> np.ndarray:
        """f(x, z) of N pairs, (N,) float32.

        Raises:
            ShapeError: a score that is not finite (the passage is named).
        """
        found = np.empty(len(queries), dtype=np.float32)
        # Pairs of like length go together, so that little of a batch is padding.
        order = sorted(range(len(queries)), key=lambda n: len(passages[n].text))
        with torch.inference_mode():
            for start in range(0, len(order), self._batch_size):
                rows = order[start : start + self._batch_size]
                texts = [f"{passages[n].title}\n{passages[n].text}".lstrip("\n") for n in rows]
                inputs = self._tokenizer(
                    [queries[n] for n in rows], texts, truncation=True, max_length=self._max_length, padding=True,
                    return_tensors="pt",
                )  # fmt: skip
                logits = self._model(**inputs.to(self._model.device)).logits.float().cpu().numpy()
                found[rows] = logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)
        bad = np.flatnonzero(~np.isfinite(found))
        if bad.size:
            key = tuple(passages[bad[0]].key)
            raise ShapeError(f"reranker scores must be finite, got NaN or infinity for {key}. Check its weights.")
        return found

    def fingerprint(self) -> str:
        """sha256 over everything that decides a score: weights, tokenizer and `max_length`."""
        digest = hashlib.sha256(json.dumps([type(self._model).__name__, self._max_length]).encode())
        for name, tensor in sorted(self._model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        digest.update(json.dumps(self._tokenizer.get_vocab(), sort_keys=True).encode())
        return digest.hexdigest()


class RerankedRetriever:
    """The best of another retriever's candidates by a cross-encoder; implements `ragx.protocols.Retriever`.

    Args:
        retriever: finds the candidates; public, so that the ranking before can be looked at.
        cross_encoder: orders them.
        candidates: how many it reads for a query; n_docs where that is more, the corpus where that is less.
        logits: one of `LOGITS`.

    Raises:
        ConfigError: `candidates` or `logits`.
    """

    def __init__(
        self, retriever: Retriever, cross_encoder: CrossEncoder, *, candidates: int = 50, logits: str = "reranker"
    ) -> None:
        problems = []
        if candidates < 1:
            problems.append(f"reranker.candidates must be >= 1, got {candidates}.")
        if logits not in LOGITS:
            problems.append(f"reranker.logits must be one of {', '.join(LOGITS)}, got {logits!r}.")
        if problems:
            raise ConfigError(problems)
        self.retriever, self._cross_encoder = retriever, cross_encoder
        self._candidates, self._logits, self._weights = candidates, logits, cross_encoder.fingerprint()

    @property
    def fingerprint(self) -> str:
        """Identifies the retriever (as it is now), the cross-encoder and how it is used."""
        return self._over(self.retriever.fingerprint)

    @property
    def manifest(self) -> Any:
        """Of the retriever's index; None where it has none."""
        return getattr(self.retriever, "manifest", None)

    @property
    def edition(self) -> str | None:
        """Name of the corpus state, where the retriever has one."""
        return getattr(self.retriever, "edition", None)

    def retrieve(
        self,
        queries: Sequence[str],
        n_docs: int,
        *,
        query_embeds: Tensor | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> Retrieved:
        """The `n_docs` candidates that the cross-encoder ranks first, ties in the retriever's order.

        Arguments and errors as of the retriever.
        """
        if n_docs < 1:
            raise ConfigError([f"n_docs must be >= 1, got {n_docs}."])
        groups: dict[int, list[int]] = {}
        for place, count in enumerate(self._available(queries, passage_filter)):
            groups.setdefault(max(n_docs, min(self._candidates, count)), []).append(place)
        parts = []
        for fetch, places in groups.items():
            some = [queries[place] for place in places]
            embeds = None if query_embeds is None else query_embeds[torch.tensor(places)]
            found = self.retriever.retrieve(some, fetch, query_embeds=embeds, passage_filter=passage_filter)
            parts.append((places, self._ranked(some, found, n_docs)))
        return parts[0][1] if len(parts) == 1 else joined(queries, parts)

    def _available(self, queries: Sequence[str], passage_filter: PassageFilter | None) -> list[int]:
        """How many passages there are to choose candidates from, for each query."""
        if isinstance(self.retriever, GivenRetriever):
            return [self.retriever.how_many(query, passage_filter) for query in queries]
        return [len(self.retriever)] * len(queries)  # type: ignore[arg-type]

    def _over(self, fingerprint: str) -> str:
        """Of this reranker over what `fingerprint` identifies: an answer is labelled by the index that gave it."""
        named = [fingerprint, self._weights, self._candidates, self._logits]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()

    def _ranked(self, queries: Sequence[str], found: Retrieved, n_docs: int) -> Retrieved:
        width = len(found.passages[0])
        asked = [query for query in queries for _ in range(width)]
        scores = self._cross_encoder.scores(asked, [p for row in found.passages for p in row]).reshape(-1, width)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :n_docs]
        kept = replace(
            found,
            passages=[[row[z] for z in places] for row, places in zip(found.passages, order, strict=True)],
            rows=np.take_along_axis(found.rows, order, 1),
            doc_scores=np.take_along_axis(found.doc_scores, order, 1),
            index_fingerprint=self._over(found.index_fingerprint),
        )
        if self._logits == "reranker":
            return replace(kept, doc_scores=np.take_along_axis(scores, order, 1), doc_embeds=None, doc_offsets=None)
        embeds, offsets = found.doc_embeds, found.doc_offsets
        return replace(
            kept,
            doc_embeds=None if embeds is None else np.take_along_axis(embeds, order[..., None], 1),
            doc_offsets=None if offsets is None else np.take_along_axis(offsets, order, 1),
        )
