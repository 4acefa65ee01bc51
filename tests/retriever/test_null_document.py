"""The null document's logit: the three formulas by hand, where it starts, what a checkpoint keeps of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from ragx.errors import CheckpointError, ConfigError, ShapeError
from ragx.retriever.null_document import HIDDEN, NULL, NULL_KINDS, NullDocument

SCORES = torch.tensor([[3.0, 1.0], [6.0, 5.0]])
EMBEDS = torch.tensor([[1.0, 2.0, 0.0, 2.0], [3.0, 0.0, 4.0, 0.0]])


def made(kind: str) -> NullDocument:
    """With weights that are easy to follow by hand: b = 0.5, e = (2, 0, 2, 0), and a network of one open unit."""
    null = NullDocument(kind, embedding_size=4)
    with torch.no_grad():
        if kind == "embedding":
            null.embedding.copy_(torch.tensor([4.0, 0.0, 4.0, 0.0]))  # kept times sqrt(4)
        else:
            null.bias.fill_(0.5)
        if kind == "network":
            null.hidden.weight.zero_()
            null.hidden.weight[0, 1] = 0.25
            null.output.weight[0, 0] = 3.0
    return null


@pytest.mark.parametrize(
    ("kind", "logits"),
    [
        ("bias", torch.tensor([0.5, 0.5])),
        ("embedding", torch.tensor([1.0 * 2 + 0.0 * 2, 3.0 * 2 + 4.0 * 2])),
        ("network", torch.tensor([3 * torch.tanh(torch.tensor(0.25 * 2)) + 0.5, 0.5])),
    ],
)
def test_the_logit_by_hand_stands_behind_the_scores(kind: str, logits: Tensor) -> None:
    found = made(kind)(SCORES, EMBEDS)
    assert torch.equal(found[:, :2], SCORES)
    torch.testing.assert_close(found[:, 2], logits)


def test_the_embedding_gives_a_gradient_to_the_query() -> None:
    queries = EMBEDS.clone().requires_grad_()
    made("embedding")(SCORES, queries)[:, 2].sum().backward()
    assert queries.grad is not None
    assert torch.equal(queries.grad, torch.tensor([[2.0, 0.0, 2.0, 0.0]] * 2))  # d q.e / d q = e


@pytest.mark.parametrize("kind", NULL_KINDS)
def test_it_starts_at_the_mean_of_the_lowest_scores_and_only_once(kind: str) -> None:
    null = NullDocument(kind, embedding_size=4)
    null.start(SCORES, EMBEDS)
    started = null(SCORES, EMBEDS)[:, 2]
    assert float(started.detach().mean()) == pytest.approx((1.0 + 5.0) / 2)
    null.start(SCORES + 100, EMBEDS)
    assert torch.equal(null(SCORES, EMBEDS)[:, 2], started)


def test_bias_needs_no_query_encoder_and_the_others_do() -> None:
    assert NullDocument("bias")(SCORES, None).shape == (2, 3)
    with pytest.raises(ConfigError, match="model.null_document must be bias without a query encoder, got 'network'"):
        NullDocument("network")
    with pytest.raises(ShapeError, match="query_embeds must be given for a null document of kind embedding, got None"):
        made("embedding")(SCORES, None)
    with pytest.raises(ConfigError, match="must be one of bias, embedding, network, got 'static'"):
        NullDocument("static")


def test_networks_are_alike_in_every_process() -> None:
    torch.manual_seed(1)
    first = NullDocument("network", embedding_size=4)
    torch.manual_seed(2)
    second = NullDocument("network", embedding_size=4)
    assert torch.equal(first.hidden.weight, second.hidden.weight) and first.hidden.weight.shape == (HIDDEN, 4)


@pytest.mark.parametrize("kind", NULL_KINDS)
def test_what_is_saved_is_loaded_bit_for_bit(kind: str, tmp_path: Path) -> None:
    null = made(kind)
    null.start(SCORES, EMBEDS)
    null.save_pretrained(tmp_path / "null_document")
    found = NullDocument.from_pretrained(tmp_path / "null_document")
    assert found.kind == kind and bool(found.started)
    assert all(torch.equal(value, found.state_dict()[name]) for name, value in null.state_dict().items())


def test_weights_of_another_kind_are_named(tmp_path: Path) -> None:
    made("bias").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"kind": "embedding", "embedding_size": 4}')
    with pytest.raises(CheckpointError, match="must hold config.json and model.safetensors of a null document, got: "):
        NullDocument.from_pretrained(tmp_path)


def test_the_passage_it_stands_for_is_empty() -> None:
    assert (NULL.title, NULL.text) == ("", "") and all(NULL.key)
