"""Random toy worlds, and beam search written down naively to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragx.decoding import fast, greedy, thorough, token_beam
from ragx.records import Hypothesis
from tests.toy.table_lm import Answer, TableLM

Decoder = Callable[..., list[list[Hypothesis]]]
DECODERS: dict[str, Decoder] = {"thorough": thorough.decode, "fast": fast.decode, "token_beam": token_beam.decode}
ALL_DECODERS: dict[str, Decoder] = {**DECODERS, "greedy": greedy.decode}


@dataclass(frozen=True)
class World:
    """Questions over a table model: which passages each one retrieved, and p(z|x)."""

    lm: TableLM
    passages: list[list[int]]
    doc_logprobs: Tensor

    @classmethod
    def random(
        cls, seed: int, *, n_questions: int = 3, n_docs: int = 3, vocab_size: int = 4, max_length: int = 3
    ) -> World:
        generator = torch.Generator().manual_seed(1000 + seed)
        n_passages = max(6, n_docs)
        lm = TableLM.random(seed, n_passages=n_passages, vocab_size=vocab_size, max_length=max_length)
        passages = [torch.randperm(n_passages, generator=generator)[:n_docs].tolist() for _ in range(n_questions)]
        return cls(lm, passages, torch.randn(n_questions, n_docs, generator=generator).log_softmax(1))

    def prior(self, question: int) -> list[float]:
        return self.doc_logprobs[question].double().exp().tolist()

    def encoded(self, *, padding: int = 0) -> Tensor:
        return self.lm.encode(*self.lm.inputs(self.passages, padding=padding))

    def question(self, index: int) -> World:
        return World(self.lm, [self.passages[index]], self.doc_logprobs[index : index + 1])


def naive_beam(
    next_token: Callable[[Answer], list[float]], *, num_beams: int, max_length: int, eos: int
) -> dict[Answer, float]:
    """The finished hypotheses of one beam search with their probabilities; no stopping rule, plain Python."""
    live: dict[Answer, float] = {(): 1.0}
    finished: dict[Answer, float] = {}
    for length in range(1, max_length + 1):
        longer = [((*y, v), p * q) for y, p in live.items() for v, q in enumerate(next_token(y))]
        longer.sort(key=lambda entry: -entry[1])
        for y, p in longer[:num_beams]:
            if y[-1] == eos or length == max_length:
                finished[y] = p
        live = dict([entry for entry in longer if entry[0][-1] != eos][:num_beams])
    return dict(sorted(finished.items(), key=lambda entry: -entry[1])[:num_beams])


def mixture(world: World, question: int, passages: Sequence[int] | None = None) -> Callable[[Answer], list[float]]:
    """p(.|x, prefix) of RAG-Token for a question, or that of a single passage."""
    members = world.passages[question] if passages is None else passages
    prior = world.prior(question) if passages is None else [1.0]
    tables = [world.lm.answers(p, max_length=3) for p in members]

    def next_token(prefix: Answer) -> list[float]:
        found = []
        for v in range(world.lm.vocab_size):
            answer = next(y for y in tables[0] if y[: len(prefix) + 1] == (*prefix, v))
            found.append(math.fsum(w * t[answer][len(prefix)] for w, t in zip(prior, tables, strict=True)))
        return found

    return next_token
