"""The import scripts on files as people have them: DPR's table and shards, RagRetriever's data set, articles."""

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from ragx import config
from ragx.data.corpus import read_passages
from ragx.errors import ConfigError, DataError
from ragx.experiments import importing
from ragx.records import Passage
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.schema_import import ImportIndex, ImportPassages

CONFIGS = Path(__file__).parents[2] / "configs"
Resolve = Callable[..., Any]


@pytest.fixture
def resolve() -> Resolve:
    def run(schema: type[Any], *overrides: str) -> Any:
        name = {ImportPassages: "import_passages", ImportIndex: "import_index"}[schema]
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return config.resolve(compose(name, overrides=list(overrides)), schema)

    return run


@pytest.fixture
def wikipedia(tmp_path: Path, tiny_passages: list[Passage], tiny_dpr: Path) -> Path:
    """psgs_w100.tsv and its embeddings in three pickled shards, as DPR published them, for five passages."""
    vectors = PassageEncoder.from_pretrained(tiny_dpr / "passage_encoder").encode(tiny_passages)
    with (tmp_path / "psgs_w100.tsv").open("w", encoding="utf-8", newline="") as handle:
        table = csv.writer(handle, delimiter="\t")
        table.writerow(["id", "text", "title"])
        table.writerows([number, p.text, p.title] for number, p in enumerate(tiny_passages, start=1))
    (tmp_path / "shards").mkdir()
    for shard in range(3):
        rows = range(2 * shard, min(2 * shard + 2, 5))
        pairs = [(f"wiki:{row + 1}", vectors[row]) for row in rows]
        (tmp_path / "shards" / f"wikipedia_passages_{shard}.pkl").write_bytes(pickle.dumps(pairs))
    return tmp_path


def test_dprs_table_and_shards_become_an_index(
    resolve: Resolve, wikipedia: Path, tiny_dpr: Path, tiny_passages: list[Passage]
) -> None:
    given = [f"source.place={wikipedia}/psgs_w100.tsv", f"embeddings={wikipedia}/shards/wikipedia_passages_*.pkl"]
    given += ["id_prefix='wiki:'", f"passage_encoder={tiny_dpr}/passage_encoder", f"index.directory={wikipedia}/index"]
    manifest = importing.index(resolve(ImportIndex, *given, "source.edition=2018-12"))
    assert (manifest.count, manifest.edition, manifest.dimension) == (5, "2018-12", 16)
    encoder = PassageEncoder.from_pretrained(tiny_dpr / "passage_encoder")
    retriever = DenseRetriever.open(wikipedia / "index", passage_encoder=encoder)
    assert [(p.source, p.version, p.text) for p in retriever.passages] == [
        (str(number), "2018-12", p.text) for number, p in enumerate(tiny_passages, start=1)
    ]
    renumbered = [Passage(str(n), "2018-12", "0", p.title, p.text) for n, p in enumerate(tiny_passages, start=1)]
    own = wikipedia / "own"
    build_index(renumbered, passage_encoder=encoder, directory=own, edition="2018-12", progress=False)
    assert (wikipedia / "index/embeddings.npy").read_bytes() == (own / "embeddings.npy").read_bytes()


def test_a_lost_row_shifts_nothing_and_is_refused(resolve: Resolve, wikipedia: Path, tiny_dpr: Path) -> None:
    """FAULTS C7, as a user meets it."""
    shard = wikipedia / "shards" / "wikipedia_passages_1.pkl"
    shard.write_bytes(pickle.dumps(pickle.loads(shard.read_bytes())[1:]))
    given = [f"source.place={wikipedia}/psgs_w100.tsv", f"embeddings={wikipedia}/shards", "id_prefix='wiki:'"]
    given += [f"passage_encoder={tiny_dpr}/passage_encoder", f"index.directory={wikipedia}/index"]
    with pytest.raises(DataError, match="none for 1 of 5 passages, the first '3'"):
        importing.index(resolve(ImportIndex, *given))
    assert not (wikipedia / "index").exists()


@pytest.mark.parametrize("storage", ["fp32", "fp16"])
def test_the_data_set_of_rag_retriever_becomes_an_index(
    resolve: Resolve, tmp_path: Path, tiny_dpr: Path, tiny_passages: list[Passage], storage: str
) -> None:
    encoder = PassageEncoder.from_pretrained(tiny_dpr / "passage_encoder")
    vectors = encoder.encode(tiny_passages)
    rows = {
        "title": [p.title or None for p in tiny_passages],
        "text": [p.text for p in tiny_passages],
        "embeddings": vectors.tolist(),
    }
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "knowledge")
    given = [f"source.place={tmp_path}/knowledge", f"index.directory={tmp_path}/index", f"index.storage={storage}"]
    manifest = importing.index(resolve(ImportIndex, *given, f"passage_encoder={tiny_dpr}/passage_encoder"))
    assert (manifest.edition, manifest.storage) == ("knowledge", storage)
    retriever = DenseRetriever.open(tmp_path / "index", passage_encoder=encoder)
    assert [(p.title, p.text) for p in retriever.passages] == [(p.title, p.text) for p in tiny_passages]
    array = np.load(tmp_path / "index" / "embeddings.npy", allow_pickle=False)
    np.testing.assert_allclose(array.astype(np.float32), vectors, atol=0 if storage == "fp32" else 2e-3)


def test_vectors_must_be_somewhere(resolve: Resolve, wikipedia: Path) -> None:
    given = [f"source.place={wikipedia}/psgs_w100.tsv", "passage_encoder=null", f"index.directory={wikipedia}/index"]
    with pytest.raises(
        ConfigError, match="embeddings must be given where the source is no folder of datasets, got null"
    ):
        importing.index(resolve(ImportIndex, *given))
    with pytest.raises(ConfigError, match=r"source.place must be a file, a folder or hub:NAME:SPLIT, got '.*nowhere"):
        resolve(ImportIndex, f"source.place={wikipedia}/nowhere.tsv", *given[1:])


def test_articles_become_passages_of_a_hundred_words(resolve: Resolve, tmp_path: Path) -> None:
    text = " ".join(f"w{number}" for number in range(250))
    (tmp_path / "a.jsonl").write_text(json.dumps({"key": "x", "name": "T", "body": text}) + "\n")
    columns = ["source.columns.text=body", "source.columns.title=name", "source.columns.id=key"]
    given = [f"source.place={tmp_path}/a.jsonl", f"output={tmp_path}/out.jsonl.gz", *columns]
    assert importing.passages(resolve(ImportPassages, *given, "words=100", "source.edition=v")) == 3
    found = list(read_passages(tmp_path / "out.jsonl.gz"))
    assert [(tuple(p.key), p.title, len(p.text.split())) for p in found] == [
        (("x", "v", "0"), "T", 100),
        (("x", "v", "1"), "T", 100),
        (("x", "v", "2"), "T", 50),
    ]
    assert all(p.span is not None and text[slice(*p.span)] == p.text for p in found)
    assert importing.passages(resolve(ImportPassages, *given)) == 1  # a row is a passage


def test_a_chunker_is_named_in_the_configuration(
    resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cutter_of_mine.py").write_text("def lines(text):\n    return [(0, 3), (4, 7)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a.tsv").write_text("id\ttext\n1\tone two\n")
    given = [f"source.place={tmp_path}/a.tsv", f"output={tmp_path}/out.jsonl", "chunker=cutter_of_mine:lines"]
    importing.passages(resolve(ImportPassages, *given))
    assert [p.text for p in read_passages(tmp_path / "out.jsonl")] == ["one", "two"]
    with pytest.raises(ConfigError, match="words must be null with a chunker, got 100. Give one of the two"):
        importing.passages(resolve(ImportPassages, *given, "words=100"))
