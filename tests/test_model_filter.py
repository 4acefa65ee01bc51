"""A filter, given by configuration, keeps passages from the retriever, the prior, the generator and the answer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from ragx import build, config, schema
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.building import build_index
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder

CONFIGS = Path(__file__).parents[1] / "configs"
QUERIES = ["Who was Müller at NASA?", "Who led Peru until 2011?"]


def settings(*overrides: str) -> schema.RetrieverConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        raw = compose("generate", overrides=["model.checkpoint=.", "retriever.passage_encoder=null", *overrides])
    return config.resolve(raw, schema.Generate).retriever


@pytest.fixture
def corpus(tiny_passages: list[Passage]) -> list[Passage]:
    """Two are seen by all and hold today; one is secret, one of the past, one both."""
    extra = [{"acl": ("staff",)}, {}, {"valid_to": "2012-01"}, {}, {"acl": ("staff",), "valid_to": "2012-01"}]
    return [dataclasses.replace(p, **more) for p, more in zip(tiny_passages, extra, strict=True)]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
@pytest.mark.parametrize(
    ("acl_as_of", "rows"), [("[] 2016", {1, 3}), ("[staff] 2016-12", {0, 1, 3}), ("[] 2010", {1, 2, 3})]
)
def test_the_model_reads_what_is_allowed(
    kind: str,
    acl_as_of: str,
    rows: set[int],
    corpus: list[Passage],
    tiny_dpr: Path,
    tmp_path: Path,
    generator: Seq2SeqGenerator,
    query_encoder: QueryEncoder,
) -> None:
    """Five are asked for; those that are allowed make up the whole prior, and nothing else is read or reported."""
    acl, as_of = acl_as_of.split()
    encoder = PassageEncoder.from_pretrained(tiny_dpr / "passage_encoder")
    build_index(corpus, passage_encoder=encoder, directory=tmp_path / "index", edition="1", progress=False)
    given = settings(f"retriever.filter.acl={acl}", f"retriever.filter.as_of={as_of}")
    retriever = build.retriever(given, directory=str(tmp_path / "index"))
    model = RagModel(kind=kind, generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=5)
    output = model(QUERIES, ["Müller", "Alan García"])
    assert output.doc_logprobs.shape == (2, len(rows))
    assert output.doc_logprobs.exp().sum(1).tolist() == pytest.approx([1.0, 1.0])
    assert [set(found) for found in output.retrieved.rows.tolist()] == [rows, rows]
    answered = model.generate(QUERIES, decoder={"rag_sequence": "thorough"}.get(kind, "token_beam"),
                              settings=DecodingSettings(num_beams=2, max_length=4))  # fmt: skip
    allowed = {corpus[row].key for row in rows}
    for answer in answered:
        assert {passage.key for passage in answer.passages} == allowed


def test_bm25_takes_the_same_filter(corpus: list[Passage], tmp_path: Path) -> None:
    BM25Retriever.build(corpus, tmp_path / "bm25", edition="1")
    given = settings("retriever=bm25", "index=bm25", "retriever.filter.acl=[]", "retriever.filter.as_of=2016")
    found = build.retriever(given, directory=str(tmp_path / "bm25")).retrieve(QUERIES, 5)
    assert [set(row) for row in found.rows.tolist()] == [{1, 3}, {1, 3}]


def test_what_is_no_filter_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"retriever.filter.as_of must be a date .* got 'soon'"):
        settings("retriever.filter.as_of=soon")
    assert settings().filter.passage_filter().restricts is False
