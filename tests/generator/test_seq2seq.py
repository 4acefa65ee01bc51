"""The generator against transformers' own logits, and its cache against no cache, for BART, T5 and mBART."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ragx.errors import CheckpointError, ShapeError
from ragx.generator import seq2seq
from ragx.generator.seq2seq import Encoded, Seq2SeqGenerator
from ragx.protocols import Generator
from ragx.records import Passage
from tests.generator.tiny_models import tiny_model

FAMILIES = ["bart", "t5", "t5_unscaled", "mbart"]
QUERIES = ["Who led Peru?", "Which is the capital of Chile, and who led it?"]
ANSWERS = ["García", "Santiago de Chile", "", "x"]


@pytest.fixture(params=FAMILIES)
def family_generator(request: pytest.FixtureRequest, byte_level_tokenizer: Any) -> Seq2SeqGenerator:
    # More entries than the tokenizer has, as T5 checkpoints come.
    return Seq2SeqGenerator(tiny_model(request.param, len(byte_level_tokenizer) + 4), byte_level_tokenizer)


def encode(generator: Seq2SeqGenerator, passages: list[Passage]) -> Encoded:
    """Four rows: two queries with two passages each."""
    inputs = generator.inputs.build(QUERIES, [passages[:2], passages[2:4]])
    return generator.encode(inputs.input_ids, inputs.attention_mask)


def test_it_offers_what_the_protocol_asks(generator: Seq2SeqGenerator) -> None:
    assert isinstance(generator, Generator)


def test_token_logprobs_and_gradients_equal_those_of_the_transformers_logits(
    family_generator: Seq2SeqGenerator, tiny_passages: list[Passage]
) -> None:
    generator, model = family_generator, family_generator.model
    labels = generator.inputs.labels(ANSWERS, max_length=20)
    inputs = generator.inputs.build(QUERIES, [tiny_passages[:2], tiny_passages[2:4]])
    ours = generator.token_logprobs(
        generator.encode(inputs.input_ids, inputs.attention_mask), labels, torch.arange(len(labels))
    )
    ours.sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()

    start = torch.full((len(labels), 1), generator.decoder_start_token_id)
    decoder_input_ids = torch.cat([start, labels[:, :-1].clamp(min=0)], dim=1)
    logits = model(
        input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, decoder_input_ids=decoder_input_ids
    ).logits
    peer = logits.log_softmax(-1).gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2).masked_fill(labels < 0, 0.0)
    peer.sum().backward()
    torch.testing.assert_close(ours, peer, atol=1e-5, rtol=1e-5)
    assert gradients.keys() == {name for name, p in model.named_parameters() if p.grad is not None}
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad, atol=1e-4, rtol=1e-4, msg=name)


def test_mean_loss_equals_that_of_transformers_given_labels(generator: Seq2SeqGenerator) -> None:
    """transformers shifts the labels itself: both start the decoder alike and score every label, the first too."""
    labels = generator.inputs.labels(ANSWERS, max_length=20)
    inputs = generator.inputs.build(ANSWERS, None)
    encoded = generator.encode(inputs.input_ids, inputs.attention_mask)
    ours = generator.token_logprobs(encoded, labels, torch.arange(len(labels)))
    peer = generator.model(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, labels=labels).loss
    torch.testing.assert_close(-ours.sum() / (labels >= 0).sum(), peer, atol=1e-5, rtol=1e-5)


def test_the_cache_gives_what_teacher_forcing_gives(
    family_generator: Seq2SeqGenerator, tiny_passages: list[Passage]
) -> None:
    """Sequences fork, change rows, are dropped, and an old state is gone on from twice."""
    generator = family_generator
    encoded = encode(generator, tiny_passages)
    said: list[list[int]] = [[], [], []]
    rows = torch.tensor([2, 0, 0])
    state = generator.begin(encoded, rows)
    tokens = torch.full((3,), generator.decoder_start_token_id)
    torch.manual_seed(1)
    for index in ([0, 1, 2], [2, 2, 0, 1], [3, 0, 1, 1], [1, 2, 3], [2, 0]):
        logprobs, state = generator.next_logprobs(state, tokens)
        assert logprobs.dtype == torch.float32 and logprobs.shape == (len(tokens), generator.vocab_size)
        expected = torch.stack([last_logprobs(generator, encoded, s, r) for s, r in zip(said, rows, strict=True)])
        torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=1e-5)
        state, rows = generator.reorder(state, torch.tensor(index)), rows[torch.tensor(index)]
        tokens = torch.randint(5, generator.vocab_size, (len(index),))
        said = [[*said[i], int(token)] for i, token in zip(index, tokens, strict=True)]

    first, _ = generator.next_logprobs(state, tokens)
    generator.next_logprobs(state, tokens + 1 - 2 * (tokens > 5).long())
    again, _ = generator.next_logprobs(state, tokens)
    assert torch.equal(first, again)


def last_logprobs(generator: Seq2SeqGenerator, encoded: Encoded, said: list[int], row: Tensor) -> Tensor:
    """Log-probabilities after `said`, by one forward pass without a cache."""
    output = generator.model(
        encoder_outputs=(encoded.hidden[row : row + 1],),
        attention_mask=encoded.mask[row : row + 1],
        decoder_input_ids=torch.tensor([[generator.decoder_start_token_id, *said]]),
        use_cache=False,
    )
    return output.logits[0, -1].log_softmax(-1)


def test_rows_say_what_each_sequence_is_read_against(
    family_generator: Seq2SeqGenerator, tiny_passages: list[Passage]
) -> None:
    generator = family_generator
    encoded = encode(generator, tiny_passages)
    labels = generator.inputs.labels(["Lima"], max_length=9)
    alone = [generator.token_logprobs(encoded, labels, torch.tensor([row])) for row in range(4)]
    rows = torch.tensor([3, 0, 0, 2, 1, 3])
    together = generator.token_logprobs(encoded, labels.expand(6, -1), rows)
    torch.testing.assert_close(together, torch.cat([alone[row] for row in rows]), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(alone[0], alone[3], atol=1e-3)


def test_padding_of_inputs_and_labels_changes_nothing(
    family_generator: Seq2SeqGenerator, tiny_passages: list[Passage]
) -> None:
    generator = family_generator
    inputs = generator.inputs.build(QUERIES, [tiny_passages[:1]] * 2)
    labels = generator.inputs.labels(["Lima", "x"], max_length=9)
    rows = torch.arange(2)
    plain = generator.token_logprobs(generator.encode(inputs.input_ids, inputs.attention_mask), labels, rows)
    pad = torch.nn.functional.pad
    wide = generator.encode(
        pad(inputs.input_ids, (0, 7), value=generator.pad_token_id), pad(inputs.attention_mask, (0, 7))
    )
    for filler in (-100, generator.pad_token_id):
        padded = generator.token_logprobs(wide, pad(labels, (0, 5), value=filler), rows)
        torch.testing.assert_close(padded[:, : labels.shape[1]], plain, atol=1e-5, rtol=1e-5)
        assert torch.equal(padded[:, labels.shape[1] :], torch.zeros(2, 5))


@pytest.mark.parametrize("at_once", [1, 60, 10**6])
def test_passages_encoded_in_parts_are_those_encoded_together(
    family_generator: Seq2SeqGenerator, tiny_passages: list[Passage], monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(seq2seq, "ENCODED_AT_ONCE", at_once)
    together = encode(family_generator, tiny_passages)
    with torch.no_grad():
        parts = encode(family_generator, tiny_passages)
    real = together.mask.bool()
    assert real.sum(1).unique().numel() > 1  # rows of unequal length
    torch.testing.assert_close(parts.hidden[real], together.hidden[real], atol=1e-5, rtol=1e-5)
    assert torch.equal(parts.mask, together.mask) and parts.hidden.isfinite().all()


def test_encoding_without_a_gradient_holds_a_part_of_the_activations(
    generator: Seq2SeqGenerator, tiny_passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seq2seq, "ENCODED_AT_ONCE", 64)
    read: list[torch.Size] = []
    generator.model.get_encoder().layers[0].fc1.register_forward_hook(
        lambda module, inputs, output: read.append(inputs[0].shape[:2])
    )
    inputs = generator.inputs.build(QUERIES, [tiny_passages[:2], tiny_passages[2:4]])
    with torch.no_grad():
        generator.encode(inputs.input_ids, inputs.attention_mask)
    lengths = sorted(inputs.attention_mask.sum(1).tolist())
    assert [tuple(shape) for shape in read] == [(1, length) for length in lengths]


def test_a_pad_token_inside_an_answer_is_scored_as_decoding_scores_it(generator: Seq2SeqGenerator) -> None:
    """A decoder may produce it: were it ignored, thorough decoding would count it as certain."""
    inputs = generator.inputs.build(["x"], None)
    encoded, rows = generator.encode(inputs.input_ids, inputs.attention_mask), torch.arange(1)
    pad, eos = generator.pad_token_id, generator.eos_token_id
    said = [40, pad, 41, eos]
    scored = generator.token_logprobs(encoded, torch.tensor([[*said, pad, pad]]), rows)[0]
    state, fed, expected = generator.begin(encoded, rows), generator.decoder_start_token_id, []
    for token in said:
        logprobs, state = generator.next_logprobs(state, torch.tensor([fed]))
        expected.append(logprobs[0, token])
        fed = token
    torch.testing.assert_close(scored[:4], torch.stack(expected), atol=1e-5, rtol=1e-5)
    assert scored[4:].tolist() == [0.0, 0.0]


def test_a_single_token_target_is_scored(generator: Seq2SeqGenerator) -> None:
    inputs = generator.inputs.build(["x"], None)
    encoded = generator.encode(inputs.input_ids, inputs.attention_mask)
    scored = generator.token_logprobs(encoded, torch.tensor([[40]]), torch.arange(1))
    start = torch.tensor([generator.decoder_start_token_id])
    logprobs, _ = generator.next_logprobs(generator.begin(encoded, torch.arange(1)), start)
    torch.testing.assert_close(scored[0, 0], logprobs[0, 40], atol=1e-5, rtol=1e-5)
    assert scored.item() < -0.1


def test_a_bfloat16_model_gives_float32_log_probabilities(tiny_bart: Path, tiny_passages: list[Passage]) -> None:
    full = Seq2SeqGenerator.from_pretrained(tiny_bart)
    half = Seq2SeqGenerator.from_pretrained(tiny_bart, dtype=torch.bfloat16)
    labels, rows = full.inputs.labels(["Lima", "x"], max_length=9), torch.tensor([0, 3])
    scored = half.token_logprobs(encode(half, tiny_passages), labels, rows)
    start = torch.full((2,), half.decoder_start_token_id)
    following, _ = half.next_logprobs(half.begin(encode(half, tiny_passages), rows), start)
    assert scored.dtype == following.dtype == torch.float32
    # Normalized in float32: in bfloat16 380 rounded probabilities would miss 1 by about 1e-2.
    torch.testing.assert_close(following.exp().sum(1), torch.ones(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        scored, full.token_logprobs(encode(full, tiny_passages), labels, rows), atol=0.3, rtol=0.05
    )


def test_labels_of_another_vocabulary_are_refused_with_their_position(generator: Seq2SeqGenerator) -> None:
    inputs = generator.inputs.build(["x", "y"], None)
    encoded = generator.encode(inputs.input_ids, inputs.attention_mask)
    labels = torch.tensor([[5, 2], [5, 30000]])
    with pytest.raises(ShapeError, match=r"labels must be -100 or in \[0, 3\d\d\), got 30000 at position \(1, 1\)"):
        generator.token_logprobs(encoded, labels, torch.arange(2))


def test_targets_must_fit_the_rows(generator: Seq2SeqGenerator) -> None:
    inputs = generator.inputs.build(["x", "y"], None)
    encoded = generator.encode(inputs.input_ids, inputs.attention_mask)
    with pytest.raises(ShapeError, match="encoded must have 2 x 3 rows"):
        generator.target_logprobs(encoded, torch.tensor([[5, 2], [5, 2]]), n_docs=3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_generator_comes_back_the_same(
    family: str, byte_level_tokenizer: Any, tiny_passages: list[Passage], tmp_path: Path
) -> None:
    before = Seq2SeqGenerator(tiny_model(family, len(byte_level_tokenizer)), byte_level_tokenizer)
    before.save_pretrained(tmp_path)
    after = Seq2SeqGenerator.from_pretrained(tmp_path)
    assert after.fingerprint() == before.fingerprint()
    labels = before.inputs.labels(ANSWERS, max_length=9)
    scored = [g.token_logprobs(encode(g, tiny_passages), labels, torch.arange(4)) for g in (before, after)]
    assert torch.equal(*scored)
    with torch.no_grad():
        next(after.parameters()).view(-1)[0] += 1e-3
    assert after.fingerprint() != before.fingerprint()


def test_missing_and_surplus_weights_are_errors(tiny_bart: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    Seq2SeqGenerator.from_pretrained(tiny_bart).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    lost = next(name for name in weights if name.endswith("decoder.layers.0.fc1.weight"))
    weights["stranger.weight"] = weights.pop(lost)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"missing: {lost}; surplus: stranger.weight"):
        Seq2SeqGenerator.from_pretrained(folder)
    allowed = Seq2SeqGenerator.from_pretrained(folder, allow_keys=(lost, "stranger.weight"))
    assert torch.equal(allowed.state_dict()["model.model.shared.weight"], weights["model.shared.weight"])


def test_a_tokenizer_of_another_model_is_refused(byte_level_tokenizer: Any) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer must fit the model's vocabulary of 100, got 3\d\d tokens"):
        Seq2SeqGenerator(tiny_model("bart", 100), byte_level_tokenizer)
