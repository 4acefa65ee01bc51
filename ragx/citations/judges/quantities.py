"""Numbers of a text with their units, brought to one form.

    4523000  =  4,523,000  =  4.523 million      3.0  =  3      $750  =  750 USD  =  750 美元  but not 750 元

One decision: a number is a whole token. 1976 is not in 19760, and the 2 of "v2" is part of a name.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import NamedTuple

_UNITS = {
    "%": "% percent per\u00a0cent procent prozent por\u00a0ciento pour\u00a0cent 百分之",
    "CNY": "元 人民币 yuan rmb cny 圆",
    "USD": "$ us$ usd 美元 dollar dollars",
    "EUR": "€ eur euro euros 欧元",
    "GBP": "£ gbp 英镑",
    "JPY": "¥ jpy yen 日元 円",
    "km": "km kilometer kilometers kilometre kilometres 公里 千米",
    "m": "meter meters metre metres 米",
    "mi": "mile miles 英里",
    "ft": "ft foot feet 英尺",
    "kg": "kg kilogram kilograms kilogramme 公斤 千克",
    "lb": "lb lbs pound pounds 磅",
    "year": "year years 年",
    "month": "month months 个月",
    "day": "day days 天",
    "hour": "hour hours 小时",
    "minute": "minute minutes 分钟",
    "°C": "°c celsius 摄氏度",
    "°F": "°f fahrenheit 华氏度",
}
UNITS = {word.replace("\u00a0", " "): unit for unit, names in _UNITS.items() for word in names.split(" ")}
_SCALES = {
    "thousand": 10**3, "k": 10**3, "million": 10**6, "mio": 10**6, "billion": 10**9, "bn": 10**9, "trillion": 10**12,
    "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8,
}  # fmt: skip
_ONES = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: value for value, word in enumerate(_ONES.split(), start=2)} | {
    word: 10 * value for value, word in enumerate(_TENS.split(), start=2)
}


def _either(names: dict[str, object] | dict[str, str] | dict[str, int]) -> str:
    ordered = sorted(names, key=len, reverse=True)
    return "|".join(
        re.escape(name) + (r"(?![^\W\d_])" if name[-1].isascii() and name[-1].isalpha() else "") for name in ordered
    )


_NUMBER = (
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?(?!\d)|\d{1,3}(?: \d{3}){2,}(?!\d)"
    r"|\d+\.\d+(?!\.?\d)|\d+,\d{1,2}(?!\d)|\d+"
)
_WORD_NUMBER = rf"(?:{_TENS.replace(' ', '|')})-(?:two|three|four|five|six|seven|eight|nine)|{_either(_WORDS)}"
_QUANTITY = re.compile(
    rf"(?:(?P<before>us\$|[$€£¥]|usd|eur|gbp|rmb|cny|jpy|百分之)\s?)?"
    rf"(?<![a-z0-9_])(?<!\d[.,])(?:(?P<sign>(?<![\w)])[-−](?=\d))?(?P<number>{_NUMBER})(?!\.\d)|(?P<word>{_WORD_NUMBER}))"
    rf"(?:[\s-]?(?P<scale>{_either(_SCALES)}))?(?:[\s-]?(?P<unit>{_either(UNITS)}))?(?P<rest>[a-z]*)",
    re.IGNORECASE,
)
_ORDINALS = frozenset(("", "s", "st", "nd", "rd", "th"))


class Quantity(NamedTuple):
    """A number with its unit, None where it has none that is known."""

    value: Decimal
    unit: str | None


def read_quantities(text: str) -> list[Quantity]:
    """The quantities of a text in order; read dates out of it first (`written_dates.read_dates`)."""
    found = []
    for match in _QUANTITY.finditer(unicodedata.normalize("NFKC", text)):
        if match["rest"].lower() not in _ORDINALS:
            continue  # "3D", "24x7": a name, not a count
        value = _value(match)
        named = match["before"] or match["unit"]
        found.append(Quantity(value, UNITS[named.lower()] if named else None))
    return found


def names_unit(text: str, unit: str) -> bool:
    """Whether a text names a unit anywhere, for instance once above a table of bare numbers."""
    lowered = unicodedata.normalize("NFKC", text).lower()
    return any(re.search(_either({word: 1}), lowered) for word, name in UNITS.items() if name == unit)


def _value(match: re.Match[str]) -> Decimal:
    if match["word"]:
        value = Decimal(sum(_WORDS[part] for part in match["word"].lower().split("-")))
    else:
        value = Decimal(_plain(match["number"]))
    if match["scale"]:
        value *= _SCALES[match["scale"].lower()]
    return (-value if match["sign"] else value).normalize()


def _plain(number: str) -> str:
    """A number with a decimal point alone."""
    if number.count(".") > 1 or re.fullmatch(r"\d+,\d{1,2}", number):
        return number.replace(".", "").replace(",", ".")
    return number.replace(",", "").replace(" ", "")
