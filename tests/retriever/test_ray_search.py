"""How shards are cut and joined, with actors of this process in the place of Ray's: runs where Ray is not installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, IndexMismatchError, RagxError
from ragx.filters import PassageFilter
from ragx.records import Passage
from ragx.retriever import ray_actors, ray_search
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.edition import Edition
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.ray_actors import import_ray
from ragx.retriever.ray_search import open_sharded
from ragx.retriever.ray_shard import Shard


class LocalActors:
    """`Actors` without Ray."""

    def __init__(self, worker: type, arguments: Sequence[tuple[Any, ...]], **options: Any) -> None:
        self.workers = [worker(*given) for given in arguments]
        for one in self.workers:
            one.ready()

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [getattr(one, method)(*given) for one, given in zip(self.workers, arguments, strict=True)]


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_search, "Actors", LocalActors)
    monkeypatch.setattr(ray_search, "import_ray", lambda: SimpleNamespace(put=lambda value: value))


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty passages of five texts: nothing but ties, within shards and across them; every seventh is for staff."""
    texts = ["lima", "paris city", "the river spree", "merkel leads germany", "europe"]
    corpus = [Passage(f"p{n}", "1", "0", "", texts[n * n % 5], acl=("staff",) if n % 7 == 3 else ()) for n in range(50)]
    target = tmp_path_factory.mktemp("shards") / "index"
    encoder = PassageEncoder.from_pretrained(checkpoint("context"))
    build_index(corpus, passage_encoder=encoder, directory=target, edition="1", progress=False)
    return target


@pytest.mark.parametrize("shards", [1, 2, 12, 50, 99])
@pytest.mark.parametrize("passage_filter", [None, PassageFilter(acl=())])
def test_any_number_of_shards_gives_what_one_index_gives(
    folder: Path, shards: int, passage_filter: PassageFilter | None
) -> None:
    """FAULTS D4 and C1: shards are ranges of rows, so twelve of them cannot be joined in another order."""
    single, sharded = DenseRetriever.open(folder), DenseRetriever(open_sharded(folder, shards=shards))
    queries = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    for n_docs in (1, 3, 20, 50):
        a, b = (
            r.retrieve([""] * 4, n_docs, query_embeds=queries, passage_filter=passage_filter) for r in (single, sharded)
        )
        assert a.rows.tolist() == b.rows.tolist() and a.passages == b.passages
        assert a.doc_scores.tobytes() == b.doc_scores.tobytes()
    expected = [row for row in range(50) if passage_filter is None or row % 7 != 3]
    assert sorted(b.rows[0].tolist()) == expected and (np.diff(b.doc_scores[0]) == 0).sum() >= 38


def test_a_shard_in_which_nothing_is_allowed_finds_nothing(folder: Path) -> None:
    shard = Shard(str(folder / "embeddings.npy"), Edition.open(folder).manifest.fingerprint, 3, 4)
    shard.ready()
    scores, rows = shard.candidates(np.ones((2, 16), np.float32), 5, np.array([False]))
    assert scores.shape == rows.shape == (2, 0)
    assert shard.candidates(np.ones((2, 16), np.float32), 5, None)[1].tolist() == [[3], [3]]


def test_a_shard_refuses_files_of_another_edition(folder: Path) -> None:
    """FAULTS D4: what is started again after the folder was replaced does not mix editions."""
    with pytest.raises(IndexMismatchError, match=r"fingerprint must agree with the index(.|\n)*asked: another"):
        Shard(str(folder / "embeddings.npy"), "another", 0, 5).ready()


def test_refusals(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="shards must be >= 1, got 0"):
        open_sharded(folder, shards=0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ConfigError, match=r"ray must be installed to use actors, got none. Run: pip install 'ragx\[ray\]'"
    ):
        import_ray()


def test_a_ray_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS D2: on a machine under load Ray gives up on its own node and raises a bare Exception."""

    def init(**_: Any) -> None:
        raise Exception("The current node timed out during startup.\nIt could be that")

    monkeypatch.setattr(ray_actors, "import_ray", lambda: SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(
        RagxError, match="^ray must start here, got: The current node timed out during startup. Run `ray"
    ):
        ray_actors.Actors(Shard, [()], name="shard", timeout_s=1)
