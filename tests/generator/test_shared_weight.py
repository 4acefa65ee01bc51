"""The gradient of a shared weight, and activations computed twice: what plain autograd gives, in less memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import GPT2Config, GPT2LMHeadModel

from ragx.generator.recomputed import recomputed_activations
from ragx.generator.shared_weight import SharedWeight, lookups, shared_weight
from tests.generator.tiny_models import causal_model, tiny_model

VOCAB = 60


def tied(family: str) -> Any:
    """A model in float64 and training mode, without dropout, whose head and embeddings share one weight."""
    model = tiny_model(family, VOCAB).double().train()
    for module in model.modules():
        for name in ("dropout", "activation_dropout", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def loss_of(model: Any, ids: Tensor, head: Tensor) -> Tensor:
    """A loss of the states, through the head, over tokens that repeat and include padding."""
    hidden = model.get_encoder()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    states = model.get_decoder()(input_ids=ids.flip(1), encoder_hidden_states=hidden).last_hidden_state
    return (states @ head.t()).log_softmax(-1)[..., 5].sum()


def gradients(model: Any, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture
def ids() -> Tensor:
    return torch.tensor([[0, 4, 4, 9, 4, 2, 1], [0, 9, 30, 30, 2, 1, 1]])


@pytest.mark.parametrize("family", ["bart", "mbart", "t5"])
def test_the_shared_weight_gets_the_gradient_of_plain_autograd(family: str, ids: Tensor) -> None:
    model = tied(family)
    weight = model.get_output_embeddings().weight
    expected = gradients(model, loss_of(model, ids, weight))
    shared = shared_weight(model, compiled=False)
    assert shared is not None
    with lookups(shared):
        loss = loss_of(model, ids, shared.head)
    found = gradients(model, loss)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-9)


def test_the_row_of_the_padding_token_stands_still() -> None:
    weight = nn.Parameter(torch.randn(5, 3))
    shared = SharedWeight(weight)
    with shared.lookups():
        found = nn.functional.embedding(torch.tensor([1, 2, 1]), weight, padding_idx=1)
    (found.sum() + 0 * shared.head.sum()).backward()
    assert weight.grad is not None
    assert weight.grad.sum(1).tolist() == [0.0, 0.0, 3.0, 0.0, 0.0]


def test_more_rows_than_the_table_has_are_summed_up_meanwhile() -> None:
    weight = nn.Parameter(torch.randn(5, 3, dtype=torch.float64))
    shared, waiting = SharedWeight(weight), []
    total = shared.head.sum() * 0
    for ids in torch.randint(0, 5, (9, 4), generator=torch.Generator().manual_seed(0)):
        with shared.lookups():
            found = nn.functional.embedding(ids, weight)
        found.register_hook(lambda grad: waiting.append(sum(len(i) for i, _ in shared.rows._parts)))
        total = total + (found * torch.arange(1, 5).unsqueeze(1)).sum()
    plain = torch.zeros(5, dtype=torch.float64)
    for ids in torch.randint(0, 5, (9, 4), generator=torch.Generator().manual_seed(0)):
        plain.index_add_(0, ids, torch.arange(1.0, 5.0, dtype=torch.float64))
    total.backward()
    torch.testing.assert_close(weight.grad, plain.unsqueeze(1).expand(5, 3))
    assert len(waiting) == 9 and max(waiting) <= 5


def test_other_tables_are_looked_up_as_ever() -> None:
    weight, other = nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(5, 3))
    shared = SharedWeight(weight)
    with shared.lookups():
        found = nn.functional.embedding(torch.tensor([4]), other)
    found.sum().backward()
    assert other.grad is not None and weight.grad is None


def test_weights_that_are_not_shared_and_compiled_code_are_left_alone() -> None:
    assert shared_weight(causal_model("llama", VOCAB), compiled=False) is None  # it has a head of its own
    assert shared_weight(tied("bart"), compiled=True) is None
    frozen = tied("bart").requires_grad_(False)
    assert shared_weight(frozen, compiled=False) is None
    with torch.no_grad():
        assert shared_weight(tied("bart"), compiled=False) is None


class Sizes(TorchDispatchMode):
    """Counts results of a shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        known = {leaf.data_ptr() for leaf in tree_leaves(args) if isinstance(leaf, Tensor)}
        self.count += sum(
            isinstance(leaf, Tensor) and leaf.shape == self.shape and leaf.data_ptr() not in known
            for leaf in tree_leaves(out)
        )
        return out


def test_no_lookup_makes_a_gradient_as_large_as_the_table(ids: Tensor) -> None:
    model = tied("bart")
    weight = model.get_output_embeddings().weight

    def made(shared: SharedWeight | None) -> int:
        with lookups(shared):
            loss = loss_of(model, ids, weight if shared is None else shared.head)
        model.zero_grad()
        with Sizes(tuple(weight.shape)) as sizes:
            loss.backward()
        return sizes.count

    # That of the head alone (a product, transposed), against one more for each lookup.
    assert made(shared_weight(model, compiled=False)) <= made(None) - 2


def gelu_model() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=16, n_embd=16, n_layer=2, n_head=2, activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.4,
    )  # fmt: skip
    return GPT2LMHeadModel(config).double().train()


@pytest.mark.parametrize("make", [lambda: tied("bart"), gelu_model], ids=["gelu", "tanh"])
def test_gradients_are_those_of_kept_activations_bit_by_bit(make: Callable[[], Any], ids: Tensor) -> None:
    model = make()
    expected = gradients(model, model(input_ids=ids).logits.sin().sum())
    with recomputed_activations(model, enabled=True):
        loss = model(input_ids=ids).logits.sin().sum()
    found = gradients(model, loss)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def storages(layer: Any, name: str) -> list[StorageWeakRef]:
    """Gets the memory of what a part of `layer` puts out, without keeping it."""
    found: list[StorageWeakRef] = []
    getattr(layer, name).register_forward_hook(
        lambda module, inputs, output: found.append(StorageWeakRef(output.untyped_storage()))
    )
    return found


@pytest.mark.parametrize("enabled", [True, False])
def test_what_an_activation_puts_out_is_not_kept(ids: Tensor, enabled: bool) -> None:
    model = tied("bart")
    put_out = storages(model.get_encoder().layers[0], "activation_fn")
    with recomputed_activations(model, enabled=enabled):
        loss = model(input_ids=ids).logits.sum()
    assert put_out[0].expired() == enabled
    loss.backward()


def test_a_pass_without_backward_frees_its_memory(ids: Tensor) -> None:
    model = tied("bart")
    put_out = storages(model.get_encoder().layers[0], "fc1")
    shared = shared_weight(model, compiled=False)
    with recomputed_activations(model, enabled=True), lookups(shared):
        loss = model(input_ids=ids).logits.sum()
    assert not put_out[0].expired()
    del loss, shared
    gc.collect()
    assert put_out[0].expired()


def test_memory_that_was_given_to_another_tensor_is_not_mistaken(ids: Tensor) -> None:
    """An output that nobody keeps is freed, and a later tensor of its size may lie at its address."""
    gelu, linear = nn.GELU(), nn.Linear(8, 8, dtype=torch.float64)
    inputs = [torch.randn(64, 8, dtype=torch.float64, requires_grad=True) for _ in range(20)]

    def run(enabled: bool) -> list[Tensor]:
        for value in inputs:
            value.grad = None
        with recomputed_activations(gelu, enabled=enabled):
            total = sum(linear(gelu(linear(value * 2)) * 3).sum() for value in inputs)
        assert isinstance(total, Tensor)
        total.backward()
        return [value.grad for value in inputs if value.grad is not None]

    for mine, plain in zip(run(True), run(False), strict=True):
        assert torch.equal(mine, plain)


def test_an_output_that_was_changed_in_place_is_kept() -> None:
    gelu = nn.GELU()
    value, weight = torch.randn(4, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)
    with recomputed_activations(gelu, enabled=True):
        loss = (gelu(value).mul_(2.0) @ weight).sum()
    loss.backward()
    expected = (2 * nn.functional.gelu(value.detach())).sum(0).unsqueeze(1).expand(3, 2)
    torch.testing.assert_close(weight.grad, expected)


def test_rows_are_added_in_one_order_whatever_the_number_of_threads() -> None:
    torch.manual_seed(0)
    table, ids, upstream = torch.zeros(500, 64), torch.randint(0, 300, (20_000,)), torch.randn(20_000, 64)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = [added(table, ids, upstream) for _ in range(4)]
        expected = torch.ops.aten.embedding_dense_backward(upstream, ids, len(table), -1, False)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, found[0]) for one in found)
    assert torch.equal(found[0], expected)


def added(table: Tensor, ids: Tensor, upstream: Tensor) -> Tensor:
    """What the table gets of a loss whose gradient at the rows that were looked up is `upstream`."""
    weight = nn.Parameter(table.clone())
    shared = SharedWeight(weight)
    with shared.lookups():
        rows = nn.functional.embedding(ids, weight)
    (rows * upstream).sum().add(shared.head.sum() * 0).backward()
    assert weight.grad is not None
    return weight.grad
