"""Section 4.2 and 4.3: generated sentences against written ones, by sacrebleu and rouge-score.

    bleu_1      clipped unigram matches / words, times the brevity penalty; over the corpus (Papineni 2002)
    rouge_l     F of the longest common subsequence with the reference, the best over the references (Lin 2004)
    rouge_lsum  the same, sentence by sentence, united: the order of sentences does not matter

BLEU is of lower-case text in sacrebleu's `13a` tokens. It is kept as four counts a question, from which the corpus
figure of any sample is exact; no mean of sentence BLEUs occurs. ROUGE reads words of letters and digits in NFC lower
case, which are rouge-score's own tokens where a text is ASCII; its own rule drops every other letter.

One decision: sentences of `rouge_lsum` end at a line break and after . ! or ? before a blank; rouge-score alone reads
one line as one sentence, which gives other figures for the same words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import Tokenizer
from sacrebleu.metrics.bleu import BLEU

from ragx.errors import RagxError

_WORD = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


class BleuCounts(NamedTuple):
    """What BLEU-1 is made of; counts of several questions are added field by field.

    Attributes:
        matches: words of the prediction that a reference has, each as often as the reference that has it most.
        words: words of the prediction.
        reference_words: words of the reference whose length is nearest.
    """

    matches: int
    words: int
    reference_words: int


def bleu_counts(*, prediction: str, references: Sequence[str]) -> BleuCounts:
    """The counts of one question.

    Raises:
        RagxError: `references` is a text or empty.
    """
    score = _bleu().sentence_score(prediction, list(_checked(references)))
    return BleuCounts(int(score.counts[0]), int(score.totals[0]), int(score.ref_len))


def bleu_1(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """BLEU-1, between 0 and 1, of summed counts (..., 3); 0 without a word."""
    matches, words, reference_words = np.moveaxis(np.asarray(sums, dtype=np.float64), -1, 0)
    safe = np.maximum(words, 1)
    brevity = np.exp(np.minimum(0.0, 1 - reference_words / safe))
    return np.where(words > 0, matches / safe * brevity, 0.0)


def rouge_l(*, prediction: str, references: Sequence[str]) -> float:
    """ROUGE-L F1, the best over the references; 0 where either has no word."""
    return max(_rouge(prediction, reference, "rougeL") for reference in _checked(references))


def rouge_lsum(*, prediction: str, references: Sequence[str]) -> float:
    """ROUGE-Lsum F1 over sentences, the best over the references."""
    lines = sentences(prediction)
    return max(_rouge(lines, sentences(reference), "rougeLsum") for reference in _checked(references))


def sentences(text: str) -> str:
    """`text` with one sentence a line, as rouge-score wants it."""
    return "\n".join(part for part in _SENTENCE_END.split(text) if part.strip())


class _Words(Tokenizer):
    """Words of letters and digits; equal to rouge-score's own for ASCII."""

    def tokenize(self, text: str) -> list[str]:
        return _WORD.findall(unicodedata.normalize("NFC", text).lower())


@cache
def _bleu() -> BLEU:
    return BLEU(max_ngram_order=1, lowercase=True, effective_order=True, tokenize="13a")


@cache
def _scorer(kind: str) -> RougeScorer:
    return RougeScorer([kind], tokenizer=_Words())


def _rouge(prediction: str, reference: str, kind: str) -> float:
    return float(_scorer(kind).score(target=reference, prediction=prediction)[kind].fmeasure)


def _checked(references: Sequence[str]) -> Sequence[str]:
    if isinstance(references, str) or not references:
        raise RagxError(
            f"references must be a list of at least one text, got {references!r}. Wrap a single reference in a list"
        )
    return references
