"""A text to train on where the accepted answers are regular expressions (CuratedTREC; appendix of the paper).

The paper retrieves 1,000 passages a question, trains on the match it sees most, and where nothing matches spells the
pattern out. Here the pattern is spelled out at once, without an index: of alternatives the first, of what may be absent
nothing, of a set of characters the first.

One decision: a text is given out only if the pattern accepts it, so no target is ever wrong about its own question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import regex

from ragx.records import Example

try:  # Python's own parser of patterns; its public name went away with 3.11
    from re import _constants as _codes  # type: ignore[attr-defined]
    from re import _parser  # type: ignore[attr-defined]
except ImportError:
    import sre_constants as _codes
    import sre_parse as _parser

TIMEOUT = 0.5  # seconds of computing that one search may take
_FLAGS = regex.IGNORECASE | regex.MULTILINE


def text_targets(examples: Iterable[Example]) -> list[Example]:
    """The examples whose patterns can be spelled out, with those texts as answers, in the order of the patterns."""
    found = []
    for example in examples:
        answers = [text for text in map(spelled_out, example.answers) if text is not None]
        if answers:
            found.append(replace(example, answers=tuple(dict.fromkeys(answers))))
    return found


def spelled_out(pattern: str) -> str | None:
    """A text that `pattern` accepts; None where it has parts that cannot be spelled out (look-arounds and the like)."""
    try:
        text = " ".join(_spelled(_parser.parse(pattern)).split())
        accepted = bool(text) and regex.search(pattern, text, _FLAGS, timeout=TIMEOUT) is not None
    except (re.error, regex.error, RecursionError, KeyError, TimeoutError):
        return None
    return text if accepted else None


def _spelled(tokens: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_token(code, value) for code, value in tokens)


def _token(code: Any, value: Any) -> str:
    if code is _codes.LITERAL:
        return chr(value)
    if code is _codes.BRANCH:
        return _spelled(value[1][0])
    if code is _codes.SUBPATTERN:
        return _spelled(value[-1])
    if code in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
        least, _, part = value
        return _spelled(part) * least
    if code is _codes.IN:
        return _member(value)
    if code is _codes.ANY:
        return " "
    if code is _codes.AT:
        return ""
    raise KeyError(code)


def _member(options: Sequence[tuple[Any, Any]]) -> str:
    """The first character of a set; a blank for \\s and for a set that only excludes."""
    code, value = options[0]
    if code is _codes.LITERAL:
        return chr(value)
    if code is _codes.RANGE:
        return chr(value[0])
    names = {_codes.CATEGORY_DIGIT: "0", _codes.CATEGORY_WORD: "a"}
    return names.get(value, " ") if code is _codes.CATEGORY else " "
