"""Row r is passage r, another encoder and files that changed are refused, results are the caller's."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, DataError, IndexMismatchError, ShapeError
from ragx.protocols import Retriever
from ragx.records import Passage
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.edition import Edition
from ragx.retriever.kinds import EXACT, KINDS
from ragx.retriever.manifest import Manifest, describe_files
from ragx.retriever.passage_encoder import PassageEncoder


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("seed", [0, 1])
def test_each_passage_finds_itself(
    build: Callable[..., Path], encoder: PassageEncoder, passages: list[Passage], kind: str, seed: int
) -> None:
    """FAULTS C1, C11, F6: ids of every form, shuffled; the vector of a passage brings back that id, title and text."""
    rng = np.random.default_rng(seed)
    shuffled = [passages[row] for row in rng.permutation(len(passages))]
    retriever = DenseRetriever.open(build(shuffled, kind=kind), passage_encoder=encoder)
    embeds = encoder.encode(shuffled)
    # The larger norm can win by inner product, so each is asked for by a query that only it is best for.
    centred = embeds - embeds.mean(0)
    queries = torch.tensor(np.linalg.pinv(centred).T if len(shuffled) > 1 else embeds)
    found = retriever.retrieve([p.title for p in shuffled], 3, query_embeds=queries)
    assert [row[0] for row in found.passages] == shuffled
    assert found.rows[:, 0].tolist() == list(range(len(shuffled)))


def test_ids_are_kept_to_the_letter(build: Callable[..., Path], passages: list[Passage]) -> None:
    """FAULTS F6: ids beyond 32 and 64 bits, with zeros in front; a number in place of a text is refused."""
    ids = ["2147483648", "18446744073709551617", "007", "7", "7.0", "1e3"]
    corpus = [dataclasses.replace(p, source=source) for p, source in zip(passages, ids, strict=True)]
    found = DenseRetriever.open(build(corpus)).retrieve(["a"], 6, query_embeds=torch.ones(1, 16))
    assert [corpus[row].source for row in found.rows[0]] == [passage.source for passage in found.passages[0]]
    assert sorted(passage.source for passage in found.passages[0]) == sorted(ids)
    number = dataclasses.replace(passages[0], source=7)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="identity must be three non-empty strings, got \\(7, '2016-12', '0'\\)"):
        build([number])


def test_what_is_retrieved(build: Callable[..., Path], encoder: PassageEncoder, passages: list[Passage]) -> None:
    retriever = DenseRetriever.open(build(passages))
    queries = torch.randn(4, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found = retriever.retrieve(["a", "b", "c", "d"], 3, query_embeds=queries)
    assert isinstance(retriever, Retriever)
    assert found.doc_embeds is not None
    np.testing.assert_allclose(found.doc_embeds, encoder.encode(passages)[found.rows], atol=1e-6)
    expected = np.einsum("bd,bkd->bk", queries.detach().numpy(), found.doc_embeds)
    np.testing.assert_allclose(found.doc_scores, expected, rtol=1e-5)
    assert (np.diff(found.doc_scores) <= 0).all()
    assert found.passages == [[passages[row] for row in rows] for rows in found.rows]
    assert found.index_fingerprint == retriever.fingerprint == retriever.manifest.fingerprint
    assert len(retriever) == 6 and retriever.edition == "2016-12"
    found.doc_embeds[:] = 0  # results belong to the caller
    again = retriever.retrieve(["a", "b", "c", "d"], 3, query_embeds=queries)
    assert again.doc_embeds is not None and np.abs(again.doc_embeds).sum() > 0
    assert again.doc_scores.tobytes() == found.doc_scores.tobytes()


def test_folder_and_bytes(build: Callable[..., Path], passages: list[Passage]) -> None:
    """FAULTS F5, F7: the same passages give the same folder, byte by byte."""
    for kind in KINDS:
        first, second = build(passages, f"{kind}-a", kind=kind), build(passages, f"{kind}-b", kind=kind)
        wanted = ["embeddings.npy", "index.faiss", "manifest.json", "passages"]
        if kind in (*EXACT, "ivf_pq"):  # six passages: a flat index takes the place of ivf_pq
            wanted.remove("index.faiss")
        assert sorted(p.name for p in first.iterdir()) == wanted
        assert describe_files(first) == describe_files(second)
        assert (first / "manifest.json").read_bytes() == (second / "manifest.json").read_bytes()
    embeddings = Edition.open(first).index.embeddings.array
    assert isinstance(embeddings, np.memmap) and not embeddings.flags.writeable
    assert sorted(p.name for p in first.parent.iterdir() if p.name.startswith(".")) == []


def test_building_and_searching_leave_the_encoder(
    build: Callable[..., Path], encoder: PassageEncoder, passages: list[Passage]
) -> None:
    before = encoder.fingerprint()
    folder = build(passages)
    files = describe_files(folder)
    DenseRetriever.open(folder).retrieve(["a"], 2, query_embeds=torch.ones(1, 16))
    assert encoder.fingerprint() == before == Manifest.read(folder).encoder_fingerprint
    assert describe_files(folder) == files


def test_reuse(
    build: Callable[..., Path],
    checkpoint: Callable[..., Path],
    passages: list[Passage],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = build(passages)
    built = (folder / "manifest.json").stat().st_mtime_ns
    with caplog.at_level(logging.INFO):
        build(passages, reuse=True)
    assert "reusing the index" in caplog.text
    assert (folder / "manifest.json").stat().st_mtime_ns == built
    changes: list[dict[str, object]] = [
        {"edition": "2018-12"},
        {"kind": "hnsw"},
        {"kind": "hnsw", "m": 4},
        {"passage_encoder": PassageEncoder.from_pretrained(checkpoint("context", 1))},
    ]
    for change in changes:
        fingerprint = Manifest.read(folder).fingerprint
        build(passages, reuse=True, **change)
        assert Manifest.read(folder).fingerprint != fingerprint
    build(passages[:4], reuse=True)
    assert len(DenseRetriever.open(folder)) == 4
    build(passages[:4], reuse=True, storage="bf16")
    assert Manifest.read(folder).storage == "bf16"
    (folder / "embeddings.npy").unlink()
    build(passages[:4], reuse=True, storage="bf16")
    assert "cannot be reused" in caplog.text and len(DenseRetriever.open(folder)) == 4


def test_another_encoder_is_refused(
    build: Callable[..., Path], checkpoint: Callable[..., Path], encoder: PassageEncoder, passages: list[Passage]
) -> None:
    """FAULTS C8, C3: the field that differs is named, with both sides and the command that rebuilds."""
    folder = build(passages)
    other = PassageEncoder.from_pretrained(checkpoint("context", 1))  # the same dimension, other weights
    differing = {
        other: f"encoder_fingerprint .*(.|\n)*asked: {other.fingerprint()}\n  index: {encoder.fingerprint()}",
        PassageEncoder.from_pretrained(checkpoint("context"), max_length=12): r"encoder.max_length .*\n  asked: 12\n",
        PassageEncoder.from_pretrained(checkpoint("bert")): r"encoder.architecture .*\n  asked: BertModel\n",
    }
    for encoder, message in differing.items():
        with pytest.raises(IndexMismatchError, match=message) as raised:
            DenseRetriever.open(folder, passage_encoder=encoder)
        assert f"python scripts/build_index.py data.passages=... index.directory={folder}" in str(raised.value)
    folder = build(passages, "bert", passage_encoder=PassageEncoder.from_pretrained(checkpoint("bert"), pooling="cls"))
    mean = PassageEncoder.from_pretrained(checkpoint("bert"), pooling="mean")
    with pytest.raises(IndexMismatchError, match=r"encoder.pooling must agree(.|\n)*asked: mean\n  index: cls\n"):
        DenseRetriever.open(folder, passage_encoder=mean)


def test_vectors_of_another_encoder_are_noticed(
    build: Callable[..., Path], checkpoint: Callable[..., Path], encoder: PassageEncoder, passages: list[Passage]
) -> None:
    """FAULTS C8: the manifest names the right encoder, the vectors are of one with the same dimension."""
    folder = build(passages)
    DenseRetriever.open(folder, passage_encoder=encoder)
    other = PassageEncoder.from_pretrained(checkpoint("context", 1))
    np.save(folder / "embeddings.npy", other.encode(passages))
    noted_anew(folder)
    with pytest.raises(IndexMismatchError, match=r"must be those of the passage encoder \(cosine >= 0.999\), got"):
        DenseRetriever.open(folder, passage_encoder=encoder)


def noted_anew(folder: Path, **changes: object) -> None:
    """What a careless tool would leave: the files changed and the hashes in the manifest brought up to date."""
    manifest = Manifest.read(folder)
    dataclasses.replace(manifest, files=describe_files(folder), **changes).write(folder)  # type: ignore[arg-type]


def test_rows_and_passages_that_do_not_match_are_refused(build: Callable[..., Path], passages: list[Passage]) -> None:
    """FAULTS C7: a vector lost in the middle is refused, at whatever depth it is hidden, and shifts no passage."""
    folder = build(passages, kind="hnsw")
    embeddings = np.load(folder / "embeddings.npy")
    np.save(folder / "embeddings.npy", np.delete(embeddings, 2, axis=0))
    with pytest.raises(IndexMismatchError, match="embeddings.npy: bytes must agree"):
        DenseRetriever.open(folder)
    noted_anew(folder)
    with pytest.raises(IndexMismatchError, match=r"asked: \(6, 16\)\n  index: \(5, 16\)"):
        DenseRetriever.open(folder)
    noted_anew(folder, storage="fp16")
    with pytest.raises(IndexMismatchError, match=r"must be float16 \(fp16\), got float32"):
        DenseRetriever.open(folder)
    noted_anew(folder, count=5, storage="fp32")
    with pytest.raises(IndexMismatchError, match="count must agree(.|\n)*asked: 6\n  index: 5"):
        DenseRetriever.open(folder)
    other = build(passages[:5], "other")
    shutil.rmtree(folder / "passages")
    shutil.copytree(other / "passages", folder / "passages")
    noted_anew(folder)
    with pytest.raises(IndexMismatchError, match="passages_fingerprint must agree"):
        DenseRetriever.open(folder)
    noted_anew(folder, passages_fingerprint=Manifest.read(other).passages_fingerprint)
    with pytest.raises(IndexMismatchError, match=r"must be \(5, 16\), got \(6, 16\)"):
        DenseRetriever.open(folder)


def test_a_changed_passage_is_noticed(build: Callable[..., Path], passages: list[Passage]) -> None:
    """FAULTS C11: the text was changed after the build."""
    folder = build(passages)
    data = folder / "passages" / "data-00000-of-00001.arrow"
    data.write_bytes(data.read_bytes().replace(b"Lima", b"Rome"))
    with pytest.raises(IndexMismatchError, match="arrow: sha256 must agree"):
        DenseRetriever.open(folder)


def test_nothing_is_unpickled(build: Callable[..., Path], passages: list[Passage]) -> None:
    folder = build(passages)
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder / "embeddings.npy").write_bytes(buffer.getvalue())
    noted_anew(folder)
    with pytest.raises(IndexMismatchError, match=r"embeddings.npy must be an array of numbers, got: .*Python objects"):
        DenseRetriever.open(folder)


def test_results_belong_to_the_caller(build: Callable[..., Path], passages: list[Passage]) -> None:
    """FAULTS C9: asked again, in another batch, with other n_docs, after its results were written to: the same."""
    retriever = DenseRetriever.open(build(passages))
    embeds = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    first = retriever.retrieve(["a", "b", "a"], 4, query_embeds=embeds[[0, 1, 0]])
    kept = [list(row) for row in first.passages], first.doc_scores.copy()
    assert first.passages[0] == first.passages[2] and first.passages[0] is not first.passages[2]
    assert first.doc_embeds is not None
    first.passages[0].clear()
    first.doc_embeds[:], first.doc_scores[:], first.rows[:] = 0, 0, 0
    for batch, n_docs in (([0, 1, 0], 4), ([1, 0], 2), ([0], 1)):
        again = retriever.retrieve(["x"] * len(batch), n_docs, query_embeds=embeds[batch])
        for found, scores, query in zip(again.passages, again.doc_scores, batch, strict=True):
            assert found == kept[0][query][:n_docs] and scores.tolist() == kept[1][query][:n_docs].tolist()


def test_wrong_requests(build: Callable[..., Path], passages: list[Passage]) -> None:
    retriever = DenseRetriever.open(build(passages))
    with pytest.raises(ConfigError, match="n_docs must lie between 1 and the 6 passages of the index, got 7"):
        retriever.retrieve(["a"], 7, query_embeds=torch.ones(1, 16))
    with pytest.raises(ShapeError, match="one vector for each of 2 queries, got None"):
        retriever.retrieve(["a", "b"], 1)
    with pytest.raises(ShapeError, match=r"one vector for each of 2 queries, got \(1, 16\)"):
        retriever.retrieve(["a", "b"], 1, query_embeds=torch.ones(1, 16))
    with pytest.raises(ShapeError, match=r"must be \(B, 16\) .* got \(1, 8\)"):
        retriever.retrieve(["a"], 1, query_embeds=torch.ones(1, 8))
    with pytest.raises(ShapeError, match="query_embeds must be finite"):
        retriever.retrieve(["a"], 1, query_embeds=torch.full((1, 16), float("nan")))


def test_manifest_is_readable(build: Callable[..., Path], passages: list[Passage]) -> None:
    row = json.loads((build(passages, kind="hnsw", m=4) / "manifest.json").read_text(encoding="utf-8"))
    assert row["parameters"] == {"m": 4, "ef_construction": 200, "ef_search": 128}
    assert (row["count"], row["dimension"], row["metric"], row["kind"]) == (6, 16, "inner_product", "hnsw")
    said = {"recall": 1.0, "k": 6, "queries": 6, "seed": 0, "against": "flat", "by": "sampled passages"}
    assert row["recall"] == said and row["storage"] == "fp32"
    assert row["encoder"] == {"architecture": "DPRContextEncoder", "max_length": 64, "pooling": "cls"}
    assert str(Path.cwd()) not in json.dumps(row)
