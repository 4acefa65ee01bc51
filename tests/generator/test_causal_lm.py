"""A decoder-only generator: each number against a plain pass of transformers over one question with one passage."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragx.decoding import fast, thorough, token_beam
from ragx.decoding.settings import DecodingSettings
from ragx.errors import CheckpointError, ConfigError, ShapeError
from ragx.generator.causal_lm import CausalLMGenerator, Read
from ragx.losses import rag_sequence, rag_token
from ragx.model import RagModel
from ragx.protocols import Generator
from ragx.records import Example, Passage, Retrieved
from ragx.training.checkpoint import load_checkpoint, save_checkpoint
from ragx.training.loop import train
from ragx.training.rag_checkpoint import export_rag
from ragx.training.settings import TrainingSettings
from tests.generator.tiny_models import causal_model

FAMILIES = ["gpt2", "llama"]
QUERIES = ["Who led Peru?", "Which is the capital of Chile, and who led it?"]
ANSWERS = ["García", "Santiago de Chile", "", "x"]
SEPARATOR = "\nA:"


@pytest.fixture(params=FAMILIES)
def generator(request: pytest.FixtureRequest, byte_level_tokenizer: Any) -> CausalLMGenerator:
    model = causal_model(request.param, len(byte_level_tokenizer) + 4)
    return CausalLMGenerator(model, byte_level_tokenizer, separator=SEPARATOR)


@pytest.fixture
def inputs(generator: CausalLMGenerator, tiny_passages: list[Passage]) -> tuple[Tensor, Tensor]:
    """Four prompts of unequal length: two queries with two passages each."""
    built = generator.inputs.build(QUERIES, [tiny_passages[:2], tiny_passages[2:4]])
    return built.input_ids, built.attention_mask


def left_padded(ids: Tensor, mask: Tensor, *, pad: int) -> tuple[Tensor, Tensor]:
    """The same rows with their padding, and two places more of it, on the left."""
    wide = torch.full((len(ids), ids.shape[1] + 2), pad)
    seen = torch.zeros_like(wide)
    for row, (tokens, real) in enumerate(zip(ids, mask.bool(), strict=True)):
        wide[row, wide.shape[1] - int(real.sum()) :] = tokens[real]
        seen[row, wide.shape[1] - int(real.sum()) :] = 1
    return wide, seen


def plain(model: Any, prompt: Tensor, answer: list[int]) -> Tensor:
    """log p of each token of an answer behind a prompt, by one pass over this one text, and of the next: (T+1, V)."""
    text = torch.cat([prompt, torch.tensor(answer, dtype=torch.long)])
    logits = model(input_ids=text.unsqueeze(0), use_cache=False).logits[0]
    return logits[len(prompt) - 1 :].log_softmax(-1)


def expected_logprobs(generator: CausalLMGenerator, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
    rows = []
    for tokens, real, row in zip(ids, mask.bool(), labels, strict=True):
        answer = [int(t) for t in row if t >= 0]
        scored = plain(generator.model, tokens[real], answer)[:-1].gather(1, torch.tensor(answer).unsqueeze(1))
        rows.append(torch.nn.functional.pad(scored.squeeze(1), (0, len(row) - len(answer))))
    return torch.stack(rows)


def test_a_prompt_reads_title_text_query_and_separator(generator: CausalLMGenerator, tiny_passages: Any) -> None:
    built = generator.inputs.build(["Who?"], [tiny_passages[:1]])
    text = generator.tokenizer.decode(built.input_ids[0], skip_special_tokens=True)
    assert text == f"{tiny_passages[0].title} / {tiny_passages[0].text} // Who?{SEPARATOR}"
    assert built.input_ids[0, -1] == generator.decoder_start_token_id
    assert built.input_ids[0, -1] != generator.eos_token_id
    alone = generator.inputs.build(["Who?"], None)
    assert generator.tokenizer.decode(alone.input_ids[0], skip_special_tokens=True) == f"Who?{SEPARATOR}"


def test_only_passage_text_is_cut(byte_level_tokenizer: Any, tiny_passages: list[Passage]) -> None:
    model = causal_model("gpt2", len(byte_level_tokenizer))
    generator = CausalLMGenerator(model, byte_level_tokenizer, separator=SEPARATOR, max_length=30)
    built = generator.inputs.build(["Who led Peru?"], [tiny_passages[:1]])
    text = generator.tokenizer.decode(built.input_ids[0], skip_special_tokens=True)
    assert built.input_ids.shape[1] <= 30 and built.cut_tokens[0] > 0
    assert text.startswith("Peru / Lima") and text.endswith(f" // Who led Peru?{SEPARATOR}")
    start, end = built.visible[0]
    assert tiny_passages[0].text[start:end] in text and end < len(tiny_passages[0].text)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("gradient", [True, False], ids=["one_pass", "cached"])
def test_log_probabilities_are_those_of_one_text_alone(
    generator: CausalLMGenerator, inputs: tuple[Tensor, Tensor], side: str, gradient: bool
) -> None:
    ids, mask = inputs
    labels = generator.inputs.labels(ANSWERS, max_length=20)
    expected = expected_logprobs(generator, ids, mask, labels)
    if side == "left":
        ids, mask = left_padded(ids, mask, pad=generator.pad_token_id)
    with torch.set_grad_enabled(gradient):
        found = generator.token_logprobs(generator.encode(ids, mask), labels, torch.arange(4))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    assert (found[labels < 0] == 0).all() and found.dtype == torch.float32


def test_gradients_are_those_of_one_text_at_a_time(generator: CausalLMGenerator, inputs: tuple[Tensor, Tensor]) -> None:
    generator.double()
    labels = generator.inputs.labels(ANSWERS, max_length=20)
    gradients = []
    for score in (
        lambda: generator.token_logprobs(generator.encode(*inputs), labels, torch.arange(4)),
        lambda: expected_logprobs(generator, *inputs, labels),
    ):
        generator.zero_grad()
        score().sum().backward()
        gradients.append({name: p.grad.clone() for name, p in generator.named_parameters() if p.grad is not None})
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-8, rtol=1e-6)


def test_the_cache_gives_what_one_pass_gives(generator: CausalLMGenerator, inputs: tuple[Tensor, Tensor]) -> None:
    """Sequences fork, change rows and are dropped, and an old state is gone on from twice."""
    ids, mask = inputs
    with torch.no_grad():
        encoded = generator.encode(ids, mask)
        said: list[list[int]] = [[], [], []]
        rows = torch.tensor([2, 0, 1])
        state = generator.begin(encoded, rows)
        tokens = torch.full((3,), generator.decoder_start_token_id)
        torch.manual_seed(1)
        for index in ([0, 1, 2], [2, 2, 0, 1], [3, 0]):
            logprobs, state = generator.next_logprobs(state, tokens)
            expected = [plain(generator.model, ids[r][mask[r].bool()], s)[-1] for s, r in zip(said, rows, strict=True)]
            torch.testing.assert_close(logprobs, torch.stack(expected), atol=2e-5, rtol=1e-5)
            state, rows = generator.reorder(state, torch.tensor(index)), rows[torch.tensor(index)]
            tokens = torch.randint(5, generator.vocab_size, (len(index),))
            said = [[*said[i], int(token)] for i, token in zip(index, tokens, strict=True)]
        first, _ = generator.next_logprobs(state, tokens)
        generator.next_logprobs(state, tokens + 1 - 2 * (tokens > 5).long())
        again, _ = generator.next_logprobs(state, tokens)
    assert torch.equal(first, again)


def test_a_row_without_a_token_gives_numbers(generator: CausalLMGenerator, inputs: tuple[Tensor, Tensor]) -> None:
    ids, mask = inputs
    mask[1] = 0
    labels = generator.inputs.labels(ANSWERS, max_length=20)
    with torch.no_grad():
        found = generator.token_logprobs(generator.encode(ids, mask), labels, torch.arange(4))
    assert found.isfinite().all()


@pytest.mark.parametrize("decode", [token_beam.decode, thorough.decode, fast.decode], ids=["token", "thorough", "fast"])
def test_the_decoders_report_what_the_likelihood_says(
    generator: CausalLMGenerator, inputs: tuple[Tensor, Tensor], decode: Any
) -> None:
    encoded = generator.encode(*inputs)
    doc_logprobs = torch.tensor([[0.55, 0.45], [0.3, 0.7]]).log()
    settings = DecodingSettings(num_beams=3, num_return_sequences=2, max_length=5)
    found = decode(generator, encoded, doc_logprobs, settings=settings)
    likelihood = rag_token if decode is token_beam.decode else rag_sequence
    for question, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            labels = torch.tensor([hypothesis.token_ids])
            with torch.no_grad():
                scored = generator.token_logprobs(
                    encoded, labels.expand(2, -1), torch.tensor([2 * question, 2 * question + 1])
                )
            marginal = likelihood.marginalize(scored.unsqueeze(0), doc_logprobs[question : question + 1])
            if decode is fast.decode:
                assert hypothesis.logprob <= float(marginal) + 1e-4
            else:
                assert hypothesis.logprob == pytest.approx(float(marginal), abs=1e-4)


def retrieved(passages: list[Passage]) -> Retrieved:
    rows = [passages[:2], passages[2:4]]
    scores = np.array([[0.3, -0.2], [0.1, 0.5]], dtype=np.float32)
    return Retrieved(rows, np.arange(4).reshape(2, 2), None, scores, "none")


@pytest.mark.parametrize("kind", ["rag_sequence", "rag_token"])
def test_the_model_trains_answers_and_comes_back_from_a_checkpoint(
    generator: CausalLMGenerator, tiny_passages: list[Passage], kind: str, tmp_path: Path
) -> None:
    model = RagModel(kind=kind, generator=generator, n_docs=2)
    brought = retrieved(tiny_passages)
    before = float(model(QUERIES, ANSWERS[:2], retrieved=brought).loss.detach())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model.train()
    for at_once in (0, 1):
        model.passages_at_once = at_once
        optimizer.zero_grad()
        model(QUERIES, ANSWERS[:2], retrieved=brought).loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        after = model(QUERIES, ANSWERS[:2], retrieved=brought).nll
    assert float(after.mean()) < before
    save_checkpoint(model, tmp_path / "saved")
    loaded = load_checkpoint(tmp_path / "saved")
    assert isinstance(loaded.generator, CausalLMGenerator)
    assert loaded.generator.inputs.separator == SEPARATOR
    assert loaded.generator.fingerprint() == generator.fingerprint()
    settings = DecodingSettings(num_beams=2, max_length=4)
    decoder = {"rag_sequence": "thorough", "rag_token": "token_beam"}[kind]
    answers = [m.generate(QUERIES, decoder=decoder, settings=settings, retrieved=brought) for m in (model, loaded)]
    assert [a.hypotheses for a in answers[0]] == [a.hypotheses for a in answers[1]]


def test_passages_in_groups_give_the_same_gradients(generator: CausalLMGenerator, tiny_passages: list[Passage]) -> None:
    model = RagModel(kind="rag_token", generator=generator, n_docs=2).double()
    found: list[dict[str, Tensor]] = []
    for at_once in (0, 1):
        model.passages_at_once = at_once
        model.zero_grad()
        model(QUERIES, ANSWERS[:2], retrieved=retrieved(tiny_passages), label_smoothing=0.1).loss.backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(found[0], found[1], atol=1e-9, rtol=1e-7)


def test_closed_book_runs_through_the_training_loop(generator: CausalLMGenerator, tmp_path: Path) -> None:
    examples = [
        Example(str(n), query, (answer,)) for n, (query, answer) in enumerate(zip(QUERIES, ANSWERS[:2], strict=True))
    ]
    settings = TrainingSettings(steps=2, batch_size=2, generator_lr=1e-2, progress=False, device="cpu")
    result = train(RagModel(kind="closed_book", generator=generator), examples, settings=settings, run_dir=tmp_path)
    assert load_checkpoint(result.checkpoint).generator.fingerprint() == generator.fingerprint()


def test_a_tokenizer_without_padding_pads_with_eos(byte_level_tokenizer: Any) -> None:
    tokenizer = copy.deepcopy(byte_level_tokenizer)
    tokenizer.pad_token = None
    generator = CausalLMGenerator(causal_model("gpt2", len(tokenizer)), tokenizer)
    assert generator.pad_token_id == generator.eos_token_id
    labels = torch.tensor([[40, 2, 2, 2], [41, 42, 43, 2]])
    built = generator.inputs.build(["a", "b"], None)
    found = generator.token_logprobs(generator.encode(built.input_ids, built.attention_mask), labels, torch.arange(2))
    assert found[0, 2:].tolist() == [0.0, 0.0] and (found[0, :2] < 0).all() and (found[1] < 0).all()


def test_it_offers_what_the_protocol_asks(generator: CausalLMGenerator) -> None:
    assert isinstance(generator, Generator)


def test_the_prompt_is_read_once_whatever_is_asked(
    generator: CausalLMGenerator, inputs: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    states: Callable[..., Tensor] = generator.states

    def counted(ids: Tensor, mask: Tensor, **options: Any) -> Tensor:
        lengths.append(ids.shape[1])
        return states(ids, mask, **options)

    monkeypatch.setattr(generator, "states", counted)
    settings = DecodingSettings(num_beams=2, max_length=3)
    encoded = generator.encode(*inputs)
    thorough.decode(generator, encoded, torch.full((2, 2), 0.5).log(), settings=settings)
    assert isinstance(encoded, Read)
    assert lengths[0] == inputs[0].shape[1] and all(length <= 3 for length in lengths[1:])


def test_what_cannot_be_right_is_refused(byte_level_tokenizer: Any, tmp_path: Path) -> None:
    size = len(byte_level_tokenizer)
    with pytest.raises(ConfigError, match=r"generator\.separator must be at least one token, got ''"):
        CausalLMGenerator(causal_model("gpt2", size), byte_level_tokenizer, separator="")
    scaled = causal_model("gpt2", size)
    scaled.lm_head.register_forward_hook(lambda module, inputs, output: output * 0.5)
    with pytest.raises(CheckpointError, match="GPT2LMHeadModel, whose are not"):
        CausalLMGenerator(scaled, byte_level_tokenizer)
    with pytest.raises(CheckpointError, match="folder or hub name of a decoder-only model"):
        CausalLMGenerator.from_pretrained(tmp_path)


def test_it_cannot_be_exported_as_a_rag_checkpoint(
    generator: CausalLMGenerator, query_encoder: Any, tmp_path: Path
) -> None:
    model = RagModel(kind="rag_token", generator=generator, query_encoder=query_encoder)
    with pytest.raises(CheckpointError, match="generator must be an encoder-decoder to export, got"):
        export_rag(model, tmp_path / "out")


def test_targets_must_fit_the_rows(generator: CausalLMGenerator, inputs: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ShapeError, match="encoded must have 2 x 3 rows"):
        generator.target_logprobs(generator.encode(*inputs), torch.tensor([[5, 2], [5, 2]]), n_docs=3)
