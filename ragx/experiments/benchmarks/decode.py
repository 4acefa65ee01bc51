"""Works `decode` and `decode_text`: from passages to the best answer (section 2.5).

    token_beam          beside RagTokenForGeneration.generate
    thorough, fast      beside RagSequenceForGeneration.generate, which is thorough; the peer has no fast decoding

Encoding the passages is part of it, encoding the question is not. `decode` has every answer go to its full length;
`decode_text` reads real texts, tokenization included, and answers end where the decoder's state says so. In bf16 both
sides hold weights in it; answers are compared in float32, before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ragx.decoding.settings import DecodingSettings
from ragx.experiments.benchmarks import agreement
from ragx.experiments.benchmarks.batches import Batch, fixed_batch
from ragx.experiments.benchmarks.cell import Cell
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.ours import Ours
from ragx.experiments.benchmarks.peer import Peer
from ragx.experiments.benchmarks.setups import lengths, setup
from ragx.experiments.benchmarks.sizes import Setup
from ragx.experiments.benchmarks.texts import Texts
from ragx.experiments.benchmarks.worker import DTYPES, Side

KINDS = {"token_beam": "rag_token", "thorough": "rag_sequence", "fast": "rag_sequence"}
_LEAST_LENGTH = 2  # the peer's RAG-Sequence loses the prior of an answer that is EOS alone
Batches = Callable[[], Sequence[Batch]]


def cells(config: Benchmark) -> Iterator[Cell]:
    """Fixed lengths: one cell per decoder, n_docs and batch size."""
    for decoder, n_docs, batch_size in product(config.decoders, config.n_docs, config.batch_sizes):
        model = setup(config, kind=KINDS[decoder], n_docs=n_docs)
        read = partial(_fixed, model, batch_size, config)
        yield _cell(config, decoder, model, batch_size, read, full_length=True)


def text_cells(config: Benchmark, texts: Texts) -> Iterator[Cell]:
    """Real texts: one cell per decoder, n_docs and batch size."""
    for decoder, n_docs, batch_size in product(config.decoders, config.n_docs, config.batch_sizes):
        model = setup(config, kind=KINDS[decoder], n_docs=n_docs, tokenizers=texts.tokenizers, short_answers=True)
        batches = texts.batches(n_docs=n_docs, batch_size=batch_size)
        yield _cell(config, decoder, model, batch_size, partial(list, batches), full_length=False)


def _fixed(model: Setup, batch_size: int, config: Benchmark) -> list[Batch]:
    return [fixed_batch(model, batch_size=batch_size, lengths=lengths(config))]


def _cell(config: Benchmark, decoder: str, model: Setup, batch_size: int, read: Batches, *, full_length: bool) -> Cell:
    longest = config.max_answer_length
    least = longest if full_length else _LEAST_LENGTH
    settings = DecodingSettings(num_beams=config.num_beams, max_length=longest, min_length=least)
    padded = not full_length
    masked = KINDS[decoder] == "rag_sequence" and (padded if config.peer_mask is None else config.peer_mask)
    agree = agreement.no_better_answers if decoder == "fast" else agreement.answers
    if padded and KINDS[decoder] == "rag_sequence" and not masked:
        agree = agreement.reported
    row = {"decoder": decoder, "n_docs": model.n_docs, "batch_size": batch_size, "num_beams": config.num_beams}
    ours = partial(_Decode, Ours, model, read, decoder, settings, config.dtype)
    peer = partial(_Decode, partial(Peer, with_mask=masked), model, read, decoder, settings, config.dtype)
    return Cell({**row, "peer_mask": masked}, ours, peer, agree)


class _Decode(Side):
    def __init__(
        self,
        make: Callable[[Setup], Any],
        model: Setup,
        read: Batches,
        decoder: str,
        settings: DecodingSettings,
        dtype: str,
    ) -> None:
        self.stack, self.batches = make(model), read()
        self.n_batches = len(self.batches)
        self.model, self.decoder, self.settings, self.dtype = model, decoder, settings, DTYPES[dtype]

    def step(self, number: int) -> None:
        self._answers(number)

    def check(self) -> dict[str, Tensor]:
        answers = [self._answers(number) for number in range(self.n_batches)]
        # One scorer judges both sides' answers; that it is right is what the works on training show.
        scorer = self.stack if isinstance(self.stack, Ours) else Ours(self.model)
        logprobs = [scorer.score(batch, found) for batch, found in zip(self.batches, answers, strict=True)]
        ids = [torch.tensor(answer) for found in answers for answer in found]
        padded = pad_sequence(ids, batch_first=True, padding_value=-1)
        lengths = torch.tensor([len(answer) for answer in ids])
        return {"ids": padded, "logprob": torch.cat(logprobs), "lengths": lengths}

    def cast(self) -> None:
        for part in self.stack.parts.values():
            part.to(self.dtype)

    def _answers(self, number: int) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = self.stack.answers(
            self.batches[number % self.n_batches], decoder=self.decoder, settings=self.settings
        )
        return found
