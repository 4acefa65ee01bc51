"""A language model that looks its next-token distributions up in a table.

It implements `ragx.protocols.Generator`. A passage is a number, the table has one distribution for every passage and
every prefix shorter than `max_length`, and `answers` lists every answer with its probability, computed in plain Python
and independently of any decoder. An answer ends with EOS or has `max_length` tokens.

Every token can be produced, padding included, and the start token is EOS, as in BART: code that treats ids by their
look goes wrong here. A prefix is a node of the V-ary tree: the root is 0, child v of node i is i*V + v + 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

Answer = tuple[int, ...]


@dataclass(frozen=True)
class TableState:
    """Where each of N sequences stands: its passage, and its node of the prefix tree (-1 before the start token)."""

    passages: Tensor
    nodes: Tensor


@dataclass
class Calls:
    """What the model was asked, for tests that count work."""

    encoded_rows: int = 0
    scored_pairs: list[tuple[int, Answer]] = field(default_factory=list)
    scoring_calls: int = 0
    widest_batch: int = 0
    steps: int = 0


class TableLM(nn.Module):
    """p(y_i|x,z,y_<i) = softmax(logits[z, y_<i]).

    Args:
        logits: (P, (V**T - 1) / (V - 1), V) for P passages, prefixes in tree order.
        eos_token_id: the token that ends an answer; also the start token.
    """

    pad_token_id = 0
    shares: ClassVar[bool] = False
    """Whether models offer `grouped`, the second way of decoding; tests set it to go both ways."""

    def __init__(self, logits: Tensor, *, eos_token_id: int = 1) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.float())
        self.vocab_size = logits.shape[2]
        self.eos_token_id = self.decoder_start_token_id = eos_token_id
        self.calls = Calls()

    @classmethod
    def random(
        cls, seed: int, *, n_passages: int = 3, vocab_size: int = 4, max_length: int = 3, sharpness: float = 2.0
    ) -> TableLM:
        """Normally distributed logits times `sharpness`."""
        nodes = sum(vocab_size**depth for depth in range(max_length))
        generator = torch.Generator().manual_seed(seed)
        return cls(sharpness * torch.randn(n_passages, nodes, vocab_size, generator=generator))

    @classmethod
    def from_distributions(
        cls,
        passages: Sequence[Mapping[Answer, Sequence[float]]],
        *,
        vocab_size: int,
        max_length: int,
        eos_token_id: int = 1,
    ) -> TableLM:
        """From the distributions p(.|z, prefix) of each passage; a prefix that is not given is uniform."""
        nodes = sum(vocab_size**depth for depth in range(max_length))
        table = torch.full((len(passages), nodes, vocab_size), 1 / vocab_size, dtype=torch.float64)
        for row, given in zip(table, passages, strict=True):
            for prefix, distribution in given.items():
                row[_node(prefix, vocab_size)] = torch.tensor(distribution, dtype=torch.float64)
        return cls(table.log(), eos_token_id=eos_token_id)

    def inputs(self, passages: Sequence[Sequence[int]], *, padding: int = 0) -> tuple[Tensor, Tensor]:
        """`input_ids` and `attention_mask` (B*K, 1 + padding) for B rows of K passage numbers; padding is rubbish."""
        ids = torch.tensor([[p, *[7] * padding] for row in passages for p in row])
        mask = torch.zeros_like(ids)
        mask[:, 0] = 1
        return ids, mask

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(R,) passage numbers: the sum of the unmasked inputs."""
        self.calls.encoded_rows += len(input_ids)
        return (input_ids * attention_mask).sum(1)

    def token_logprobs(self, encoded: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """Teacher-forced (N, T), 0 where labels are -100."""
        nodes = torch.zeros(labels.shape, dtype=torch.long)
        for i in range(1, labels.shape[1]):
            nodes[:, i] = nodes[:, i - 1] * self.vocab_size + labels[:, i - 1].clamp(min=0) + 1
        kept = labels != -100
        passages = encoded[rows].unsqueeze(1)
        logprobs = self.logits.log_softmax(2)[passages, nodes.where(kept, 0)]
        self.calls.scoring_calls += 1
        self.calls.widest_batch = max(self.calls.widest_batch, len(rows))
        answers = [tuple(t for t in row if t != -100) for row in labels.tolist()]
        self.calls.scored_pairs += zip(rows.tolist(), answers, strict=True)
        return logprobs.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2).masked_fill(~kept, 0.0)

    def begin(self, encoded: Tensor, rows: Tensor) -> TableState:
        """N sequences with nothing fed."""
        return TableState(encoded[rows], torch.full_like(rows, -1))

    def next_logprobs(self, state: TableState, token_ids: Tensor) -> tuple[Tensor, TableState]:
        """(N, V) log-probabilities after one more token; the first must be the start token."""
        starting = state.nodes == -1
        if not bool((token_ids[starting] == self.decoder_start_token_id).all()):
            raise ValueError(f"token_ids must open with the start token, got {token_ids.tolist()}.")
        nodes = torch.where(starting, 0, state.nodes * self.vocab_size + token_ids + 1)
        self.calls.steps += 1
        self.calls.widest_batch = max(self.calls.widest_batch, len(token_ids))
        return self.logits.log_softmax(2)[state.passages, nodes], TableState(state.passages, nodes)

    def reorder(self, state: TableState, index: Tensor) -> TableState:
        """The sequences of `index`."""
        return TableState(state.passages[index], state.nodes[index])

    @property
    def grouped(self) -> TableGrouped | None:
        """Decoding in units, where `shares` says so."""
        return TableGrouped(self) if self.shares else None

    def answers(self, passage: int, *, max_length: int) -> dict[Answer, list[float]]:
        """Every answer of at most `max_length` tokens with the probability of each of its tokens under one passage."""
        table = self.logits.detach().double().softmax(2)[passage].tolist()
        found: dict[Answer, list[float]] = {}
        open_ends: dict[Answer, list[float]] = {(): []}
        for length in range(1, max_length + 1):
            longer: dict[Answer, list[float]] = {}
            for prefix, probabilities in open_ends.items():
                for token, p in enumerate(table[_node(prefix, self.vocab_size)]):
                    ended = token == self.eos_token_id or length == max_length
                    (found if ended else longer)[(*prefix, token)] = [*probabilities, p]
            open_ends = longer
        return found

    def rag_sequence(self, passages: Sequence[int], prior: Sequence[float], *, max_length: int) -> dict[Answer, float]:
        """p_RAG-Sequence(y|x) of every answer."""
        tables = [self.answers(p, max_length=max_length) for p in passages]
        return {y: sum(w * math.prod(t[y]) for w, t in zip(prior, tables, strict=True)) for y in tables[0]}

    def rag_token(self, passages: Sequence[int], prior: Sequence[float], *, max_length: int) -> dict[Answer, float]:
        """p_RAG-Token(y|x) of every answer."""
        tables = [self.answers(p, max_length=max_length) for p in passages]
        return {
            y: math.prod(sum(w * t[y][i] for w, t in zip(prior, tables, strict=True)) for i in range(len(y)))
            for y in tables[0]
        }


@dataclass(frozen=True)
class TableGrouped:
    """`ragx.protocols.Grouped` of a table."""

    lm: TableLM

    def begin(self, encoded: Tensor, rows: Tensor) -> TableReading:
        """U units with nothing fed."""
        return TableReading(self.lm, encoded[rows])

    def token_logprobs(self, encoded: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """As of the table itself."""
        return self.lm.token_logprobs(encoded, labels, rows)


class TableReading:
    """`ragx.protocols.Reading`: the node of each sequence, looked up under each passage (U, G) of its unit."""

    def __init__(self, lm: TableLM, passages: Tensor) -> None:
        self.lm, self.passages = lm, passages
        self.nodes = torch.zeros(len(passages), 0, dtype=torch.long)

    def feed(self, token_ids: Tensor, parents: Tensor) -> None:
        """One more token; the first must be the start token."""
        if self.nodes.shape[1] == 0:
            if not bool((token_ids == self.lm.decoder_start_token_id).all()) or token_ids.shape[1] != 1:
                raise ValueError(f"token_ids must open with one start token a unit, got {token_ids.tolist()}.")
            self.nodes = torch.zeros_like(token_ids)
        else:
            self.nodes = self.nodes.gather(1, parents) * self.lm.vocab_size + token_ids + 1
        self.lm.calls.steps += 1
        self.lm.calls.widest_batch = max(self.lm.calls.widest_batch, token_ids.numel() * self.passages.shape[1])

    def keep(self, units: Tensor) -> None:
        """These units alone."""
        self.nodes, self.passages = self.nodes[units], self.passages[units]

    def continuations(self, log_weights: Tensor, logprobs: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Two units at a time, so that whoever reads this has to put parts together; probabilities are mixed."""
        for start in range(0, len(self.nodes), 2):
            part = slice(start, start + 2)
            mixed = (log_weights[part, None, :, None].exp() * self._logprobs()[part].exp()).sum(2).log()
            yield slice(start, start + len(mixed)), logprobs[part].unsqueeze(2) + mixed

    def read(self, parents: Tensor, token_ids: Tensor) -> Tensor:
        """(U, C, G) of the tokens after the sequences `parents`."""
        units = torch.arange(len(parents)).unsqueeze(1)
        by_passage = self._logprobs().transpose(2, 3)  # (U, M, V, G)
        return by_passage[units, parents, token_ids]

    def _logprobs(self) -> Tensor:
        """(U, M, G, V)."""
        return self.lm.logits.detach().log_softmax(2)[self.passages.unsqueeze(1), self.nodes.unsqueeze(2)]


def _node(prefix: Answer, vocab_size: int) -> int:
    """Place of a prefix in the tree."""
    node = 0
    for token in prefix:
        node = node * vocab_size + token + 1
    return node
