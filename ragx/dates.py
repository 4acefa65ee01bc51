"""Dates as people record them: a day, a month or a year; each stands for all its days.

    2016-12   is   2016-12-01 ... 2016-12-31

One decision: a date is before another only if all of its days are, so that a question about 2016 is never told that a
rule of November 2016 was not yet valid.
"""

from __future__ import annotations

import re

_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
_LAST = "9999-12-31"


def is_date(text: str) -> bool:
    """Whether `text` is 2016, 2016-12 or 2016-12-31."""
    return bool(_DATE.fullmatch(text))


def older(one: str, other: str) -> bool:
    """Whether all days of `one` come before all days of `other`."""
    return one + _LAST[len(one) :] < other + "0000-01-01"[len(other) :]


def not_before(one: str, other: str) -> bool:
    """Whether some day of `one` is no earlier than the first day of `other`."""
    return not older(one, other)
