"""Vectors that somebody else made: each in the row of its passage, or no index at all (FAULTS C7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragx.errors import DataError, IndexMismatchError
from ragx.records import Passage
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.importing import Vectors, import_index
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder


@pytest.fixture
def vectors(encoder: PassageEncoder, passages: list[Passage]) -> np.ndarray:
    return encoder.encode(passages)


@pytest.fixture
def shards(passages: list[Passage], vectors: np.ndarray) -> list[Vectors]:
    """Two shards in another order than the passages', ids with a prefix."""
    order = [3, 0, 5, 1, 4, 2]
    named = [(f"wiki:{passages[row].source}", vectors[row]) for row in order]
    return [
        Vectors(f"shard_{n}.pkl", [name for name, _ in part], np.stack([vector for _, vector in part]), f"note {n}")
        for n, part in enumerate((named[:4], named[4:]))
    ]


@pytest.fixture
def load(tmp_path: Path, passages: list[Passage]) -> Callable[..., Manifest]:
    def run(parts: Iterable[Vectors], encoder: PassageEncoder | None, **options: Any) -> Manifest:
        settings = {"directory": tmp_path / "index", "edition": "2016-12", "id_prefix": "wiki:", **options}
        return import_index(iter(passages), parts, passage_encoder=encoder, **settings)

    return run


def test_it_is_the_index_that_the_encoder_would_have_given(
    load: Callable[..., Manifest],
    shards: list[Vectors],
    encoder: PassageEncoder,
    passages: list[Passage],
    tmp_path: Path,
) -> None:
    manifest = load(iter(shards), encoder)
    build_index(passages, passage_encoder=encoder, directory=tmp_path / "own", edition="2016-12", progress=False)
    assert (tmp_path / "index/embeddings.npy").read_bytes() == (tmp_path / "own/embeddings.npy").read_bytes()
    own = Manifest.read(tmp_path / "own")
    assert manifest.encoder_fingerprint == own.encoder_fingerprint
    assert manifest.encoder["vectors"] == {"shard_0.pkl": "note 0", "shard_1.pkl": "note 1"}
    retriever = DenseRetriever.open(tmp_path / "index", passage_encoder=encoder)
    vectors = encoder.encode(passages)
    found = retriever.retrieve([p.text for p in passages], 6, query_embeds=torch.from_numpy(vectors))
    best = (vectors @ vectors.T).argmax(1)
    assert [row[0].key for row in found.passages] == [passages[place].key for place in best]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "own"]  # nothing is left beside them


@pytest.mark.parametrize(("storage", "kind"), [("fp16", "flat"), ("bf16", "flat"), ("fp32", "hnsw")])
def test_any_storage_and_kind(
    load: Callable[..., Manifest], shards: list[Vectors], encoder: PassageEncoder, storage: str, kind: str
) -> None:
    manifest = load(shards, encoder, storage=storage, kind=kind)
    assert (manifest.storage, manifest.kind, manifest.count) == (storage, kind, 6)


def test_rows_without_ids_are_the_passages_in_order(
    load: Callable[..., Manifest], vectors: np.ndarray, encoder: PassageEncoder, tmp_path: Path
) -> None:
    load([Vectors("embeddings", None, vectors[:2]), Vectors("embeddings", None, vectors[2:])], encoder)
    np.testing.assert_array_equal(np.load(tmp_path / "index" / "embeddings.npy", allow_pickle=False), vectors)


def without(shards: list[Vectors], row: int) -> list[Vectors]:
    first = shards[0]
    kept = [n for n in range(len(first.vectors)) if n != row]
    assert first.ids is not None
    return [first._replace(ids=[first.ids[n] for n in kept], vectors=first.vectors[kept]), shards[1]]


@pytest.mark.parametrize("row", range(4))
def test_one_vector_too_few_is_refused_wherever_it_is_missing(
    load: Callable[..., Manifest], shards: list[Vectors], encoder: PassageEncoder, tmp_path: Path, row: int
) -> None:
    """FAULTS C7: 21,015,300 vectors for 21,015,324 passages."""
    assert shards[0].ids is not None
    name = shards[0].ids[row].removeprefix("wiki:")
    message = f"vectors must be there for every passage, got none for 1 of 6 passages, the first '{name}'"
    with pytest.raises(DataError, match=message):
        load(without(shards, row), encoder)
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_together_is_named(
    load: Callable[..., Manifest], shards: list[Vectors], vectors: np.ndarray, encoder: PassageEncoder, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="shard_0.pkl: id must be in the passages, got 'wiki:wiki:3'.* or id_prefix"):
        load(shards, encoder, id_prefix="")
    with pytest.raises(DataError, match="shard_0.pkl: id must be there once, got .* again. Give each shard once"):
        load([shards[0], *shards], encoder)
    with pytest.raises(DataError, match="shard_1.pkl: vectors must be of one length, got 3 after vectors of length 16"):
        load([shards[0], shards[1]._replace(vectors=shards[1].vectors[:, :3])], encoder)
    with pytest.raises(DataError, match="embeddings: vectors must be as many as the passages, 6, got more"):
        load([Vectors("embeddings", None, vectors), Vectors("embeddings", None, vectors[:1])], encoder)
    with pytest.raises(DataError, match="vectors must be there for every passage, got none for 6 of 6"):
        load([], encoder)
    broken = vectors.copy()
    broken[2, 3] = np.nan
    with pytest.raises(DataError, match="embeddings: vectors must be finite, got NaN or infinity for 'x'"):
        load([Vectors("embeddings", None, broken)], encoder)
    assert not list(tmp_path.iterdir())


def test_another_encoder_of_the_same_size_is_refused(
    load: Callable[..., Manifest], shards: list[Vectors], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """FAULTS C8: five passages are encoded again."""
    other = PassageEncoder.from_pretrained(checkpoint("context", seed=9))
    with pytest.raises(IndexMismatchError, match=r"vectors must be those of the passage encoder \(cosine >= 0.999\)"):
        load(shards, other)
    smaller = PassageEncoder.from_pretrained(checkpoint("projected"))
    with pytest.raises(IndexMismatchError, match="got 16 numbers a vector, of the encoder's 8. Name the encoder"):
        load(shards, smaller)
    assert not list(tmp_path.iterdir())


def test_without_an_encoder_the_vectors_are_their_own_name(
    load: Callable[..., Manifest], shards: list[Vectors], encoder: PassageEncoder, tmp_path: Path
) -> None:
    first = load(shards, None)
    assert first.encoder_fingerprint.startswith("imported:")
    assert load(shards, None).encoder_fingerprint == first.encoder_fingerprint
    changed = [shards[0], shards[1]._replace(vectors=shards[1].vectors + 1)]
    assert load(changed, None).encoder_fingerprint != first.encoder_fingerprint
    assert DenseRetriever.open(tmp_path / "index").edition == "2016-12"
    with pytest.raises(IndexMismatchError, match="must agree with the index, got a mismatch"):
        DenseRetriever.open(tmp_path / "index", passage_encoder=encoder)


def test_an_index_that_is_there_stays_where_an_import_fails(
    load: Callable[..., Manifest], shards: list[Vectors], encoder: PassageEncoder, tmp_path: Path
) -> None:
    load(shards, encoder)
    before = (tmp_path / "index" / "embeddings.npy").read_bytes()
    with pytest.raises(DataError, match="vectors must be there for every passage"):
        load(shards[:1], encoder)
    assert (tmp_path / "index" / "embeddings.npy").read_bytes() == before
