"""Whole-chunk packing (CITATIONS A2, D05, D06, D34, E4): what is taken, what is dropped and why."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragx.citations.packing import Chunk, open_budget, select_context, select_per_doc, serialised_cost
from ragx.errors import RagxError
from ragx.records import PassageKey


def key(name: str) -> PassageKey:
    return PassageKey(name, "v1", name.lower())


A, B, C, D = (key(name) for name in "ABCD")


def test_d05_whole_chunks_under_the_budget() -> None:
    chosen = select_context([Chunk(A, 4), Chunk(B, 3)], window=10, fixed=2, reserve=2)
    assert [row.key for row in chosen.packed] == [A]
    assert [(row.key, row.reason, row.tokens) for row in chosen.dropped] == [(B, "over_budget", 3)]
    assert chosen.budget is not None
    assert (chosen.budget.budget, chosen.budget.remaining, chosen.budget.unit) == (6, 2, "token")


def test_d05_a_later_shorter_chunk_still_fits() -> None:
    chosen = select_context([Chunk(A, 4), Chunk(B, 3), Chunk(C, 2)], window=10, fixed=2, reserve=2)
    assert [row.key for row in chosen.packed] == [A, C]
    assert chosen.budget is not None and chosen.budget.remaining == 0


def test_d06_a_copy_is_dropped_as_a_duplicate_also_where_the_first_did_not_fit() -> None:
    chosen = select_context([Chunk(A, 4), Chunk(A, 1), Chunk(B, 2), Chunk(B, 1)], window=9, fixed=2, reserve=2)
    assert [(row.key, row.tokens) for row in chosen.packed] == [(A, 4)]
    assert [(row.key, row.reason) for row in chosen.dropped] == [(A, "duplicate"), (B, "over_budget"), (B, "duplicate")]
    assert chosen.budget is not None and chosen.budget.remaining == 1


def test_d34_numbers_are_made_after_packing() -> None:
    chosen = select_context([Chunk(A, 9), Chunk(B, 2), Chunk(C, 2)], window=6, fixed=1, reserve=1)
    assert [(row.pos, row.ref, row.key) for row in chosen.packed] == [(1, 1, B), (2, 2, C)]


def test_another_version_is_another_chunk() -> None:
    other = A._replace(version="v2")
    chosen = select_context([Chunk(A, 1), Chunk(other, 1)], window=2, fixed=0, reserve=0)
    assert [row.key for row in chosen.packed] == [A, other]


def test_a_budget_of_zero_is_legal_and_drops_everything() -> None:
    chosen = select_context([Chunk(A, 1)], window=4, fixed=2, reserve=2)
    assert chosen.packed == () and [row.reason for row in chosen.dropped] == ["over_budget"]


@pytest.mark.parametrize(("context", "left"), [(591, 609), (348, 852)])
def test_e4_code_points_left_of_1400_with_200_reserved(context: int, left: int) -> None:
    chosen = select_context([Chunk(A, context)], window=1400, fixed=0, reserve=200, unit="code_point")
    assert chosen.budget is not None
    assert (chosen.budget.remaining, chosen.budget.unit) == (left, "code_point")
    assert open_budget(window=250, fixed=0, reserve=200, unit="code_point").budget == 50


@pytest.mark.parametrize(
    ("window", "fixed", "reserve", "name"),
    [(True, 0, 0, "window"), (10, -1, 0, "fixed"), (10, 0, 2.0, "reserve"), ("9", 0, 0, "window")],
)
def test_parts_that_are_no_counts_are_refused(window: int, fixed: int, reserve: int, name: str) -> None:
    with pytest.raises(RagxError, match=f"{name} must be a whole number >= 0"):
        select_context([], window=window, fixed=fixed, reserve=reserve)


def test_parts_beyond_the_window_and_unknown_units_are_refused() -> None:
    with pytest.raises(RagxError, match=r"window must be >= fixed \+ reserve, got 3 < 2 \+ 2 tokens"):
        select_context([], window=3, fixed=2, reserve=2)
    with pytest.raises(RagxError, match="unit must be one of token, code_point, got 'word'"):
        select_context([], window=3, fixed=1, reserve=1, unit="word")


@pytest.mark.parametrize("cost", [0, -1, True, 1.0, None])
def test_a_cost_that_is_no_count_is_refused(cost: int) -> None:
    with pytest.raises(RagxError, match="tokens of .* must be a whole number >= 1"):
        select_context([Chunk(A, cost)], window=9, fixed=0, reserve=0)


@given(
    st.lists(st.tuples(st.sampled_from([A, B, C, D]), st.integers(1, 9)), max_size=12),
    st.integers(0, 20),
)
def test_every_candidate_has_one_fate_and_the_sum_is_kept(rows: list[tuple[PassageKey, int]], window: int) -> None:
    chosen = select_context([Chunk(*row) for row in rows], window=window, fixed=0, reserve=0)
    assert chosen.budget is not None
    assert len(chosen.packed) + len(chosen.dropped) == len(rows)
    assert sum(row.tokens or 0 for row in chosen.packed) == window - chosen.budget.remaining <= window
    kept = {row.key for row in chosen.packed}
    fates = [row.key for row in chosen.packed] + [row.key for row in chosen.dropped if row.reason != "duplicate"]
    assert len(fates) == len(set(fates)) == len({row[0] for row in rows})
    assert not kept & {row.key for row in chosen.dropped if row.reason == "over_budget"}


def test_the_cost_is_that_of_the_serialised_chunk() -> None:
    def serialise(ref: int, text: str) -> str:
        return f"[{ref}] <p>{text}</p>\n"

    items = [(PassageKey("s", "v", str(i)), "abc") for i in range(10)]
    chunks = serialised_cost(serialise, items)
    assert {chunk.tokens for chunk in chunks} == {len("[10] <p>abc</p>\n")}
    words = serialised_cost(serialise, items[:1], length=lambda text: len(text.split()))
    assert words == [Chunk(items[0][0], 2)]


def test_per_doc_keeps_the_first_n_docs_with_priors_over_just_those() -> None:
    candidates = [(A, math.log(6)), (A, 0.0), (B, math.log(4)), (C, 5.0)]
    chosen = select_per_doc(candidates, n_docs=2, visible=lambda k: (0, 7, k == B))
    assert [(row.key, row.visible, row.truncated) for row in chosen.packed] == [(A, (0, 7), False), (B, (0, 7), True)]
    assert [row.prior for row in chosen.packed] == pytest.approx([0.6, 0.4])
    assert [(row.key, row.reason) for row in chosen.dropped] == [(A, "duplicate"), (C, "below_k")]
    assert chosen.budget is None


def test_per_doc_refuses_what_is_no_ranking() -> None:
    with pytest.raises(RagxError, match="n_docs must be a whole number >= 1, got 0"):
        select_per_doc([], n_docs=0, visible=lambda _: (0, 1, False))
    with pytest.raises(RagxError, match="score of .* must be finite, got nan"):
        select_per_doc([(A, math.nan)], n_docs=1, visible=lambda _: (0, 1, False))
