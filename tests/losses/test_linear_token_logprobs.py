"""The blocked LM head: equal to the plain one in value and gradient, and without its logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ragx.errors import ShapeError
from ragx.losses.token_logprobs import linear_token_logprobs, token_logprobs
from ragx.losses.vocabulary_blocks import linear_logprobs

Case = tuple[Tensor, Tensor, Tensor, Tensor]


def make_case(n_rows: int, size: int, vocab_size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Case:
    """hidden, weight, bias, labels; every third label is -100."""
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((n_rows, size), (vocab_size, size), (vocab_size,))
    )
    labels = torch.randint(0, vocab_size, (n_rows,), generator=generator)
    labels[::3] = -100
    return hidden, weight, bias, labels


def value_and_gradients(logprobs: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The values and the gradients of a weighted sum of them."""
    weights = torch.linspace(-1, 2, logprobs.numel(), dtype=logprobs.dtype)
    return (logprobs.detach(), *torch.autograd.grad((logprobs * weights).sum(), inputs))


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """The same from the whole (N, V) logits."""
    return token_logprobs(torch.nn.functional.linear(hidden, weight, bias), labels)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 7), st.integers(1, 5), st.integers(1, 23), st.integers(1, 30), st.integers(0, 10_000))
def test_equals_the_plain_form(n_rows: int, size: int, vocab_size: int, block_size: int, seed: int) -> None:
    *inputs, labels = make_case(n_rows, size, vocab_size, seed)
    blocked = linear_token_logprobs(*inputs, labels, block_size=block_size)
    result = value_and_gradients(blocked, tuple(inputs))
    torch.testing.assert_close(result, value_and_gradients(plain(*inputs, labels), tuple(inputs)))


@pytest.mark.parametrize("block_size", [1, 4, 11, 50])
def test_finite_differences(block_size: int) -> None:
    hidden, weight, bias, labels = make_case(5, 3, 11)

    def function(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return linear_token_logprobs(hidden, weight, bias, labels, block_size=block_size)

    assert torch.autograd.gradcheck(function, (hidden, weight, bias))


def test_without_bias() -> None:
    hidden, weight, _, labels = make_case(6, 4, 13)
    result = value_and_gradients(linear_token_logprobs(hidden, weight, None, labels, block_size=5), (hidden, weight))
    torch.testing.assert_close(result, value_and_gradients(plain(hidden, weight, None, labels), (hidden, weight)))


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_only_what_is_trained_gets_a_gradient(frozen: int) -> None:
    *inputs, labels = make_case(6, 4, 13)
    inputs[frozen] = inputs[frozen].detach()
    trained = tuple(tensor for tensor in inputs if tensor.requires_grad)
    result = value_and_gradients(linear_token_logprobs(*inputs, labels, block_size=5), trained)
    torch.testing.assert_close(result, value_and_gradients(plain(*inputs, labels), trained))


def test_float32_is_exact_to_1e5_at_large_logits() -> None:
    hidden, weight, bias, labels = (tensor.detach() for tensor in make_case(40, 64, 300, dtype=torch.float32))
    result = linear_token_logprobs(hidden, weight, bias, labels, block_size=32)
    assert result.dtype == torch.float32
    expected = plain(hidden.double(), weight.double(), bias.double(), labels)
    torch.testing.assert_close(result.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_operands_are_computed_in_float32(dtype: torch.dtype) -> None:
    *inputs, labels = make_case(12, 16, 70, dtype=dtype)
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    blocked = value_and_gradients(linear_token_logprobs(*inputs, labels, block_size=16), tuple(inputs))
    expected = value_and_gradients(plain(*wide, labels), tuple(wide))
    assert blocked[0].dtype == torch.float32
    torch.testing.assert_close(blocked[0].double(), expected[0], atol=1e-5, rtol=1e-5)
    for gradient, wanted in zip(blocked[1:], expected[1:], strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient, wanted.to(dtype), atol=2e-3, rtol=1e-2)


def test_autocast_does_not_lower_the_precision() -> None:
    *inputs, labels = make_case(12, 16, 70, dtype=torch.float32)
    expected = value_and_gradients(linear_token_logprobs(*inputs, labels, block_size=16), tuple(inputs))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = value_and_gradients(linear_token_logprobs(*inputs, labels, block_size=16), tuple(inputs))
    torch.testing.assert_close(result, expected, atol=0, rtol=0)


def test_operands_left_in_half_precision_as_on_an_accelerator() -> None:
    # The product is rounded to bfloat16 there, as in any LM head; sums and logarithms are float32.
    hidden, weight, bias, labels = make_case(12, 16, 70, dtype=torch.bfloat16)
    labels = labels.clamp(min=0)
    result, _ = linear_logprobs(hidden, weight, bias, labels, block_size=16)
    logits = (hidden @ weight.t()).float() + bias.float()
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, token_logprobs(logits, labels), atol=1e-5, rtol=1e-5)
    gradients = torch.autograd.grad(result.sum(), (hidden, weight, bias))
    expected = torch.autograd.grad(token_logprobs(logits, labels).sum(), (hidden, weight, bias))
    for gradient, wanted in zip(gradients, expected, strict=True):
        assert gradient.dtype == torch.bfloat16
        torch.testing.assert_close(gradient, wanted, atol=5e-2, rtol=3e-2)


def test_a_block_of_forbidden_tokens() -> None:
    hidden, weight, bias, labels = make_case(6, 4, 12)
    bias = bias.detach().clone()
    bias[:8] = float("-inf")  # the first two blocks of 4 have no mass at all
    labels = torch.tensor([8, 9, 10, 11, -100, 8])
    result = value_and_gradients(linear_token_logprobs(hidden, weight, bias, labels, block_size=4), (hidden, weight))
    torch.testing.assert_close(result, value_and_gradients(plain(hidden, weight, bias, labels), (hidden, weight)))


@pytest.mark.parametrize("n_rows", [0, 4])
def test_nothing_to_score_gives_zeros_and_zero_gradients(n_rows: int) -> None:
    *inputs, _ = make_case(n_rows, 3, 9)
    result = linear_token_logprobs(*inputs, torch.full((n_rows,), -100), block_size=4)
    assert result.shape == (n_rows,) and result.eq(0).all()
    for gradient in torch.autograd.grad(result.sum(), tuple(inputs)):
        assert gradient.eq(0).all()


def test_states_at_padding_may_be_anything() -> None:
    *inputs, labels = make_case(6, 4, 13)
    expected = value_and_gradients(linear_token_logprobs(*inputs, labels), tuple(inputs))
    with torch.no_grad():
        inputs[0][labels == -100] = float("nan")
    torch.testing.assert_close(value_and_gradients(linear_token_logprobs(*inputs, labels), tuple(inputs)), expected)


class LargestTensor(TorchDispatchMode):
    """Records the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


def test_the_logits_are_never_held() -> None:
    n_rows, size, vocab_size, block_size = 60, 8, 1000, 50
    hidden, weight, bias, labels = make_case(n_rows, size, vocab_size)
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with LargestTensor() as largest, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        linear_token_logprobs(hidden, weight, bias, labels, block_size=block_size).sum().backward()
    with LargestTensor() as reference:
        plain(hidden, weight, bias, labels).sum().backward()
    assert reference.numel == n_rows * vocab_size  # the instrument sees what it is asked about
    assert largest.numel == vocab_size * size  # nothing is larger than the weight itself
    assert max(saved) == vocab_size * size


def test_labels_that_were_checked_before_are_not_looked_at_again() -> None:
    hidden, weight, bias, _ = make_case(3, 4, 13)
    labels = torch.tensor([0, 99, 1])
    result = linear_token_logprobs(hidden, weight, bias, labels, validate=False)
    assert result.isnan().tolist() == [False, True, False]
    with pytest.raises(ShapeError, match=r"labels must be -100 or in \[0, 13\), got 99 at position \(1,\)\."):
        linear_token_logprobs(hidden, weight, bias, labels)


def test_bad_shapes_are_refused() -> None:
    hidden, weight, bias, labels = make_case(4, 3, 9)
    with pytest.raises(ShapeError, match=r"hidden and weight must have shapes \(N, D\) and \(V, D\), got \(2, 2, 3\)"):
        linear_token_logprobs(hidden.view(2, 2, 3), weight, bias, labels)
    with pytest.raises(ShapeError, match=r"hidden and weight must have shapes .*, got \(4, 3\) and \(3, 9\)"):
        linear_token_logprobs(hidden, weight.t(), bias, labels)
    with pytest.raises(ShapeError, match=r"labels must have shape \(4,\), one per row of hidden, got \(3,\)"):
        linear_token_logprobs(hidden, weight, bias, labels[:3])
    with pytest.raises(ShapeError, match=r"bias must have shape \(9,\), one per vocabulary entry, got \(1, 9\)"):
        linear_token_logprobs(hidden, weight, bias.unsqueeze(0), labels)
    with pytest.raises(ShapeError, match=r"block_size must be >= 1, got 0"):
        linear_token_logprobs(hidden, weight, bias, labels, block_size=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_without_waiting_for_it() -> None:
    *inputs, labels = make_case(12, 16, 70, dtype=torch.bfloat16)
    expected = value_and_gradients(linear_token_logprobs(*inputs, labels, block_size=16), tuple(inputs))
    moved = [tensor.detach().cuda().requires_grad_() for tensor in inputs]
    labels, weights = labels.cuda(), torch.linspace(-1, 2, 12).cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = linear_token_logprobs(*moved, labels, block_size=16, validate=False)
        gradients = torch.autograd.grad(result, moved, weights)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(result.cpu(), expected[0], atol=5e-2, rtol=2e-2)
    for gradient, wanted in zip(gradients, expected[1:], strict=True):
        torch.testing.assert_close(gradient.cpu(), wanted, atol=5e-2, rtol=5e-2)
