"""Which passages a question meets in a step: its own, hard negatives, and those of all other questions of the batch.

    columns of the scores   =   positive of question 0 .. B-1,   then the negatives of question 0, of 1, ...

Drawn from (seed, step) alone, the same on all processes, so that no process needs to be told what another one has, and
a resumed run goes on as it would have.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragx.data.collate import split
from ragx.data.retriever_examples import Context, RetrieverExample


class Golds:
    """The gold passages of each question: of all rows that ask it, by id and by content."""

    def __init__(self, examples: Iterable[RetrieverExample]) -> None:
        self._of: dict[str, set[tuple[str, ...]]] = {}
        for example in examples:
            found = self._of.setdefault(example.query, set())
            for context in example.positives:
                found |= names(context)

    def holds(self, query: str, context: Context) -> bool:
        """Whether `context` answers `query`."""
        return not self._of[query].isdisjoint(names(context))


def names(context: Context) -> set[tuple[str, ...]]:
    """What a passage is known by: two are the same where they have one of these in common."""
    return {(context.title, context.text), (context.id,)} if context.id else {(context.title, context.text)}


@dataclass(frozen=True)
class ContrastiveBatch:
    """One step's questions and passages, over all processes.

    Attributes:
        queries: B questions.
        positives: B passages, one of each question's golds.
        negatives: B lists of passages, of any length.
    """

    queries: Sequence[str]
    positives: Sequence[Context]
    negatives: Sequence[Sequence[Context]]

    @property
    def passages(self) -> list[Context]:
        """The columns of the scores: B positives, then all negatives."""
        return [*self.positives, *(context for row in self.negatives for context in row)]

    def false_negatives(self, golds: Golds) -> Tensor:
        """(B, P) bool: the passage of a column is a gold passage of the row's question and not the row's positive."""
        columns = self.passages
        mask = [[golds.holds(query, context) for context in columns] for query in self.queries]
        found = torch.tensor(mask)
        return found & ~torch.eye(len(self.queries), len(columns), dtype=torch.bool)

    def shares(self, parts: int) -> list[ContrastiveBatch]:
        """The same batch cut in `parts` runs of questions, each with its own passages."""
        return [
            ContrastiveBatch(
                [self.queries[i] for i in rows], [self.positives[i] for i in rows], [self.negatives[i] for i in rows]
            )
            for rows in split(range(len(self.queries)), parts)
        ]


def draw(
    examples: Sequence[RetrieverExample], *, seed: int, step: int, counts: Mapping[str, int], random_positive: bool
) -> ContrastiveBatch:
    """The batch of 1-based `step` from its examples.

    Args:
        counts: how many `hard_negatives` and `negatives` each question brings, where it has so many.
        random_positive: whether any of a question's golds is its positive, or always the first.
    """
    rng = random.Random(f"contexts {seed} {step}")
    positives, negatives = [], []
    for example in examples:
        positives.append(rng.choice(example.positives) if random_positive else example.positives[0])
        drawn: list[Context] = []
        for kind, count in counts.items():
            found = getattr(example, kind)
            drawn += rng.sample(found, min(count, len(found)))
        negatives.append(drawn)
    return ContrastiveBatch([example.query for example in examples], positives, negatives)
