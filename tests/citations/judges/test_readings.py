"""What the constraint judge reads out of a text: numbers with units, dates, words (CITATIONS D27)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ragx.citations.judges.quantities import Quantity, names_unit, read_quantities
from ragx.citations.judges.words import content_words, sentences, words
from ragx.citations.judges.written_dates import WrittenDate, read_dates


def quantity(value: str, unit: str | None = None) -> Quantity:
    return Quantity(Decimal(value).normalize(), unit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4523000", [quantity("4523000")]),
        ("4,523,000 or 4.523 million", [quantity("4523000")] * 2),
        ("3.0 is 3", [quantity("3")] * 2),
        ("19760", [quantity("19760")]),
        ("1.234.567,8 and 3,5 and 1 234 567", [quantity("1234567.8"), quantity("3.5"), quantity("1234567")]),
        ("87% or 87 percent or 百分之87", [quantity("87", "%")] * 3),
        ("限额为750元", [quantity("750", "CNY")]),
        ("$750, 750 美元, USD 750", [quantity("750", "USD")] * 3),
        ("７５０ 元", [quantity("750", "CNY")]),
        ("45万元", [quantity("450000", "CNY")]),
        ("100K subscribers", [quantity("100000")]),
        ("twenty-five people, ten dogs", [quantity("25"), quantity("10")]),
        ("-5 degrees from 10-20", [quantity("-5"), quantity("10"), quantity("20")]),
        ("the 19th of 1990s", [quantity("19"), quantity("1990")]),
        ("v2, 3D, version 1.2.3", []),
        ("5km and 12 feet", [quantity("5", "km"), quantity("12", "ft")]),
        ("ended", []),
    ],
)
def test_quantities(text: str, expected: list[Quantity]) -> None:
    assert read_quantities(text) == expected


def test_a_unit_named_once_for_many_numbers() -> None:
    assert names_unit("金额单位为元/间夜。", "CNY")
    assert names_unit("All amounts in US$.", "USD")
    assert not names_unit("no yuanling here", "CNY")


@pytest.mark.parametrize(
    "text",
    ["2026-01-01", "2026年1月1日", "January 1, 2026", "1 January 2026", "Jan. 1st, 2026", "1er janvier 2026",
     "1. Januar 2026", "1 de enero de 2026", "1 gennaio 2026", "2026/1/1", "1.1.2026", "2026년 1월 1일"],
)  # fmt: skip
def test_one_day_in_many_languages(text: str) -> None:
    dates, rest = read_dates(f"from {text} on")
    assert dates == [WrittenDate(2026, 1, 1)]
    assert read_quantities(rest) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("May 2020", [WrittenDate(2020, 5, None)]),
        ("2026年1月", [WrittenDate(2026, 1, None)]),
        ("2026年", [WrittenDate(2026, None, None)]),
        ("1/2/2026", []),
        ("2026-13-01", []),
        ("January 41, 2026", []),
        ("dismay 2020", []),
    ],
)
def test_dates_that_give_less_or_nothing(text: str, expected: list[WrittenDate]) -> None:
    assert read_dates(text)[0] == expected


def test_a_day_states_its_month_and_year_and_not_the_other_way() -> None:
    day, month, year = WrittenDate(2026, 1, 1), WrittenDate(2026, 1, None), WrittenDate(2026, None, None)
    assert month.stated_by(day) and year.stated_by(day) and year.stated_by(month)
    assert not day.stated_by(month) and not day.stated_by(WrittenDate(2026, 1, 2))


def test_words_are_stemmed_and_cjk_comes_in_pairs() -> None:
    assert words("Lodging costs 1,200 yuan") == ["lodg", "cost", "1200", "yuan"]
    assert words("住宿限额") == ["住宿", "宿限", "限额"]
    assert words("Cities allowed") == words("city allows")
    assert content_words("It is the one that we had") == []


def test_sentences_end_at_marks_and_line_breaks_not_inside_numbers() -> None:
    assert sentences("It cost 3.5 yuan. That was much!\nNo end") == ["It cost 3.5 yuan.", "That was much!", "No end"]
    assert sentences("金额单位为元。限额为 750 元。") == ["金额单位为元。", "限额为 750 元。"]
