"""Section 3.4: with one target token RAG-Sequence and RAG-Token are one model (FEVER's labels)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ragx import build
from ragx.decoding.settings import DecodingSettings
from ragx.errors import ConfigError
from ragx.losses import rag_sequence, rag_token
from ragx.model import RagModel
from ragx.schema import DataConfig

ONE = DecodingSettings(num_beams=4, num_return_sequences=4, max_length=1)


def data(**labels: str) -> DataConfig:
    return DataConfig(task="fact_verification", labels=labels)


def test_labels_that_are_one_token_pass_and_others_are_named(make_model: Callable[..., RagModel]) -> None:
    generator = make_model("rag_token").generator
    build.check_labels(data(SUPPORTS="leads", REFUTES="falls"), generator)
    with pytest.raises(ConfigError, match="data.labels.REFUTES must be one token .* got 'Who leads' as 2"):
        build.check_labels(data(SUPPORTS="leads", REFUTES="Who leads"), generator)


def test_both_models_give_a_label_the_same_probability(make_model: Callable[..., RagModel]) -> None:
    claims = ["Humala leads Peru .", "Rain falls ?"]
    found = [
        make_model(kind).generate(claims, decoder=decoder, settings=ONE)
        for kind, decoder in (("rag_sequence", "thorough"), ("rag_token", "token_beam"))
    ]
    for sequence, token in zip(*found, strict=True):
        ours, theirs = ({h.token_ids: h.logprob for h in answer.hypotheses} for answer in (sequence, token))
        best = sequence.hypotheses[0].token_ids
        assert len(best) == 1 and best == token.hypotheses[0].token_ids
        assert ours[best] == pytest.approx(theirs[best], abs=1e-5)


def test_both_likelihoods_agree_on_one_token_and_not_on_two() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = -torch.rand(2, 3, 2, generator=generator)
    prior = torch.randn(2, 3, generator=generator).log_softmax(1)
    one = tokens[:, :, :1]
    assert torch.allclose(rag_sequence.marginalize(one, prior), rag_token.marginalize(one, prior), atol=1e-6)
    assert not torch.allclose(rag_sequence.marginalize(tokens, prior), rag_token.marginalize(tokens, prior), atol=1e-4)
