"""The shared way of BART and mBART against the plain one: every number, and what is computed once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from ragx.decoding.plain import PlainGrouped
from ragx.generator.bart_decoding import ROOM
from ragx.generator.bart_grouped import BartGrouped
from ragx.generator.seq2seq import Encoded, Seq2SeqGenerator
from ragx.protocols import GroupingGenerator, Reading
from tests.generator.tiny_models import tiny_model

SHARING = ["bart", "mbart"]
N_ROWS, LENGTH = 6, 9


@pytest.fixture(params=SHARING)
def model(request: pytest.FixtureRequest, byte_level_tokenizer: Any) -> Seq2SeqGenerator:
    return Seq2SeqGenerator(tiny_model(request.param, len(byte_level_tokenizer)), byte_level_tokenizer)


def encoded(generator: Seq2SeqGenerator, *, padded: bool = True) -> Encoded:
    """Six rows of random tokens, of nine tokens or, but for one, fewer."""
    ids = torch.randint(5, generator.vocab_size, (N_ROWS, LENGTH), generator=torch.Generator().manual_seed(3))
    lengths = torch.tensor([4, 9, 6, 3, 7, 5]) if padded else torch.full((N_ROWS,), LENGTH)
    with torch.no_grad():
        return generator.encode(ids, (torch.arange(LENGTH) < lengths.unsqueeze(1)).long())


def together(reading: Reading, log_weights: Tensor, logprobs: Tensor) -> Tensor:
    """(U, M, V)."""
    return torch.cat([values.clone() for _, values in reading.continuations(log_weights, logprobs)])


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("rows", [[[0, 1], [2, 3], [4, 5]], [[0], [1], [2], [3], [4], [5]], [[5, 0, 5]]])
def test_reading_equals_the_plain_way_at_every_step(
    model: Seq2SeqGenerator, rows: list[list[int]], padded: bool
) -> None:
    """Sequences fork, change places, become more and fewer; units leave one by one, some lag behind in memory."""
    assert model.grouped is not None
    both = [
        way.begin(encoded(model, padded=padded), torch.tensor(rows)) for way in (model.grouped, PlainGrouped(model))
    ]
    generator = torch.Generator().manual_seed(0)
    n_units, n_rows, width = len(rows), len(rows[0]), 1
    log_weights = torch.randn(n_units, n_rows, generator=generator).log_softmax(1)
    tokens, parents = torch.full((n_units, 1), model.decoder_start_token_id), torch.zeros(n_units, 1, dtype=torch.long)
    with torch.no_grad():
        for step in range(7):
            logprobs = -torch.rand(n_units, tokens.shape[1], generator=generator)
            for reading in both:
                reading.feed(tokens, parents)
            ours, plain = (together(reading, log_weights, logprobs) for reading in both)
            torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)
            width = tokens.shape[1]
            where = torch.randint(0, width, (n_units, 5), generator=generator)
            what = torch.randint(0, model.vocab_size, (n_units, 5), generator=generator)
            torch.testing.assert_close(*(reading.read(where, what) for reading in both), atol=1e-5, rtol=1e-5)
            if step >= 2 and n_units > 1:
                keep = torch.tensor([unit for unit in range(n_units) if unit != step % n_units])
                for reading in both:
                    reading.keep(keep)
                n_units, log_weights = n_units - 1, log_weights[keep]
            wider = (3, 4, 2)[step % 3]
            parents = torch.randint(0, width, (n_units, wider), generator=generator)
            tokens = torch.randint(0, model.vocab_size, (n_units, wider), generator=generator)


def test_read_needs_no_mixture_before_it(model: Seq2SeqGenerator) -> None:
    assert model.grouped is not None
    first, second = (model.grouped.begin(encoded(model), torch.tensor([[0, 1]])) for _ in range(2))
    start, where = torch.full((1, 1), model.decoder_start_token_id), torch.zeros(1, 4, dtype=torch.long)
    for reading in (first, second):
        reading.feed(start, torch.zeros_like(start))
    together(second, torch.zeros(1, 2), torch.zeros(1, 1))
    tokens = torch.tensor([[0, 5, 9, 30]])
    torch.testing.assert_close(first.read(where, tokens), second.read(where, tokens), atol=1e-6, rtol=1e-6)


def test_memory_of_finished_units_is_given_back(model: Seq2SeqGenerator) -> None:
    """Eight units; one gone is kept in memory, at two gone (a quarter) what the six others hold moves together."""
    assert model.grouped is not None
    reading = model.grouped.begin(encoded(model), torch.tensor([[0], [1], [2], [3], [4], [5], [0], [1]]))
    tokens = torch.full((8, 1), model.decoder_start_token_id)
    reading.feed(tokens, torch.zeros_like(tokens))

    def rows_in_memory() -> set[int]:
        return {len(reading._passages._hidden), *(len(states) for pair in reading._said for states in pair)}

    assert rows_in_memory() == {8}
    reading.keep(torch.tensor([0, 1, 2, 3, 5, 6, 7]))
    assert rows_in_memory() == {8}
    reading.keep(torch.tensor([0, 2, 3, 4, 5, 6]))
    assert rows_in_memory() == {6}


def test_tokens_that_no_sequence_goes_back_to_are_left_behind(model: Seq2SeqGenerator) -> None:
    """Four sequences that always go on from the first: of 160 tokens fed 40 and a few are still seen."""
    assert model.grouped is not None
    rows = torch.tensor([[0, 1], [3, 2]])
    both = [way.begin(encoded(model, padded=True), rows) for way in (model.grouped, PlainGrouped(model))]
    tokens, parents = torch.full((2, 1), model.decoder_start_token_id), torch.zeros(2, 1, dtype=torch.long)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(40):
            for reading in both:
                reading.feed(tokens, parents)
            tokens = torch.randint(0, model.vocab_size, (2, 4), generator=generator)
            parents = torch.tensor([[0, 0, 0, 0], [tokens.shape[1] - 1] * 4]).clamp(max=len(parents[0]) - 1)
        where, what = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[5, 6], [7, 8]])
        torch.testing.assert_close(*(reading.read(where, what) for reading in both), atol=1e-5, rtol=1e-5)
    assert both[0]._said[0][0].shape[2] <= 40 + 2 * 4 + 2 * ROOM


@pytest.fixture
def projected(model: Seq2SeqGenerator) -> Iterator[list[int]]:
    """How many passages each key projection of the cross-attention read, in the order of the calls."""
    seen: list[int] = []
    hooks = [
        layer.encoder_attn.k_proj.register_forward_hook(lambda _, args, __: seen.append(len(args[0])))
        for layer in model.model.get_decoder().layers
    ]
    yield seen
    for hook in hooks:
        hook.remove()


def test_keys_of_a_passage_are_computed_once_and_not_for_short_answers(
    model: Seq2SeqGenerator, projected: list[int]
) -> None:
    """Two layers, heads of eight, four sequences: three steps read six passages without keys, then come the keys of
    the three that are left. And eight answers are scored against three of the passages."""
    assert model.grouped is not None
    source = encoded(model)
    reading = model.grouped.begin(source, torch.arange(6).view(2, 3))
    tokens = torch.full((2, 4), model.decoder_start_token_id)
    reading.feed(tokens[:, :1], torch.zeros(2, 1, dtype=torch.long))
    reading.feed(tokens, torch.zeros_like(tokens))
    reading.keep(torch.tensor([1]))
    assert projected == []
    for _ in range(3):
        reading.feed(tokens[:1], torch.zeros_like(tokens[:1]))
    assert projected == [3, 3]
    projected.clear()
    model.grouped.token_logprobs(source, torch.full((8, 3), 7), torch.tensor([0, 1, 5, 1, 0, 5, 5, 5]))
    assert projected == [3, 3]


def test_scoring_equals_the_plain_way(model: Seq2SeqGenerator) -> None:
    """Answers that begin alike, with EOS and without, one with a pad token inside, one empty, one twice."""
    assert model.grouped is not None
    eos, pad = model.eos_token_id, model.pad_token_id
    answers = [[7, 8, 9, eos], [7, 8, 9], [7, 8, 30, 31, eos], [7], [40, pad, 8, eos], [], [7, 8, 9, eos], [eos]]
    labels = torch.full((len(answers) * 2, 6), -100)
    for row, answer in zip(labels, [*answers, *answers], strict=True):
        row[: len(answer)] = torch.tensor(answer, dtype=torch.long)
    labels[0, 4:] = pad  # behind an EOS a pad token is padding
    rows = torch.tensor([0] * 8 + [3, 0, 5, 5, 2, 2, 0, 0])
    for padded in (True, False):
        source = encoded(model, padded=padded)
        with torch.no_grad():
            plain = model.token_logprobs(source, labels, rows)
        ours = model.grouped.token_logprobs(source, labels, rows)
        assert ours.dtype == torch.float32 and not ours.requires_grad
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)
        assert torch.equal(ours == 0, plain == 0)


def test_only_what_is_known_is_shared(byte_level_tokenizer: Any) -> None:
    """T5 has no such way, and a model in training none either: its dropout would be lost."""
    vocab_size = len(byte_level_tokenizer)
    t5 = Seq2SeqGenerator(tiny_model("t5", vocab_size), byte_level_tokenizer)
    bart = Seq2SeqGenerator(tiny_model("bart", vocab_size), byte_level_tokenizer)
    assert isinstance(t5, GroupingGenerator) and t5.grouped is None
    assert isinstance(bart.grouped, BartGrouped)
    bart.train()
    assert bart.grouped is None


def test_a_row_of_padding_alone_gives_numbers(model: Seq2SeqGenerator) -> None:
    """Nobody should read it, but a nan would spread to the questions beside it."""
    source = encoded(model)
    source.mask[2] = 0
    assert model.grouped is not None
    reading = model.grouped.begin(source, torch.arange(N_ROWS).unsqueeze(1))
    tokens = torch.full((N_ROWS, 1), model.decoder_start_token_id)
    reading.feed(tokens, torch.zeros_like(tokens))
    assert together(reading, torch.zeros(N_ROWS, 1), torch.zeros(N_ROWS, 1)).isfinite().all()


def test_half_precision(model: Seq2SeqGenerator) -> None:
    """bfloat16 throughout, float32 from the output layer on, close to the same weights in float32."""
    expected = {}
    for dtype in (torch.float32, torch.bfloat16):
        half = model.to(dtype)
        assert half.grouped is not None
        reading = half.grouped.begin(encoded(half), torch.arange(6).view(3, 2))
        tokens = torch.full((3, 1), half.decoder_start_token_id)
        reading.feed(tokens, torch.zeros_like(tokens))
        reading.feed(torch.full((3, 2), 9), torch.zeros(3, 2, dtype=torch.long))
        values = together(reading, torch.full((3, 2), 0.5).log(), torch.zeros(3, 2))
        scored = half.grouped.token_logprobs(encoded(half), torch.tensor([[9, 2]]), torch.tensor([1]))
        assert values.dtype == scored.dtype == torch.float32
        torch.testing.assert_close(values.exp().sum(2), torch.ones(3, 2), atol=1e-5, rtol=0)
        expected[dtype] = (values, scored)
    for one, other in zip(*expected.values(), strict=True):
        torch.testing.assert_close(one, other, atol=0.3, rtol=0.05)
