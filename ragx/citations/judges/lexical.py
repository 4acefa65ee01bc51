"""How much of the claim's wording the passages hold.

    score  =  sum of the weights of the claim's content words that are held  /  sum of all of them
    held   =  over the passages, the title and the `window` sentences in a row that hold most

with idf weights, log(1 + N / (df + 1/2)), from the passages of a corpus, or equal ones. Labels by two thresholds.

One decision: a few sentences in a row count, not the whole passage. A long passage holds the words of nearly anything
somewhere. The judge only counts words: what it calls full is marked as heuristic wherever it is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ragx.citations.judges.words import content_words, sentences, words
from ragx.errors import RagxError
from ragx.records import Passage

# FULL and WINDOW: best G-mean and AUC on the tuning rows of configs/judge_agreement.yaml. Those rows know no partial
# support, so PARTIAL is a choice: below it most of the wording is missing.
FULL, PARTIAL, WINDOW = 0.58, 0.4, 3


@dataclass(frozen=True, slots=True)
class WordWeights:
    """How much a word tells: its idf over a collection; without one every word counts the same.

    Attributes:
        frequencies: in how many of the texts each word is.
        n: how many texts.
    """

    frequencies: Mapping[str, int]
    n: int

    @classmethod
    def of(cls, texts: Iterable[str]) -> WordWeights:
        """Counts a collection."""
        counts: Counter[str] = Counter()
        n = 0
        for text in texts:
            counts.update(set(words(text)))
            n += 1
        return cls(dict(counts), n)

    def __getitem__(self, word: str) -> float:
        return math.log1p(self.n / (self.frequencies.get(word, 0) + 0.5)) if self.n else 1.0


class LexicalJudge:
    """J3 as `ragx.protocols.ScoringJudge`.

    Args:
        full, partial: scores from which a claim counts as fully or partly supported; tune them on labelled rows.
        window: sentences in a row that count together.
        weights: of words; equal without.

    Raises:
        RagxError: thresholds that are not 0 <= partial <= full <= 1, or a window below 1.
    """

    id = "lexical"
    reads_question = True

    def __init__(
        self,
        *,
        full: float = FULL,
        partial: float = PARTIAL,
        window: int = WINDOW,
        weights: WordWeights | None = None,
    ) -> None:
        if not 0 <= partial <= full <= 1:
            raise RagxError(f"thresholds must be 0 <= partial <= full <= 1, got {partial} and {full}. Mend them")
        if window < 1:
            raise RagxError(f"window must be >= 1 sentence, got {window}. Give at least one")
        self._full, self._partial, self._window = full, partial, window
        self._weights = weights or WordWeights({}, 0)

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        """By the thresholds; `not_judged` where the claim has no content word or nothing is cited."""
        score = self.score(claim, passages)
        if score is None:
            return "not_judged"
        return "full" if score >= self._full else "partial" if score >= self._partial else "none"

    def score(self, claim: str, passages: Sequence[Passage]) -> float | None:
        """The share of the claim's weight that the passages hold, 0 to 1."""
        wanted = Counter(content_words(claim))
        total = math.fsum(count * self._weights[word] for word, count in wanted.items())
        if not total or not passages:
            return None
        held: set[str] = set()
        for passage in passages:
            windows = _windows(passage.title, passage.text, self._window)
            held |= max(windows, key=lambda window: self._weight(wanted, window))
        return min(1.0, self._weight(wanted, held) / total)

    def _weight(self, wanted: Mapping[str, int], held: Iterable[str]) -> float:
        return math.fsum(wanted[word] * self._weights[word] for word in wanted.keys() & held)


@lru_cache(maxsize=1024)
def _windows(title: str, text: str, window: int) -> tuple[frozenset[str], ...]:
    """The words of every `window` sentences in a row, those of the title with each."""
    named = set(words(title))
    lines = [set(words(sentence)) for sentence in sentences(text)]
    starts = range(max(1, len(lines) - window + 1))
    return tuple(frozenset(named.union(*lines[start : start + window])) for start in starts)
