"""Answers that are regular expressions (CuratedTREC, section 3.1), searched for with a time limit.

    match  =  one of the patterns is found in the text, whatever its case; ^ and $ hold at each line

Patterns come from files, and one such as (a+)+$ needs longer than anyone waits. One decision: a search that takes
longer than the limit is unknown (None, counted as `n_null`), never a miss. DrQA's script asks that the match begin at
the first letter of the prediction; TREC, and this module, take it anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

import regex

from ragx.errors import RagxError

TIMEOUT = 0.5  # seconds of computing a pattern and text; a sane pattern takes microseconds
logger = logging.getLogger(__name__)


def regex_match(*, prediction: str, patterns: Sequence[str], timeout: float | None = None) -> float | None:
    """1.0 where one of the patterns is found in the prediction, 0.0 where none is, None where time ran out.

    Raises:
        RagxError: `patterns` is a text or empty, or one is no regular expression.
    """
    found = found_in(text=prediction, patterns=patterns, timeout=timeout)
    return None if found is None else float(found)


def found_in(*, text: str, patterns: Sequence[str], timeout: float | None = None) -> bool | None:
    """Whether one of the patterns is found in `text`; None where one ran out of time and no other was found."""
    if isinstance(patterns, str) or not patterns:
        raise RagxError(f"patterns must be a list of at least one pattern, got {patterns!r}. Wrap a single one")
    limit = TIMEOUT if timeout is None else timeout
    unknown = False
    for pattern in patterns:
        try:
            if _compiled(pattern).search(text, timeout=limit) is not None:
                return True
        except TimeoutError:
            logger.warning("pattern %r took longer than %s s on a text of %d letters", pattern, limit, len(text))
            unknown = True
    return None if unknown else False


@lru_cache(maxsize=10_000)
def _compiled(pattern: str) -> regex.Pattern[str]:
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
    except regex.error as error:
        raise RagxError(f"patterns must be regular expressions, got {pattern!r} ({error}). Mend it") from error
