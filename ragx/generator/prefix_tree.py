"""Answers that begin alike, as a tree: what is computed after a prefix is computed once (section 2.5).

    node  =  (row, y_1..i)          answers n and n' share it where row and prefix are equal

Decision: sort the answers; equal prefixes are then neighbors, and a node is the first place where one appears. No loop
over answers, and one wait for the device in all.

Shapes: N answers, T longest answer, P nodes, Q rows that are read, W the most nodes of one row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NOTHING = -1


@dataclass(frozen=True)
class PrefixTree:
    """N answers against their rows; nodes lie row by row.

    Attributes:
        token_ids, positions: (P,) what is fed at a node, and how far into the answer.
        nodes: (N, T) the node at which token i of an answer is predicted; any node behind its end.
        first: (P,) a place n*T + i at which the node appears in `nodes`.
        rows: (Q,) the distinct rows.
        slots: (P,) the node's place in a table of Q x W.
        width: W.
    """

    token_ids: Tensor
    positions: Tensor
    nodes: Tensor
    first: Tensor
    rows: Tensor
    slots: Tensor
    width: int

    @classmethod
    def build(cls, inputs: Tensor, lengths: Tensor, rows: Tensor) -> PrefixTree:
        """The tree of N >= 1 answers.

        Args:
            inputs: (N, T) what is fed to predict each token: the start token and all tokens but the last.
            lengths: (N,) tokens to predict, at least 1.
            rows: (N,) what each is read against.
        """
        n_answers, longest = inputs.shape
        steps = torch.arange(longest, device=inputs.device)
        inside = steps < lengths.unsqueeze(1)
        inputs = inputs.where(inside, NOTHING)
        order = _lexicographic(torch.cat([rows.unsqueeze(1), inputs], 1))
        ordered, ordered_rows = inputs[order], rows[order]
        same = torch.zeros_like(inside)
        same[1:] = (ordered[1:] == ordered[:-1]) & (ordered_rows[1:] == ordered_rows[:-1]).unsqueeze(1)
        new = (same.cumprod(1) == 0) & inside[order]
        node = (new.flatten().cumsum(0) - 1).view_as(new)
        # Where a prefix is not new, its node is that of the last answer above for which it was.
        above = torch.where(new, torch.arange(n_answers, device=inputs.device).unsqueeze(1), 0).cummax(0).values
        node = node.gather(0, above)
        answer, position = new.nonzero(as_tuple=True)
        distinct, which, counts = torch.unique_consecutive(
            ordered_rows[answer], return_inverse=True, return_counts=True
        )
        width = int(counts.max())
        within = torch.arange(len(which), device=inputs.device) - (counts.cumsum(0) - counts)[which]
        back = torch.empty_like(order).index_copy(0, order, torch.arange(n_answers, device=order.device))
        return cls(
            token_ids=ordered[answer, position],
            positions=position,
            nodes=node[back].where(inside, 0),
            first=order[answer] * longest + position,
            rows=distinct,
            slots=which * width + within,
            width=width,
        )

    def table(self, values: Tensor) -> Tensor:
        """Values of the nodes (P, D) row by row: (Q, W, D), zero where a row has no node."""
        empty = values.new_zeros(len(self.rows) * self.width, values.shape[1])
        return empty.index_copy(0, self.slots, values).view(len(self.rows), self.width, -1)

    def nodes_of(self, table: Tensor) -> Tensor:
        """The inverse of `table`: (P, D) from (Q, W, D)."""
        return table.flatten(0, 1)[self.slots]


def _lexicographic(keys: Tensor) -> Tensor:
    """The order (N,) that sorts the rows of `keys` (N, L)."""
    order = torch.arange(len(keys), device=keys.device)
    for column in range(keys.shape[1] - 1, -1, -1):
        order = order[keys[order, column].argsort(stable=True)]
    return order
