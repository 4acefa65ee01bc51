"""Answers that are regular expressions, also such as never come to an end."""

from __future__ import annotations

import time

import pytest

from ragx.errors import RagxError
from ragx.evaluation.patterns import found_in, regex_match


@pytest.mark.parametrize(
    ("prediction", "patterns", "expected"),
    [
        ("in sept 1999", ["Sept?(ember)?|Feb(ruary)?"], 1.0),
        ("march", ["Sept?(ember)?|Feb(ruary)?"], 0.0),
        ("20 320 feet", [r"20\s?,?\s?(32|40)0\s?-?\s?f(ee|oo)t"], 1.0),
        ("x\nPeru", ["^peru$"], 1.0),
        ("", ["a?"], 1.0),
        ("Peru", ["Chile", "Peru"], 1.0),
    ],
)
def test_by_hand(prediction: str, patterns: list[str], expected: float) -> None:
    assert regex_match(prediction=prediction, patterns=patterns) == expected


def test_a_catastrophic_pattern_is_unknown_and_does_not_hang() -> None:
    catastrophe, text = r"(a|aa)+$", "a" * 60 + "b"
    start = time.monotonic()
    assert regex_match(prediction=text, patterns=[catastrophe], timeout=0.02) is None
    assert time.monotonic() - start < 30  # without the limit it takes longer than anyone waits
    assert regex_match(prediction=text, patterns=[catastrophe, "b$"], timeout=0.02) == 1.0
    assert found_in(text=text, patterns=[catastrophe, "c"], timeout=0.02) is None


def test_what_is_no_list_of_patterns_is_refused() -> None:
    with pytest.raises(RagxError, match="patterns must be a list of at least one pattern, got 'x'"):
        regex_match(prediction="x", patterns="x")
    with pytest.raises(RagxError, match=r"patterns must be regular expressions, got '\(' \(missing \)"):
        regex_match(prediction="x", patterns=["("])
    with pytest.raises(TypeError, match="positional"):
        regex_match("x", ["x"])  # type: ignore[call-arg]
