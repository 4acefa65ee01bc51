"""The tree of answers against a dictionary of their prefixes."""

from __future__ import annotations

import pytest
import torch

from ragx.generator.prefix_tree import PrefixTree

START = 2


@pytest.mark.parametrize("seed", range(6))
def test_each_prefix_of_each_row_is_one_node(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    n_answers, longest = 12, 5
    lengths = torch.randint(1, longest + 1, (n_answers,), generator=generator)
    rows = torch.randint(0, 3, (n_answers,), generator=generator) * 4
    answers = torch.randint(0, 3, (n_answers, longest), generator=generator)  # three tokens, so that many begin alike
    inputs = torch.cat([torch.full((n_answers, 1), START), answers[:, :-1]], 1)
    tree = PrefixTree.build(inputs, lengths, rows)

    prefixes = {
        (int(rows[n]), tuple(inputs[n, : i + 1].tolist())) for n in range(n_answers) for i in range(int(lengths[n]))
    }
    assert len(tree.token_ids) == len(prefixes) < int(lengths.sum())
    seen: dict[int, tuple[int, tuple[int, ...]]] = {}
    for n in range(n_answers):
        for i in range(int(lengths[n])):
            node, prefix = int(tree.nodes[n, i]), (int(rows[n]), tuple(inputs[n, : i + 1].tolist()))
            assert seen.setdefault(node, prefix) == prefix
            assert (int(tree.token_ids[node]), int(tree.positions[node])) == (prefix[1][-1], i)
            assert int(tree.rows[tree.slots[node] // tree.width]) == prefix[0]
    assert set(seen.values()) == prefixes
    assert torch.equal(tree.nodes.flatten()[tree.first], torch.arange(len(prefixes)))
    assert len(set(tree.slots.tolist())) == len(prefixes)


def test_the_table_has_a_place_for_every_node_and_zeros_elsewhere() -> None:
    """Row 7 is read with 'a' and 'ab' (two prefixes), row 9 with 'b' (one)."""
    inputs = torch.tensor([[START, 5], [START, 0], [START, 0]])
    tree = PrefixTree.build(inputs, torch.tensor([2, 1, 1]), torch.tensor([7, 7, 9]))
    values = torch.arange(1.0, 4.0).unsqueeze(1)
    table = tree.table(values)
    assert tree.rows.tolist() == [7, 9] and tree.width == 2
    assert table.squeeze(2).tolist() == [[1.0, 2.0], [3.0, 0.0]]
    assert torch.equal(tree.nodes_of(table), values)
    assert tree.nodes.tolist() == [[0, 1], [0, 0], [2, 0]]
