"""FAULTS C4: an uncased encoder reads a question its own way; the generator reads it letter by letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragx.data.corpus import read_passages, write_passages
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Passage
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder

QUERY = "Who was  Müller at NASA?"
TEXT = 'He  said "hi"\tand “left” the NASA'


def test_question_and_passage_reach_the_generator_as_they_were_written(
    tiny_dpr: Path, generator: Seq2SeqGenerator, query_encoder: QueryEncoder, tmp_path: Path
) -> None:
    write_passages(tmp_path / "passages.jsonl", [Passage("m", "1", "0", "Müller  (NASA)", TEXT)])
    encoder = PassageEncoder.from_pretrained(tiny_dpr / "passage_encoder")
    corpus = list(read_passages(tmp_path / "passages.jsonl"))
    build_index(corpus, passage_encoder=encoder, directory=tmp_path / "index", edition="1", progress=False)
    retriever = DenseRetriever.open(tmp_path / "index", passage_encoder=encoder)
    read = query_encoder.tokenizer.decode(query_encoder.tower.tokenize([QUERY])[0], skip_special_tokens=True)
    assert "müller" not in read and "nasa" not in read.split()  # what the encoder makes of it cannot be put back
    model = RagModel(kind="rag_token", generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=1)
    inputs = model.prepare([QUERY], ["x"]).inputs
    if inputs is None:  # the search waits for q(x) of the step
        inputs = model.expand([QUERY], model.retrieve([QUERY])[0])
    text = generator.inputs.tokenizer.decode(inputs.input_ids[0], skip_special_tokens=True)
    assert QUERY in text and TEXT in text and "Müller  (NASA)" in text


@pytest.mark.parametrize("title", ["NA", "null", "nan", '"Flight"'])
def test_titles_that_look_like_nothing_are_titles(tmp_path: Path, title: str) -> None:
    """FAULTS C6: through a file and an index, with a column of the user's."""
    write_passages(tmp_path / "a.jsonl", [Passage("m", "1", "0", title, "")])
    (found,) = read_passages(tmp_path / "a.jsonl")
    assert (found.title, found.text) == (title, "")
