"""The decoders on tiny BARTs, three ways: passages shared, a cache for each sequence, and no cache at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ragx.decoding import closed_set, fast, greedy, thorough, token_beam
from ragx.decoding.batch import Decode
from ragx.decoding.settings import DecodingSettings
from ragx.generator.seq2seq import Encoded, Seq2SeqGenerator
from ragx.losses import rag_sequence, rag_token
from ragx.records import Hypothesis
from tests.generator.tiny_models import tiny_model

DECODERS: dict[str, Decode] = {
    "thorough": thorough.decode,
    "fast": fast.decode,
    "token_beam": token_beam.decode,
    "greedy": greedy.decode,
}
SETTINGS = DecodingSettings(num_beams=3, num_return_sequences=4, max_length=7)
every_decoder = pytest.mark.parametrize("name", DECODERS)


class Plain:
    """A generator without `grouped`; `recompute` also does without any cache."""

    def __init__(self, generator: Seq2SeqGenerator, *, recompute: bool = False) -> None:
        self._generator, self._recompute = generator, recompute
        self.vocab_size, self.pad_token_id = generator.vocab_size, generator.pad_token_id
        self.eos_token_id, self.decoder_start_token_id = generator.eos_token_id, generator.decoder_start_token_id

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Encoded:
        return self._generator.encode(input_ids, attention_mask)

    def token_logprobs(self, encoded: Encoded, labels: Tensor, rows: Tensor) -> Tensor:
        return self._generator.token_logprobs(encoded, labels, rows)

    def begin(self, encoded: Encoded, rows: Tensor) -> Any:
        if self._recompute:
            return encoded, rows, torch.zeros(len(rows), 0, dtype=torch.long)
        return self._generator.begin(encoded, rows)

    def next_logprobs(self, state: Any, token_ids: Tensor) -> tuple[Tensor, Any]:
        if not self._recompute:
            return self._generator.next_logprobs(state, token_ids)
        encoded, rows, said = state
        said = torch.cat([said, token_ids.unsqueeze(1)], 1)
        logits = self._generator.model(
            encoder_outputs=(encoded.hidden[rows],),
            attention_mask=encoded.mask[rows],
            decoder_input_ids=said,
            use_cache=False,
        ).logits
        return logits[:, -1].log_softmax(-1), (encoded, rows, said)

    def reorder(self, state: Any, index: Tensor) -> Any:
        if not self._recompute:
            return self._generator.reorder(state, index)
        encoded, rows, said = state
        return encoded, rows[index], said[index]


@dataclass(frozen=True)
class Questions:
    """Token ids of B questions with K passages each, of unequal lengths, and p(z|x)."""

    ids: Tensor
    mask: Tensor
    doc_logprobs: Tensor

    @classmethod
    def random(cls, seed: int, *, n_questions: int = 3, n_docs: int = 3, vocab_size: int = 380) -> Questions:
        generator = torch.Generator().manual_seed(seed)
        n_rows = n_questions * n_docs
        ids = torch.randint(5, vocab_size, (n_rows, 10), generator=generator)
        lengths = torch.randint(3, 11, (n_rows, 1), generator=generator)
        scores = torch.randn(n_questions, n_docs, generator=generator)
        return cls(ids, (torch.arange(10) < lengths).long(), scores.log_softmax(1))

    def only(self, questions: Sequence[int]) -> Questions:
        n_docs = self.doc_logprobs.shape[1]
        rows = [question * n_docs + k for question in questions for k in range(n_docs)]
        return Questions(self.ids[rows], self.mask[rows], self.doc_logprobs[list(questions)])

    def padded(self, by: int) -> Questions:
        pad = torch.nn.functional.pad
        return Questions(pad(self.ids, (0, by), value=9), pad(self.mask, (0, by)), self.doc_logprobs)

    def answer(self, decode: Decode, generator: Any, settings: DecodingSettings = SETTINGS) -> list[list[Hypothesis]]:
        with torch.no_grad():
            encoded = generator.encode(self.ids, self.mask)
        return decode(generator, encoded, self.doc_logprobs, settings=settings)


def assert_same(left: list[list[Hypothesis]], right: list[list[Hypothesis]], *, tolerance: float = 1e-5) -> None:
    for ours, theirs in zip(left, right, strict=True):
        assert [h.token_ids for h in ours] == [h.token_ids for h in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.produced_by == b.produced_by
            for name in ("logprob", "passage_logprobs", "doc_posterior"):
                assert getattr(a, name) == pytest.approx(getattr(b, name), abs=tolerance, rel=tolerance)


@pytest.fixture(params=["bart", "mbart"])
def generator(request: pytest.FixtureRequest, byte_level_tokenizer: Any) -> Seq2SeqGenerator:
    """Random weights that do not repeat what they read, and that end answers at any length up to `max_length`."""
    model = tiny_model(request.param, len(byte_level_tokenizer))
    model.lm_head.weight = torch.nn.Parameter(0.4 * torch.randn_like(model.lm_head.weight))
    model.final_logits_bias[0] = 0.0
    model.final_logits_bias[0, 60:] = -20.0
    model.final_logits_bias[0, 2] = {"bart": 2.0, "mbart": 3.0}[request.param]
    return Seq2SeqGenerator(model, byte_level_tokenizer)


@every_decoder
@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("n_docs", [1, 3])
def test_sharing_a_cache_and_no_cache_agree(
    generator: Seq2SeqGenerator, name: str, num_beams: int, n_docs: int
) -> None:
    settings = replace(SETTINGS, num_beams=num_beams)
    questions = Questions.random(num_beams, n_docs=n_docs)
    shared = questions.answer(DECODERS[name], generator, settings)
    for recompute in (False, True):
        assert_same(shared, questions.answer(DECODERS[name], Plain(generator, recompute=recompute), settings))
    lengths = {len(h.token_ids) for hypotheses in shared for h in hypotheses}
    assert name == "greedy" or num_beams == 1 or len(lengths) > 2, "answers of one length would not test who leaves"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, length_penalty=1.0),
        replace(SETTINGS, early_stopping=True, min_length=3),
        replace(SETTINGS, force_eos=True, no_repeat_ngram_size=2),
        replace(SETTINGS, forced_bos_token_id=0, bad_token_ids=(2, 7, 8)),
        replace(SETTINGS, max_sequences_in_flight=5),
    ],
    ids=["penalty", "early", "ngrams", "forced", "bounded"],
)
@pytest.mark.parametrize("name", ["thorough", "fast", "token_beam"])
def test_sharing_changes_no_rule(generator: Seq2SeqGenerator, name: str, settings: DecodingSettings, seed: int) -> None:
    questions = Questions.random(seed)
    assert_same(
        questions.answer(DECODERS[name], generator, settings),
        questions.answer(DECODERS[name], Plain(generator), settings),
    )


@every_decoder
@pytest.mark.parametrize("seed", range(2))
def test_an_answer_does_not_depend_on_its_company(generator: Seq2SeqGenerator, name: str, seed: int) -> None:
    """Alone, in another order, padded, with few sequences at a time: what a question gets stays what it gets."""
    questions, decode = Questions.random(seed, n_questions=5), DECODERS[name]
    together = questions.answer(decode, generator)
    assert len({round(hypotheses[0].logprob, 3) for hypotheses in together}) == 5, "equal questions would prove little"
    for question in range(5):
        assert_same([together[question]], questions.only([question]).answer(decode, generator))
    order = [3, 0, 4, 1, 2]
    assert_same([together[question] for question in order], questions.only(order).padded(6).answer(decode, generator))
    bounded = replace(SETTINGS, max_sequences_in_flight=1)
    assert_same(together, questions.answer(decode, generator, bounded))


@pytest.mark.parametrize(("name", "n_docs", "bound"), [("thorough", 50, 60), ("fast", 50, 60), ("token_beam", 15, 45)])
def test_as_many_passages_as_in_the_paper_are_read_a_few_at_a_time(
    generator: Seq2SeqGenerator, name: str, n_docs: int, bound: int
) -> None:
    """A layer of the decoder sees at most `max_sequences_in_flight` sequences, or states of so many answers that are
    scored; without the bound it sees more, and the answers are the same."""
    questions = Questions.random(3, n_questions=2, n_docs=n_docs)
    seen: list[int] = []
    layer = generator.model.get_decoder().layers[0].self_attn.q_proj
    hook = layer.register_forward_hook(lambda _, args, __: seen.append(args[0].shape[:-1].numel()))
    most = bound * SETTINGS.max_length if name == "thorough" else bound
    try:
        free = questions.answer(DECODERS[name], generator, replace(SETTINGS, max_sequences_in_flight=None))
        assert max(seen) > most
        seen.clear()
        found = questions.answer(DECODERS[name], generator, replace(SETTINGS, max_sequences_in_flight=bound))
        assert 0 < max(seen) <= most
    finally:
        hook.remove()
    assert_same(free, found)
    assert {len(h.passage_logprobs) for hypotheses in found for h in hypotheses} == {n_docs}


@pytest.mark.parametrize("name", ["thorough", "fast", "token_beam"])
def test_two_threads_give_what_one_gives(generator: Seq2SeqGenerator, name: str) -> None:
    questions, threads, found = Questions.random(0), torch.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            found.append(questions.answer(DECODERS[name], generator))
    finally:
        torch.set_num_threads(threads)
    assert_same(*found)


@pytest.mark.parametrize(("name", "loss"), [("thorough", rag_sequence), ("token_beam", rag_token)])
def test_scores_are_those_of_the_loss(generator: Seq2SeqGenerator, name: str, loss: Any) -> None:
    """log p(y|x) is what the loss module says of these labels, teacher forced; fast never says more than thorough."""
    questions = Questions.random(1)
    bound = {
        (question, h.token_ids): h.logprob
        for question, hypotheses in enumerate(questions.answer(fast.decode, generator))
        for h in hypotheses
    }
    with torch.no_grad():
        encoded = generator.encode(questions.ids, questions.mask)
        for question, hypotheses in enumerate(questions.answer(DECODERS[name], generator)):
            for h in hypotheses:
                rows = torch.arange(3) + 3 * question
                tokens = generator.token_logprobs(encoded, torch.tensor([h.token_ids]).expand(3, -1), rows)
                expected = loss.marginalize(tokens.unsqueeze(0), questions.doc_logprobs[question : question + 1])
                assert h.logprob == pytest.approx(float(expected), abs=1e-5, rel=1e-6)
                if name == "thorough":
                    assert bound.get((question, h.token_ids), h.logprob) <= h.logprob + 1e-5


def test_num_beams_are_searched_per_passage_and_answers_come_back_by_their_marginal(
    generator: Seq2SeqGenerator,
) -> None:
    """Four beams, two answers, three passages: each passage's own beam finds four, two come back, best first, and none
    opens with a BOS that nobody asked for."""
    generator.model.final_logits_bias[0, 0] = -1e9
    questions = Questions.random(2)
    settings = replace(SETTINGS, num_beams=4, num_return_sequences=99)
    all_found = questions.answer(thorough.decode, generator, settings)
    for question, found in enumerate(
        questions.answer(thorough.decode, generator, replace(settings, num_return_sequences=2))
    ):
        everything = all_found[question]
        assert [sum(k in h.produced_by for h in everything) for k in range(3)] == [4, 4, 4]
        assert [h.token_ids for h in found] == [h.token_ids for h in everything[:2]]
        assert [h.logprob for h in everything] == sorted((h.logprob for h in everything), reverse=True)
        assert all(h.token_ids[0] != 0 for h in everything)


def test_hidden_defaults_of_a_checkpoint_have_no_say(generator: Seq2SeqGenerator) -> None:
    """A checkpoint may ask for 50 tokens, forced ones and no repeats; what decides is `DecodingSettings` alone."""
    questions = Questions.random(0)
    before = [questions.answer(decode, generator) for decode in DECODERS.values()]
    settings = generator.model.generation_config
    settings.min_length, settings.max_length, settings.num_beams, settings.no_repeat_ngram_size = 50, 60, 9, 1
    settings.forced_bos_token_id, settings.forced_eos_token_id, settings.length_penalty = 0, 2, 9.0
    assert [questions.answer(decode, generator) for decode in DECODERS.values()] == before
    assert {len(h.token_ids) for answers in before for hypotheses in answers for h in hypotheses} <= set(range(1, 8))


@pytest.mark.parametrize("likelihood", closed_set.LIKELIHOODS)
def test_a_closed_set_of_single_tokens_takes_one_decoder_step(generator: Seq2SeqGenerator, likelihood: str) -> None:
    """Three labels, questions and passages: one forward pass over nine prefixes, and both likelihoods agree."""
    seen: list[torch.Size] = []
    hook = (
        generator.model.get_decoder()
        .layers[0]
        .fc1.register_forward_hook(lambda _, args, __: seen.append(args[0].shape))
    )
    questions = Questions.random(4)
    try:
        found = questions.answer(closed_set.among([[30], [40], [50]], likelihood=likelihood), generator)
    finally:
        hook.remove()
    assert seen == [(9, 16)]
    with torch.no_grad():
        encoded = generator.encode(questions.ids, questions.mask)
    start = torch.full((9,), generator.decoder_start_token_id)
    logprobs, _ = generator.next_logprobs(generator.begin(encoded, torch.arange(9)), start)
    expected = (questions.doc_logprobs.unsqueeze(2) + logprobs.view(3, 3, -1)).logsumexp(1)
    for question, hypotheses in enumerate(found):
        values = {h.token_ids[0]: h.logprob for h in hypotheses}
        assert values == pytest.approx({v: float(expected[question, v].detach()) for v in (30, 40, 50)}, abs=1e-5)
