"""An index changed by passage: what goes is gone at once, what stays is not encoded again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ragx import atomic
from ragx.errors import ConfigError, DataError, IndexMismatchError
from ragx.records import Passage, PassageKey
from ragx.retriever import editing
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.corpus_encoding import Alone
from ragx.retriever.corpus_store import on_disk
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.editing import delete_passages, extend_index
from ragx.retriever.edition import Edition
from ragx.retriever.importing import Vectors, import_index
from ragx.retriever.kinds import KINDS
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.tower import Tower


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is encoded while the test runs."""
    texts: list[str] = []
    tokenize = Tower.tokenize

    def noted(tower: Tower, titles: list[str], pairs: list[str]) -> list[list[int]]:
        texts.extend(pairs)
        return tokenize(tower, titles, pairs)

    monkeypatch.setattr(Tower, "tokenize", noted)
    return texts


def sources(directory: Path) -> list[str]:
    return [passage.source for passage in Edition.open(directory).remaining()]


def test_a_passage_is_named_by_its_source_or_its_whole_key(build: Callable[..., Path], passages: list[Passage]) -> None:
    """A source with @ and # in it is found all the same; names are checked before anything goes."""
    corpus = [*passages, Passage("a@b#c", "1", "0", "", "Lima"), Passage("a@b#c", "2", "1", "", "Paris")]
    folder = build(corpus)
    with pytest.raises(DataError, match=r"delete must name passages of the index, got 'x@2016-12#9'. Give a source"):
        delete_passages(folder, ["7", "x@2016-12#9"])
    assert sources(folder) == [passage.source for passage in corpus]
    assert delete_passages(folder, ["7", "x@2016-12#0", "a@b#c@2#1"]) == 3
    assert sources(folder) == ["wiki:1", "wiki:3", "-1", "ü b", "a@b#c"]
    assert delete_passages(folder, ["a@b#c", "7"]) == 1  # the other version; 7 is gone already
    assert delete_passages(folder, ["7"]) == 0 and sources(folder) == ["wiki:1", "wiki:3", "-1", "ü b"]


@pytest.mark.parametrize("kind", ["flat", "hnsw", "sq"])
def test_new_and_changed_text_alone_is_encoded(
    kind: str, build: Callable[..., Path], passages: list[Passage], encoder: PassageEncoder, encoded: list[str]
) -> None:
    """One is deleted, one gets a new version with its text, one another text, one is new: the rest keeps its bytes."""
    folder = build(passages, kind=kind, storage="fp16")
    before = Edition.open(folder).index.embeddings.array.copy()
    delete_passages(folder, ["x"])
    replaced = [dataclasses.replace(passages[0], version="2018-12"),
                Passage("7", "2018-12", "0", "France", "Paris since 2018")]  # fmt: skip
    new = Passage("new", "2018-12", "0", "Brazil", "The Amazon is a river")
    encoded.clear()
    manifest = extend_index(folder, added=[new], replaced=replaced, edition="2018-12", passage_encoder=encoder)
    assert sorted(encoded) == ["Paris since 2018", "The Amazon is a river"]
    edition = Edition.open(folder, verify_hashes=True)
    assert list(edition.passages) == [*passages[3:], *replaced, new] and not edition.deleted
    assert (manifest.edition, manifest.kind, manifest.storage) == ("2018-12", kind, "fp16")
    np.testing.assert_array_equal(edition.index.embeddings.array[[0, 1, 2, 3]], before[[3, 4, 5, 0]])
    edition.require_encoder(encoder)
    found = DenseRetriever.open(folder).retrieve(["a"], 6, query_embeds=torch.ones(1, 16)).passages[0]
    assert {passage.source for passage in found} == {"wiki:3", "-1", "ü b", "wiki:1", "7", "new"}
    assert sorted(entry.name for entry in folder.parent.iterdir()) == ["index"]


def test_bm25_is_edited_without_an_encoder(passages: list[Passage], tmp_path: Path) -> None:
    folder = tmp_path / "words"
    BM25Retriever.build(passages, folder, edition="2016-12", k1=0.9, b=0.4)
    running = BM25Retriever.open(folder)
    assert delete_passages(folder, ["7"]) == 1
    assert "7" not in {p.source for p in BM25Retriever.open(folder).retrieve(["Paris France"], 5).passages[0]}
    manifest = extend_index(folder, added=[Passage("new", "2018-12", "0", "", "Paris Paris")])
    found = BM25Retriever.open(folder)
    assert [p.source for p in found.retrieve(["paris"], 1).passages[0]] == ["new"] and len(found) == len(running)
    assert {name: manifest.parameters[name] for name in ("k1", "b")} == {"k1": 0.9, "b": 0.4}


def test_a_deletion_made_while_it_is_built_is_kept(
    build: Callable[..., Path], passages: list[Passage], encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, build_index = build(passages), editing.build_index
    serving = DenseRetriever.open(folder)

    def meanwhile(*arguments: object, **options: object) -> object:
        serving.delete([passages[1].key])
        return build_index(*arguments, **options)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(editing, "build_index", meanwhile)
    extend_index(folder, added=[Passage("new", "1", "0", "", "Lima")], passage_encoder=encoder)
    assert sources(folder) == ["wiki:1", "x", "wiki:3", "-1", "ü b", "new"]


def test_a_deletion_made_while_it_is_put_in_its_place_is_kept(
    build: Callable[..., Path], passages: list[Passage], encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every flush to disk that comes before the renames one more is deleted."""
    folder, sync = build(passages), atomic._sync
    left = [passage.source for passage in passages[:3]]

    def meanwhile(path: Path) -> None:
        if path.name in ("manifest.json", "embeddings.npy") and ".edited" not in str(path) and left:
            delete_passages(folder, [left.pop()])
        sync(path)

    monkeypatch.setattr(atomic, "_sync", meanwhile)
    extend_index(folder, added=[Passage("new", "1", "0", "", "Lima")], passage_encoder=encoder)
    assert left == ["wiki:1"] and sources(folder) == ["wiki:1", "wiki:3", "-1", "ü b", "new"]


def test_a_second_edit_is_refused_and_the_first_goes_on(
    build: Callable[..., Path], passages: list[Passage], encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, build_index = build(passages), editing.build_index

    def meanwhile(*arguments: object, **options: object) -> object:
        with pytest.raises(ConfigError, match="index.directory must be edited by one process at a time, got a second"):
            extend_index(folder, added=[Passage("other", "1", "0", "", "Paris")], passage_encoder=encoder)
        return build_index(*arguments, **options)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(editing, "build_index", meanwhile)
    extend_index(folder, added=[Passage("new", "1", "0", "", "Lima")], passage_encoder=encoder)
    assert sources(folder)[-2:] == ["ü b", "new"]
    assert [entry.name for entry in folder.parent.iterdir()] == ["index"]


def test_what_is_built_behind_a_link_lies_on_its_disk(
    build: Callable[..., Path],
    passages: list[Passage],
    encoder: PassageEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FAULTS D3: nothing is made beside the link, whose disk may be another and small."""
    (tmp_path / "link").symlink_to(tmp_path / "big" / "index")
    (tmp_path / "big").mkdir()
    seen: set[str] = set()
    right = Tower.tokenize

    def noted(*arguments: object) -> object:
        seen.update(str(entry.relative_to(tmp_path)) for entry in tmp_path.glob("*"))
        seen.update(str(entry.relative_to(tmp_path)) for entry in (tmp_path / "big").glob(".*"))
        return right(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Tower, "tokenize", noted)
    with on_disk(passages, tmp_path / "link", processes=Alone()) as corpus:
        build(corpus, "link")  # type: ignore[arg-type]
    extend_index(tmp_path / "link", added=[Passage("new", "1", "0", "", "Lima")], passage_encoder=encoder)
    vectors = Vectors("v", None, np.eye(6, 16, dtype=np.float32))

    def parts() -> Iterator[Vectors]:
        assert {entry.name for entry in tmp_path.iterdir()} == {"big", "link"}
        yield vectors

    import_index(passages, parts(), directory=tmp_path / "link", edition="1", passage_encoder=None)
    assert {name for name in seen if "/" not in name} == {"big", "link"}
    assert {"big/.index.encoding", "big/.index.passages"} <= seen
    assert (tmp_path / "link").is_symlink() and [entry.name for entry in (tmp_path / "big").iterdir()] == ["index"]


def test_what_cannot_be_leaves_the_index_as_it_is(
    build: Callable[..., Path],
    passages: list[Passage],
    encoder: PassageEncoder,
    checkpoint: Callable[..., Path],
) -> None:
    folder = build(passages)
    before = Edition.open(folder).fingerprint
    new = [Passage("new", "1", "0", "", "Lima")]
    with pytest.raises(ConfigError, match="passage_encoder must be given to add text to an index of vectors, got none"):
        extend_index(folder, added=new)
    with pytest.raises(DataError, match=r"identity must be unique, got \('7', '2016-12', '0'\) a second time"):
        extend_index(folder, added=[passages[1]], passage_encoder=encoder)
    other = PassageEncoder.from_pretrained(checkpoint("context", 3))
    with pytest.raises(IndexMismatchError, match="encoder_fingerprint must agree"):
        extend_index(folder, added=new, passage_encoder=other)
    assert Edition.open(folder, verify_hashes=True).fingerprint == before
    assert sorted(entry.name for entry in folder.parent.iterdir()) == ["index"]


def test_an_index_imported_without_its_encoder_deletes_and_does_not_grow(
    build: Callable[..., Path], passages: list[Passage], encoder: PassageEncoder, tmp_path: Path
) -> None:
    vectors = Vectors("v", None, np.eye(6, 16, dtype=np.float32))
    import_index(passages, [vectors], directory=tmp_path / "foreign", edition="1", passage_encoder=None)
    assert delete_passages(tmp_path / "foreign", ["x"]) == 1
    with pytest.raises(ConfigError, match="got one that was imported without. Import it again with the new vectors"):
        extend_index(tmp_path / "foreign", added=[Passage("n", "1", "0", "", "a")], passage_encoder=encoder)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_build_repeated_gives_the_same_bytes(kind: str, build: Callable[..., Path], passages: list[Passage]) -> None:
    """Every file of the folder, the manifest among them, for every kind there is (F5)."""
    contents = []
    for name in ("first", "second"):
        folder = build(passages, name, kind=kind)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        contents.append({str(file.relative_to(folder)): file.read_bytes() for file in files})
    assert contents[0] == contents[1] and "manifest.json" in contents[0]


def test_keys_of_a_source(build: Callable[..., Path], passages: list[Passage]) -> None:
    store = Edition.open(build([*passages, Passage("7", "2018-12", "0", "", "a")])).passages
    assert store.keys_of(["7", "nobody"]) == [PassageKey("7", "2016-12", "0"), PassageKey("7", "2018-12", "0")]
