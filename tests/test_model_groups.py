"""Passages read a group at a time: the loss and gradients of all at once, in the memory of one group."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ragx.errors import ConfigError
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.model import RagModel
from ragx.records import Passage, Retrieved
from ragx.retriever.query_encoder import QueryEncoder

QUERIES, ANSWERS = ["Who led Peru until 2011?", "Capital of Ghana?"], ["Alan García", "Accra"]
KINDS = ["rag_sequence", "rag_token"]


def found(n_docs: int, *, words: int = 3) -> Retrieved:
    """Different passages of different lengths for two queries."""
    draw = np.random.default_rng(0)
    passages = [
        [
            Passage(f"{row}", "1", f"{rank}", "Peru", f"Lima {rank} " + "is here " * (words + rank % 3))
            for rank in range(n_docs)
        ]
        for row in range(2)
    ]
    embeds = draw.normal(size=(2, n_docs, 16)).astype(np.float32)
    rows = np.arange(2 * n_docs).reshape(2, n_docs)
    return Retrieved(passages, rows, embeds, embeds[:, :, 0], index_fingerprint="none")


@pytest.fixture
def make(generator: Seq2SeqGenerator, query_encoder: QueryEncoder) -> Callable[..., RagModel]:
    def build(kind: str, *, dropout: float = 0.0) -> RagModel:
        model = RagModel(kind=kind, generator=generator, query_encoder=query_encoder).double().train()
        for module in model.modules():
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = dropout  # type: ignore[assignment]
        return model

    return build


def value_and_gradients(
    model: RagModel, at_once: int, *, scale: float = 1.0, **options: Any
) -> dict[str, torch.Tensor]:
    model.passages_at_once = at_once
    model.zero_grad()
    torch.manual_seed(3)
    output = model(QUERIES, ANSWERS, retrieved=found(5), **options)
    (output.loss * scale).backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return {"loss": output.loss.detach(), "token_logprobs": output.token_logprobs.detach(), **gradients}


@pytest.mark.parametrize("at_once", [1, 2, 5])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS)
def test_groups_give_the_loss_and_gradients_of_all_passages_together(
    make: Callable[..., RagModel], kind: str, label_smoothing: float, at_once: int
) -> None:
    model = make(kind)
    whole = value_and_gradients(model, 0, label_smoothing=label_smoothing)
    assert any(name.startswith("query_encoder") for name in whole)
    parts = value_and_gradients(model, at_once, label_smoothing=label_smoothing)
    torch.testing.assert_close(parts, whole, atol=1e-9, rtol=1e-6)


def test_smoothing_enters_the_minimized_loss_and_leaves_the_likelihood(make: Callable[..., RagModel]) -> None:
    model = make("rag_token")
    plain, smoothed = (model(QUERIES, ANSWERS, retrieved=found(3), label_smoothing=e) for e in (0.0, 0.2))
    torch.testing.assert_close(smoothed.nll, plain.nll)
    torch.testing.assert_close(smoothed.token_logprobs, plain.token_logprobs)
    assert torch.equal(plain.smoothed_nll, plain.nll)
    assert (smoothed.smoothed_nll > smoothed.nll).all()  # what is learnt is more certain than uniform
    torch.testing.assert_close(smoothed.loss, smoothed.smoothed_nll.mean())
    with pytest.raises(ConfigError, match=r"label_smoothing must be in \[0, 1\), got 1\.0"):
        model(QUERIES, ANSWERS, retrieved=found(3), label_smoothing=1.0)
    model.passages_at_once = -1
    with pytest.raises(ConfigError, match="passages_at_once must be >= 0, got -1"):
        model(QUERIES, ANSWERS, retrieved=found(3))


@pytest.mark.parametrize("kind", [*KINDS, "closed_book"])
def test_smoothed_loss_is_that_of_the_form_over_logits(
    generator: Seq2SeqGenerator, make: Callable[..., RagModel], kind: str
) -> None:
    from ragx.losses import label_smoothing as plain

    model = RagModel(kind=kind, generator=generator.double()) if kind == "closed_book" else make(kind)
    options = {} if kind == "closed_book" else {"retrieved": found(3)}
    output = model(QUERIES, ANSWERS, label_smoothing=0.3, **options)  # type: ignore[arg-type]
    labels = generator.inputs.labels(ANSWERS, max_length=32)
    inputs = model.expand(QUERIES, options.get("retrieved"))
    n_docs = len(inputs.input_ids) // 2
    logits = generator.model(
        input_ids=inputs.input_ids, attention_mask=inputs.attention_mask,
        labels=labels.repeat_interleave(n_docs, 0),
    ).logits.view(2, n_docs, *labels.shape[1:], -1)  # fmt: skip
    prior = logits.new_zeros(2, 1) if output.doc_logprobs is None else output.doc_logprobs
    form = plain.rag_sequence_nll if kind == "rag_sequence" else plain.rag_token_nll
    expected = form(logits, labels, prior, epsilon=0.3)
    torch.testing.assert_close(output.smoothed_nll, expected, atol=1e-6, rtol=1e-6)


def test_the_second_reading_has_the_noise_of_the_first(
    make: Callable[..., RagModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("rag_sequence", dropout=0.3)
    twice = value_and_gradients(model, 2)
    monkeypatch.setattr("ragx.generator.passage_groups.checkpoint", lambda score, *args, use_reentrant: score(*args))
    once = value_and_gradients(model, 2)
    torch.testing.assert_close(twice, once, atol=1e-12, rtol=1e-9)
    assert not torch.equal(value_and_gradients(model.eval(), 2)["loss"], once["loss"])  # there was noise


def test_checkpointed_layers_and_a_scaled_loss_change_nothing(make: Callable[..., RagModel]) -> None:
    model = make("rag_token", dropout=0.3)
    expected = value_and_gradients(model, 2)
    model.generator.model.activation_checkpointing_enable({"use_reentrant": False})
    scaled = value_and_gradients(model, 2, scale=2.0**12)
    for name, gradient in scaled.items():
        divisor = 1.0 if name in ("loss", "token_logprobs") else 2.0**12
        torch.testing.assert_close(gradient / divisor, expected[name], atol=1e-12, rtol=1e-9)


def test_half_precision_gives_about_the_gradients_of_full(make: Callable[..., RagModel]) -> None:
    model = make("rag_sequence").float()
    expected = value_and_gradients(model, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole, parts = value_and_gradients(model, 0), value_and_gradients(model, 2)
    largest = max(value.norm() for name, value in expected.items() if "." in name)
    for name, value in parts.items():
        assert (value - whole[name]).norm() <= 0.05 * expected[name].norm() + 1e-4 * largest, name
        assert value.dtype == torch.float32


class PeakBytes(TorchDispatchMode):
    """The most bytes that tensors made inside held at a time, in forward and backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known = {tensor.untyped_storage()._cdata for tensor in tree_leaves(args) if isinstance(tensor, torch.Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata
                if key not in self.held and key not in known:
                    self.held[key] = storage.nbytes()
                    weakref.finalize(storage, self.held.pop, key, None)
        self.peak = max(self.peak, sum(self.held.values()))
        return result


def peak_of_a_step(model: RagModel, n_docs: int, at_once: int) -> int:
    model.passages_at_once = at_once
    model.zero_grad()
    retrieved = found(n_docs, words=30)
    with PeakBytes() as bytes_:
        model(QUERIES, ANSWERS, retrieved=retrieved).loss.backward()
    return bytes_.peak


@pytest.mark.parametrize("kind", KINDS)
def test_ten_times_the_passages_train_in_the_memory_of_a_tenth(make: Callable[..., RagModel], kind: str) -> None:
    model = make(kind)
    few, many, whole = (peak_of_a_step(model, *sizes) for sizes in ((2, 0), (20, 2), (20, 0)))
    assert whole > 4 * few  # the instrument sees activations
    assert many < 1.3 * few, (few, many, whole)


@pytest.mark.gpu
def test_the_noise_of_a_gpu_is_that_of_the_first_reading_too(
    make: Callable[..., RagModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("rag_sequence", dropout=0.3).cuda()
    twice = value_and_gradients(model, 2)
    monkeypatch.setattr("ragx.generator.passage_groups.checkpoint", lambda score, *args, use_reentrant: score(*args))
    torch.testing.assert_close(twice, value_and_gradients(model, 2), atol=1e-9, rtol=1e-6)
