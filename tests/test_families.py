"""Every family of generators, built from an object or a path: a training step, a checkpoint, an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ragx.decoding.settings import DecodingSettings
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.query_encoder import QueryEncoder
from ragx.training.checkpoint import load_checkpoint, save_checkpoint
from tests.generator.tiny_models import tiny_model

FAMILIES = ["bart", "mbart", "t5", "t5_unscaled", "t5_gated", "mt5"]
QUERIES, ANSWERS = ["Who led Peru until 2011?", "Capital of Ghana?"], ["Alan García", "Accra"]


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_a_checkpoint_and_an_answer_of_each_family(
    family: str,
    kind: str,
    byte_level_tokenizer: Any,
    query_encoder: QueryEncoder,
    retriever: DenseRetriever,
    tmp_path: Path,
) -> None:
    generator = Seq2SeqGenerator(tiny_model(family, len(byte_level_tokenizer)), byte_level_tokenizer)
    if kind == "rag_token":  # from a path as from an object
        generator.save_pretrained(tmp_path / "generator")
        generator = Seq2SeqGenerator.from_pretrained(tmp_path / "generator")
    model = RagModel(kind=kind, generator=generator, query_encoder=query_encoder, retriever=retriever, n_docs=3)
    found, _ = model.retrieve(QUERIES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    before = model(QUERIES, ANSWERS, retrieved=found).loss
    before.backward()
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert without == []
    optimizer.step()
    model.eval()
    with torch.no_grad():
        after = model(QUERIES, ANSWERS, retrieved=found).loss
    assert float(after) < float(before.detach())
    save_checkpoint(model, tmp_path / "saved")
    loaded = load_checkpoint(tmp_path / "saved", retriever=retriever)
    decoder = {"rag_sequence": "thorough", "rag_token": "token_beam"}[kind]
    settings = DecodingSettings(num_beams=2, num_return_sequences=2, max_length=4)
    answers = [m.generate(QUERIES, decoder=decoder, settings=settings) for m in (model, loaded)]
    assert [a.hypotheses for a in answers[0]] == [a.hypotheses for a in answers[1]]
    with torch.no_grad():
        assert torch.equal(loaded(QUERIES, ANSWERS, retrieved=found).loss, after)
