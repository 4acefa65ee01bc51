"""Words and sentences of a text, as the lexical judges compare them; any language, no data files.

    "Lodging costs 1,200 yuan."  ->  lodg, cost, 1200, yuan        "住宿限额"  ->  住宿, 宿限, 限额

One decision: where words are not separated (CJK) every pair of neighbouring characters is a word. English endings are
cut off so that "allows" meets "allowed"; that is no morphology, only a way to count.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
_PIECE = re.compile(rf"[{CJK}]+|\d[\d,.]*\d|\d|[^\W\d_{CJK}]+(?:['’][^\W\d_{CJK}]+)*")
_IS_CJK = re.compile(f"[{CJK}]")
_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[^a-z])|(?<=[。！？；])|\n+")
_ENDINGS = ("ingly", "edly", "ing", "ies", "ied", "ed", "es", "ly", "s")

# Words that carry no content of their own; "not" and its kin are handled as negation, not as content.
STOPWORDS = frozenset(
    """a about after all also although an and any are as at be because been before being between both but by can cannot
    could did do does during each few for from had has have he her hers him his how however i if in into is it its
    itself may me might more most must my no nor not of on one only or other our out over own same she should so some
    such than that the their them then there these they this those through to too under up very was we were what when
    where which while who whom whose why will with within without would you your yes according don't doesn't didn't
    isn't aren't wasn't weren't can't won't couldn't wouldn't shouldn't hasn't haven't hadn't""".split()
)


def folded(text: str) -> str:
    """One spelling of what looks the same: compatibility forms (full width) and case."""
    return unicodedata.normalize("NFKC", text).replace("’", "'").casefold()


def words(text: str) -> list[str]:
    """Every word in order, folded and cut to its stem; numbers without separators of thousands."""
    found: list[str] = []
    for piece in _PIECE.findall(folded(text)):
        if _IS_CJK.match(piece):
            found += [piece[i : i + 2] for i in range(len(piece) - 1)] or [piece]
        else:
            found.append(stem(piece))
    return found


def content_words(text: str) -> list[str]:
    """The words that carry content, in order; a text of stop words alone has none."""
    return [word for word in words(text) if word not in _STEMMED_STOPWORDS]


def sentences(text: str) -> list[str]:
    """The sentences of a text, cut at end marks before white space, at CJK end marks and at line breaks."""
    return [part.strip() for part in _END.split(text) if part.strip()]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """A folded word without its English ending; at least three letters stay."""
    if word[0].isdigit():
        return word.replace(",", "")
    word = word.removesuffix("'s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + ("y" if ending in ("ies", "ied") else "")
    return word


_STEMMED_STOPWORDS = frozenset(stem(word) for word in STOPWORDS) | STOPWORDS
