"""One device for a whole step: weights go along, and what the host holds travels once, to the part that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from torch import Tensor

import ragx.model as model_module
from ragx import build, config, schema
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from ragx.generator import passage_groups, prepared
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Retrieved
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.query_encoder import QueryEncoder
from tests.scripts import ROOT

QUERIES, ANSWERS = ["Who led Peru until 2011?", "Capital of Ghana?"], ["Alan García", "Accra"]


@pytest.fixture
def model(generator: Seq2SeqGenerator, query_encoder: QueryEncoder) -> RagModel:
    return RagModel(kind="rag_token", generator=generator, query_encoder=query_encoder, n_docs=3)


@pytest.fixture
def found(query_encoder: QueryEncoder, retriever: DenseRetriever) -> Retrieved:
    with torch.no_grad():
        return retriever.retrieve(QUERIES, 3, query_embeds=query_encoder.embed(QUERIES))


def test_every_weight_and_buffer_goes_along(model: RagModel) -> None:
    """On `meta`, which every machine has."""
    model.to("meta")
    assert model.query_encoder is not None
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"meta"} and len(tensors) > 20
    assert model.generator.device.type == model.query_encoder.device.type == "meta"


def test_scores_that_come_with_the_passages_go_to_the_generator(found: Retrieved) -> None:
    scores = prepared.doc_scores_of(found, None, device=torch.device("meta"))
    assert scores.device.type == "meta" and scores.dtype == torch.float32 and scores.shape == (2, 3)


def test_what_the_host_holds_travels_once_and_in_float32(
    model: RagModel, found: Retrieved, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found.doc_embeds is not None and found.doc_embeds.dtype == np.float32
    moves: list[tuple[tuple[int, ...], torch.dtype]] = []
    moved = prepared.moved

    def noted(tensor: Tensor, device: torch.device) -> Tensor:
        moves.append((tuple(tensor.shape), tensor.dtype))
        return moved(tensor, device)

    for module in (prepared, passage_groups, model_module):
        monkeypatch.setattr(module, "moved", noted)
    host = model.prepare(QUERIES, ANSWERS, retrieved=found)
    assert host.tokens is not None and host.inputs is not None and moves == []
    model(QUERIES, ANSWERS, prepared=host)
    expected = [*host.tokens, found.doc_embeds, host.inputs.input_ids, host.inputs.attention_mask, host.labels]
    kinds = [(tuple(value.shape), torch.float32 if value is found.doc_embeds else torch.int64) for value in expected]
    # And the scores, which q(x) and the vectors have become, come to the generator.
    assert sorted(moves, key=str) == sorted([*kinds, ((2, 3), torch.float32)], key=str)


REFUSED = r"device must be cpu or auto where torch finds no GPU, got 'cuda'\. Give auto, or see why"


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert build.device("auto") == build.device("cpu") == "cpu"
    with pytest.raises(ConfigError, match=REFUSED):
        build.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [build.device(name) for name in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]


def test_an_index_is_not_built_on_the_host_where_a_gpu_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        raw = compose("build_index", [f"index.directory={tmp_path}/index", "index.device=cuda"])
    settings = config.resolve(raw, schema.BuildIndex)
    with pytest.raises(ConfigError, match=REFUSED):
        build.index(settings)
    assert not list(tmp_path.iterdir())
    settings.index.ray_workers = 2  # whose machines may have one
    assert build.index_device(settings.index) == "cpu"


A_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.mark.parametrize("device", [A_GPU])
@pytest.mark.parametrize(
    ("kind", "decoder"),
    [("rag_sequence", "thorough"), ("rag_sequence", "fast"), ("rag_token", "token_beam"), ("rag_token", "greedy")],
)
def test_a_gpu_answers_and_scores_as_the_host_does(
    generator: Seq2SeqGenerator, query_encoder: QueryEncoder, found: Retrieved, kind: str, decoder: str, device: str
) -> None:
    """Passages from the host, 20 tokens of 4 beams, a rule of the caller, samples: everything that decoding moves."""
    model = RagModel(kind=kind, generator=generator, query_encoder=query_encoder, n_docs=3)
    searched = DecodingSettings(max_length=20, num_return_sequences=3, no_repeat_ngram_size=3, bad_token_ids=(9,))
    ways: list[dict[str, Any]] = [{"settings": searched}, {"settings": searched, "allowed": lambda *_: range(5, 90)}]
    if decoder == "token_beam":
        ways.append({"settings": DecodingSettings(do_sample=True, num_return_sequences=3, top_p=0.9)})
    results = []
    for place in ("cpu", device):
        model.to(place)
        answers = [a for way in ways for a in model.generate(QUERIES, decoder=decoder, retrieved=found, **way)]
        labels = model.generate(QUERIES, decoder="closed_set", settings=searched, labels=ANSWERS, retrieved=found)
        results.append(([*answers, *labels], model(QUERIES, ANSWERS, retrieved=found).nll.cpu()))
    (host, host_nll), (there, nll) = results
    torch.testing.assert_close(nll, host_nll, atol=1e-4, rtol=1e-4)
    for ours, expected in zip(there, host, strict=True):
        assert [h.token_ids for h in ours.hypotheses] == [h.token_ids for h in expected.hypotheses]
        values = [h.logprob for h in expected.hypotheses]
        assert [h.logprob for h in ours.hypotheses] == pytest.approx(values, abs=1e-3)
