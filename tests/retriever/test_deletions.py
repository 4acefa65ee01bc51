"""A deleted passage is gone at once and for good; what is added costs the encoding of its text alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, DataError, IndexMismatchError
from ragx.records import Passage, PassageKey
from ragx.retriever import deletions
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.edition import Edition
from ragx.retriever.kinds import KINDS
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.tower import Tower

ASK = {"query_embeds": torch.ones(1, 16)}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_deleted_passage_is_gone_at_once(build: Callable[..., Path], passages: list[Passage], kind: str) -> None:
    """From the running retriever, from those opened later, from the index of two deletions; the files stay as built."""
    folder = build(passages, kind=kind)
    retriever, other = DenseRetriever.open(folder), DenseRetriever.open(folder)
    before = retriever.fingerprint
    first = retriever.retrieve(["a"], 6, **ASK).passages[0]  # type: ignore[arg-type]
    retriever.delete([first[0].key])
    assert retriever.retrieve(["a"], 6, **ASK).passages[0] == first[1:] and len(retriever) == 5  # type: ignore[arg-type]
    other.delete([first[2].key])  # was opened before the other deletion, and does not undo it
    assert len(other) == 4  # but takes it over
    again = DenseRetriever.open(folder)
    assert again.retrieve(["a"], 6, **ASK).passages[0] == [first[1], *first[3:]] and len(again) == 4  # type: ignore[arg-type]
    assert other.fingerprint == again.fingerprint  # both are the folder as it is
    assert len({before, retriever.fingerprint, again.fingerprint}) == 3
    assert again.manifest.fingerprint == before  # nothing that was built has changed
    with pytest.raises(DataError, match=r"keys must be of passages of edition 2016-12, got \('x', '2018-12', '0'\)"):
        again.delete([first[1].key, PassageKey("x", "2018-12", "0")])
    assert len(again) == 4
    for passage in [first[1], *first[3:]]:
        again.delete([passage.key])
    with pytest.raises(ConfigError, match="filter and deletions must leave at least one of the 6 passages, got none"):
        again.retrieve(["a"], 1, **ASK)  # type: ignore[arg-type]


def test_a_deletion_that_cannot_be_read_closes_the_index(build: Callable[..., Path], passages: list[Passage]) -> None:
    folder = build(passages)
    DenseRetriever.open(folder).delete([passages[0].key])
    file = next((folder / "deleted").iterdir())
    file.write_text(file.read_text()[:-5])
    with pytest.raises(IndexMismatchError, match=r"must be a list of \[source, version, chunk\]"):
        DenseRetriever.open(folder)


def test_a_build_tells_what_becomes_of_deletions(
    build: Callable[..., Path], passages: list[Passage], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = build(passages)
    BM25Retriever.build(passages, tmp_path / "words", edition="1")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    for place in (folder, tmp_path / "words"):
        deletions.add(place, [passages[0].key])
    build(passages, reuse=True)
    assert "1 passages stay deleted from the index in" in caplog.text and len(DenseRetriever.open(folder)) == 5
    caplog.clear()
    build(passages)
    assert "1 deletions from the index in" in caplog.text and len(DenseRetriever.open(folder)) == 6
    caplog.clear()
    BM25Retriever.build(passages, tmp_path / "words", edition="1")
    assert "1 deletions from the index in" in caplog.text and len(BM25Retriever.open(tmp_path / "words")) == 6


@pytest.mark.parametrize("content", ["[[1, 2, 3]]", '["abc"]', "{}", '[["s1", "1", 0]]', '[["s1", "1"]]', "null", "{"])
def test_what_is_no_list_of_keys_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "deleted").mkdir()
    (tmp_path / "deleted" / "a.json").write_text(content)
    with pytest.raises(
        IndexMismatchError, match=r"a.json must be a list of \[source, version, chunk\], got: .*Build it"
    ):
        deletions.read(tmp_path)


def test_only_new_text_is_encoded(
    build: Callable[..., Path],
    passages: list[Passage],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """One is added, one deleted, one re-versioned with its text and one with another: the bytes of the rest stay."""
    old = build(passages, storage="bf16")
    corpus = [
        passages[3],
        dataclasses.replace(passages[0], version="2018-12"),
        Passage("new", "2018-12", "0", "Brazil", "The Amazon is a river"),
        Passage(passages[1].source, "2018-12", "0", passages[1].title, "Paris since 2018"),
        *passages[4:],
    ]
    whole = build(corpus, "whole", edition="2018-12", storage="bf16")
    encoded: list[str] = []
    tokenize = Tower.tokenize

    def noted(tower: Tower, titles: list[str], texts: list[str]) -> list[list[int]]:
        encoded.extend(texts)
        return tokenize(tower, titles, texts)

    monkeypatch.setattr(Tower, "tokenize", noted)
    new = build(corpus, "new", edition="2018-12", storage="bf16", vectors_from=old)
    assert sorted(encoded) == ["Paris since 2018", "The Amazon is a river"]
    vectors = {name: Edition.open(tmp_path / name).index.embeddings for name in ("index", "new", "whole")}
    kept = vectors["new"].array[[0, 1, 4, 5]]
    np.testing.assert_array_equal(kept, vectors["index"].array[[3, 0, 4, 5]])
    np.testing.assert_allclose(vectors["new"].rows(slice(None)), vectors["whole"].rows(slice(None)), atol=0.02)
    assert list(DenseRetriever.open(new).passages) == corpus
    assert Manifest.read(new).passages_fingerprint == Manifest.read(whole).passages_fingerprint
    encoded.clear()
    build(corpus[::-1], "again", vectors_from=new, storage="bf16")  # nothing is new
    assert encoded == [] and sorted(entry.name for entry in tmp_path.iterdir()) == ["again", "index", "new", "whole"]


def test_an_index_may_take_its_own_vectors(build: Callable[..., Path], passages: list[Passage]) -> None:
    folder = build(passages)
    DenseRetriever.open(folder).delete([passages[0].key])
    running = DenseRetriever.open(folder)
    build(passages[1:], vectors_from=folder)
    assert list(DenseRetriever.open(folder).passages) == passages[1:]
    running.swap(folder)
    assert len(running) == 5 and not (folder / "deleted").exists()


def test_vectors_of_another_encoder_or_storage_are_not_taken(
    build: Callable[..., Path], checkpoint: Callable[..., Path], passages: list[Passage]
) -> None:
    other = PassageEncoder.from_pretrained(checkpoint("context", 1))
    old = build(passages)
    with pytest.raises(IndexMismatchError, match="encoder_fingerprint must agree"):
        build(passages, "new", passage_encoder=other, vectors_from=old)
    with pytest.raises(IndexMismatchError, match=r"storage must agree(.|\n)*asked: fp16\n  index: fp32"):
        build(passages, "new", storage="fp16", vectors_from=old)
