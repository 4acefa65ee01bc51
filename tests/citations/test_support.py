"""The exact-span judge: code points, visible part, whole words; it never says none."""

from __future__ import annotations

import unicodedata
from typing import Literal

import pytest

from ragx.citations.support import exact_span, judge_exact_span
from ragx.errors import ShapeError


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [
        ("Ann", "Annual talks of Ann", "Ann"),
        ("Ann", "Annual talks", None),
        ("ann", "Ann", None),
        ("1976", "in 19760", None),
        ("1976", "in 1976.", "1976"),
        ("5", "3.5 or 5,000", None),
        ("5", "3.5, 5.", "5"),
        ("000", "1,000", None),
        ("New York", "in New\n  York", "New\n  York"),
        ("750 元", "住宿限额为 750 元。", "750 元"),
        ("限额为", "住宿限\n额为 750", "限\n额为"),
        ("a.c", "abc a.c", "a.c"),
        ("𝔘 x", "𝔘𝔘 𝔘 x", "𝔘 x"),
        ("", "anything", None),
        (" \n", "anything", None),
    ],
)
def test_where_it_stands(answer: str, text: str, found: str | None) -> None:
    span = exact_span(answer, text)
    assert (None if span is None else text[slice(*span)]) == found


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_offsets_are_those_of_the_stored_text(form: Literal["NFC", "NFD"]) -> None:
    text = unicodedata.normalize(form, "Née à Québec, José Martí naît. 각하 Ångström")
    for answer in ("José Martí", "Québec", "각하", "Ångström"):
        span = exact_span(unicodedata.normalize("NFD", answer), text)
        assert span is not None
        assert text[slice(*span)] == unicodedata.normalize(form, answer)


def test_a_base_letter_is_not_found_inside_an_accented_one() -> None:
    assert exact_span("Jose", "Jose\u0301 Marti\u0301") is None


def test_only_what_the_generator_saw_counts() -> None:
    text = "Ollanta Humala left. Ollanta Humala returned."
    second = text.rindex("Ollanta")
    assert exact_span("Ollanta Humala", text) == (0, 14)
    assert exact_span("Ollanta Humala", text, visible=(1, len(text))) == (second, second + 14)
    assert exact_span("Ollanta Humala", text, visible=(1, second + 13)) is None
    assert exact_span("Oll", text, visible=(0, 3)) is None
    assert exact_span("Ollanta Humala", text, visible=(0, 14)) == (0, 14)


def test_not_found_is_not_judged() -> None:
    assert judge_exact_span("750", "750 yuan") == ("full", (0, 3))
    assert judge_exact_span("750", "seven hundred and fifty") == ("not_judged", None)


def test_a_span_outside_the_text_is_refused() -> None:
    with pytest.raises(ShapeError, match="visible must be a span within 3 code points"):
        exact_span("a", "abc", visible=(0, 4))
