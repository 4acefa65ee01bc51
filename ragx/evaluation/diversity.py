"""Table 5 of the paper: how varied the generated texts are, as distinct to total trigrams of all of them.

    ratio  =  |distinct n-grams|  /  |n-grams|

Words are split at blanks, case aside, in NFC. Each question gets a share of the distinct ones: an n-gram that occurs c
times in all counts 1/c at each place, so that the shares add up to the number of distinct n-grams.

One decision: the interval resamples questions with these shares as they are. A resample that draws a question twice
and counts its n-grams anew would be less varied than any real sample, and the interval would miss the figure itself.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction


def distinct_shares(texts: Sequence[str], *, n: int = 3) -> list[tuple[float, float]]:
    """Per text its share of the distinct n-grams and its number of n-grams; both 0 for a text below n words."""
    grams = [_ngrams(text, n) for text in texts]
    counts = Counter(gram for of_text in grams for gram in of_text)
    # Added as fractions: the order of a text's n-grams must not move the last digit.
    shares = (float(sum((Fraction(1, counts[gram]) for gram in of_text), Fraction(0))) for of_text in grams)
    return [(share, float(len(of_text))) for share, of_text in zip(shares, grams, strict=True)]


def _ngrams(text: str, n: int) -> list[tuple[str, ...]]:
    words = unicodedata.normalize("NFC", text).lower().split()
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
