"""Where each generated token stands in the decoded answer.

    ids  -> decode(ids[:1]), decode(ids[:2]), ...      token j spans what its prefix adds to the one before

One decision: the answer is decoded prefix by prefix instead of being encoded again, because encoding an answer need not
give the ids that were generated. Pieces of one character share its span.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile

Spans = tuple[tuple[int, int], ...]


def token_spans(token_ids: Sequence[int], text: str, *, decode: Callable[[Sequence[int]], str]) -> Spans | None:
    """Code points [start, end) of `text` for every token, white space before it left out.

    Args:
        token_ids: T ids of content tokens.
        text: what they decode to.
        decode: the tokenizer's, outer blanks stripped.

    Returns:
        None where the ids do not decode to `text`: their places cannot be known.
    """
    if decode(token_ids) != text:
        return None
    ends = [0]
    for j in range(1, len(token_ids) + 1):
        ends.append(max(ends[-1], _agreed(decode(token_ids[:j]), text)))
    ends[-1] = len(text)
    spans: list[tuple[int, int]] = []
    for start, end in pairwise(ends):
        blank = len(text[start:end]) - len(text[start:end].lstrip())
        spans.append((start + blank, end))
    for j in range(len(spans) - 2, -1, -1):  # a piece that completes no character has the span of the one that does
        if spans[j][0] == spans[j][1]:
            spans[j] = spans[j + 1]
    return tuple(spans)


def _agreed(prefix: str, text: str) -> int:
    """How many code points the two share from the start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prefix, text, strict=False)))
