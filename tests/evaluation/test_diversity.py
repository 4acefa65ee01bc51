"""Distinct to total trigrams (table 5)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ragx.evaluation.diversity import distinct_shares
from ragx.evaluation.significance import aggregate_sums, ratio


def test_by_hand() -> None:
    # a b c, b c d | a b c: three trigrams, two of them distinct.
    assert distinct_shares(["a b c d", "A b c"]) == [(1.5, 2.0), (0.5, 1.0)]
    assert distinct_shares(["a b", ""]) == [(0.0, 0.0), (0.0, 0.0)]
    assert distinct_shares(["x x x x"]) == [(1.0, 2.0)]
    assert distinct_shares(["Jose\u0301 b c", "Jos\u00e9 b c"]) == [(0.5, 1.0), (0.5, 1.0)]


def test_shares_add_up_to_the_distinct_ngrams_of_random_texts() -> None:
    chosen = random.Random(0)
    for _ in range(200):
        texts = [" ".join(chosen.choices("abc", k=chosen.randint(0, 8))) for _ in range(chosen.randint(1, 6))]
        windows = [tuple(t.split()[i : i + 3]) for t in texts for i in range(len(t.split()) - 2)]
        shares = distinct_shares(texts)
        assert sum(share for share, _ in shares) == pytest.approx(len(Counter(windows)))
        assert sum(total for _, total in shares) == len(windows)


def test_the_interval_holds_the_figure_and_the_order_of_texts_does_not_matter() -> None:
    chosen = random.Random(1)
    texts = [" ".join(chosen.choices("abcdefgh", k=9)) for _ in range(60)]
    metric = aggregate_sums(distinct_shares(texts), ratio)
    windows = [tuple(text.split()[i : i + 3]) for text in texts for i in range(7)]
    assert metric.value == pytest.approx(len(set(windows)) / len(windows))
    assert metric.ci95 is not None and metric.ci95[0] < metric.value < metric.ci95[1]  # type: ignore[operator]
    assert aggregate_sums(distinct_shares(texts[::-1]), ratio) == metric
