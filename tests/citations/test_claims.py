"""Markers and claims of an answer (CITATIONS C7; FAULTS E9, E10, E11)."""

from __future__ import annotations

import pytest

from ragx.citations.claims import SPLITTER, SPLITTER_VERSION, split_claims
from ragx.citations.markers import find_markers

CJK = "\u4f4f\u5728\u5317\u4eac\u3002"  # one sentence


def parsed(text: str, k: int = 5) -> list[tuple[str, list[int | None]]]:
    """Each claim with the numbers that belong to it; those that name nothing are negative, None for a range."""
    found = []
    for sentence in split_claims(text, n_refs=k):
        refs: list[int | None] = []
        for marker in sentence.markers:
            refs += [*marker.refs, *(None if n is None else -n for n, _ in marker.wrong)]
        found.append((sentence.text, refs))
    return found


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("A [1].", [("A.", [1])]),
        ("A. [1] B.", [("A.", [1]), ("B.", [])]),
        ("A.[1]", [("A.", [1])]),
        ("A [1][2].", [("A.", [1, 2])]),
        ("A [1, 2].", [("A.", [1, 2])]),
        ("A [1],[2]", [("A", [1, 2])]),
        ("A [1-3]", [("A", [1, 2, 3])]),
        ("A [1\u20133].", [("A.", [1, 2, 3])]),
        ("A\uff3b\uff11\uff0c\uff12\uff3d.", [("A.", [1, 2])]),
        (f"{CJK}\u30101\u3011\u4e0a\u9650\u3002", [(CJK, [1]), ("\u4e0a\u9650\u3002", [])]),
        ("A [0].", [("A.", [0])]),
        ("A [9].", [("A.", [-9])]),
        ("A [4-7].", [("A.", [4, 5, -6])]),
        ("A [3-1].", [("A.", [None])]),
        ("Sources: [1]", [("Sources:", [1])]),
        ("No citation here.", [("No citation here.", [])]),
        ("A.\n[1]\nB.", [("A.", [1]), ("B.", [])]),
        ("", []),
        ("... [1]", [("...", [1])]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_e9_markers(text: str, claims: list[tuple[str, list[int | None]]]) -> None:
    """E9, C7, F20: every form has one documented reading, and what names nothing is kept."""
    assert parsed(text) == claims


@pytest.mark.parametrize("text", ["x[3] holds it.", "`rows[1]` holds it.", "my_list[2] holds it.", "[a] [1a] [ ] []"])
def test_e9_code_is_no_citation(text: str) -> None:
    assert find_markers(text, n_refs=5) == []


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("A [1]", ()),
        ("A [1, 2]", ("list",)),
        ("A [1-2]", ("range",)),
        ("Paris[1]", ("glued",)),
        ("A \u30101\u3011", ("full_width",)),
        ("In [2024]", ("maybe_not_a_citation",)),
    ],
)
def test_e9_strict_and_lenient_reading(text: str, notes: tuple[str, ...]) -> None:
    """The lenient reading takes all of these; only the first is well-formed."""
    (marker,) = find_markers(text, n_refs=5)
    assert (marker.notes, marker.well_formed) == (notes, not notes)


def test_a_huge_range_is_one_surplus_number() -> None:
    (marker,) = find_markers("A [1-999999999]", n_refs=3)
    assert (marker.refs, marker.wrong) == ((1, 2, 3), ((4, "out_of_range"),))


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("Dr. J. Smith et al. found X, e.g. Y [1].", ["Dr. J. Smith et al. found X, e.g. Y."]),
        ("He moved to the U.S. [2]. Next one.", ["He moved to the U.S.", "Next one."]),
        ("He said \u201cHi.\u201d [1] Then left", ["He said \u201cHi.\u201d", "Then left"]),
        ("It is 3.5 m. Yes!", ["It is 3.5 m.", "Yes!"]),
        ("1. First [1]\n2. Second [2]", ["1. First", "2. Second"]),
        ("\nFirst line\nSecond line", ["First line", "Second line"]),
        ("No end mark", ["No end mark"]),
        ("One ... two.", ["One ... two."]),
    ],
)
def test_e11_sentences(text: str, claims: list[str]) -> None:
    """E11: abbreviations, initials, quotation marks, list numbers, line breaks."""
    assert [sentence.text for sentence in split_claims(text, n_refs=5)] == claims


def test_e11_the_splitter_has_a_name_and_a_version() -> None:
    assert (SPLITTER, SPLITTER_VERSION) == ("ragx-sentences", 1)


def test_spans_are_apart_and_show_the_sentence() -> None:
    """R18: code points from 0, half-open."""
    text = "\U0001f30d A [1]. B is 3.5 [2]."
    spans = [sentence.span for sentence in split_claims(text, n_refs=2)]
    assert [text[start:end] for start, end in spans] == ["\U0001f30d A [1].", "B is 3.5 [2]."]


@pytest.mark.parametrize(("text", "worthy"), [("Here it is:", False), ("References: [1]", False), ("It is.", True)])
def test_not_everything_needs_a_citation(text: str, worthy: bool) -> None:
    assert [sentence.worthy for sentence in split_claims(text, n_refs=1)] == [worthy]


def test_a_long_answer_takes_time_in_proportion() -> None:
    text = "It is so, as they say [1]. " * 4000
    assert len(split_claims(text, n_refs=1)) == 4000
