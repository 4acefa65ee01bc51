"""A flat index that several Ray actors share (extra `ray`), on one machine or many; results are those of one index.

    shard s of S   rows  [s N / S, (s + 1) N / S)  of embeddings.npy, mapped where the actor runs

Each actor hands back its best candidates; `VectorIndex` scores the candidates of all again and orders them, as it does
without shards, so rows, scores and ties are the same bit for bit. A shard is a range of rows and no file: nothing can
be joined in another order or be left over from an earlier run. An actor that dies is started again; it opens the very
index of the first or refuses, so an answer never mixes two editions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ragx.errors import ConfigError
from ragx.retriever.allowed import Allowed
from ragx.retriever.edition import EMBEDDINGS_FILE, Edition
from ragx.retriever.exact import FlatSearcher
from ragx.retriever.index import VectorIndex
from ragx.retriever.ray_actors import Actors, import_ray
from ragx.retriever.ray_shard import Shard

TIMEOUT_S = 120.0


class ShardedSearcher:
    """Exact search by actors; takes the place of a `FlatSearcher`.

    Args:
        edition: whose vectors are searched.
        shards: actors; never more than rows.
        timeout_s: seconds in which each must start, and answer.
        options: of Ray for each actor.

    Raises:
        ConfigError: `shards` below 1, an index that is not flat, or no Ray.
        RagxError: an actor did not start.
    """

    tolerance = FlatSearcher.tolerance

    def __init__(
        self,
        edition: Edition,
        *,
        shards: int,
        timeout_s: float = TIMEOUT_S,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if shards < 1:
            raise ConfigError([f"shards must be >= 1, got {shards}. Leave them out to search in this process."])
        if edition.manifest.kind != "flat":
            got = f"{edition.manifest.kind} in {edition.directory}"
            raise ConfigError([f"index.kind must be flat to be searched in shards, got {got}. Build another."])
        count = edition.manifest.count
        shards = min(shards, count)
        edges = [count * shard // shards for shard in range(shards + 1)]
        self._ranges = list(pairwise(edges))
        file, fingerprint = str(edition.directory.resolve() / EMBEDDINGS_FILE), edition.manifest.fingerprint
        arguments = [(file, fingerprint, start, stop) for start, stop in self._ranges]
        self._ray = import_ray()
        self._actors = Actors(Shard, arguments, name="shard", timeout_s=timeout_s, options=options)
        self._masks: WeakKeyDictionary[Allowed, list[Any]] = WeakKeyDictionary()

    def candidates(self, queries: np.ndarray, fetch: int, allowed: Allowed | None) -> tuple[np.ndarray, np.ndarray]:
        """Float32 scores and rows, both (B, fetch), best first, ties by row; row -1 where there are no more."""
        query = self._ray.put(queries)
        found = self._actors.call("candidates", [(query, fetch, mask) for mask in self._masks_of(allowed)])
        scores, rows = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
        kept = np.argsort(-scores, axis=1, kind="stable")[:, :fetch]  # shards come in the order of their rows
        return np.take_along_axis(scores, kept, 1), np.take_along_axis(rows, kept, 1)

    def _masks_of(self, allowed: Allowed | None) -> list[Any]:
        """For each shard its part of the mask, sent once for each filter."""
        if allowed is None:
            return [None] * len(self._ranges)
        if allowed not in self._masks:
            self._masks[allowed] = [self._ray.put(allowed.mask[start:stop]) for start, stop in self._ranges]
        return self._masks[allowed]


def open_sharded(
    directory: str | Path,
    *,
    shards: int,
    verify_hashes: bool | None = None,
    timeout_s: float = TIMEOUT_S,
    options: Mapping[str, Any] | None = None,
) -> Edition:
    """As `Edition.open`, searched by actors; the folder must be at the same path wherever one of them runs.

    Raises:
        IndexMismatchError, ConfigError, RagxError: as `Edition.open` and `ShardedSearcher`.
    """
    edition = Edition.open(directory, verify_hashes=verify_hashes)
    searcher = ShardedSearcher(edition, shards=shards, timeout_s=timeout_s, options=options)
    index = VectorIndex(edition.index.embeddings, kind="flat", parameters={}, exact=searcher)
    return Edition(edition.directory, edition.manifest, edition.passages, index, edition.deleted)
