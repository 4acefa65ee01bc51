"""Texts to train on, out of patterns."""

from __future__ import annotations

import pytest
import regex

from ragx.data.patterns import spelled_out, text_targets
from ragx.records import Example


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("China", "China"),
        ("After the Fall|Finishing the Play", "After the Fall"),
        (r"20\s?,?\s?(32|40)0\s?-?\s?f(ee|oo)t|6,194-meter", "20320feet"),
        (r"\b2,?[4567][0-9]{2}\b", "2400"),
        (r"Oct(ober)?\.?\s+10", "Oct 10"),
        (r"6\,194\sm", "6,194 m"),
        (r"(?i:Jean)", "Jean"),
        (r"[^x]y", "y"),
        (r"(?=a)a", None),
        (r"(a)\1", None),
        ("(", None),
        (r"\s*", None),
        (r"^a$", "a"),
    ],
)
def test_spelled_out(pattern: str, expected: str | None) -> None:
    text = spelled_out(pattern)
    if pattern == r"[^x]y":  # the blank that stands for "anything but x" is trimmed, and y alone is not accepted
        assert text is None
    else:
        assert text == expected
    assert text is None or regex.search(pattern, text, regex.IGNORECASE | regex.MULTILINE)


def test_questions_without_a_text_are_left_out_of_training() -> None:
    examples = [Example("1", "x?", ("A|B", r"(a)\1")), Example("2", "y?", (r"(a)\1",))]
    assert text_targets(examples) == [Example("1", "x?", ("A",))]
