"""Section 4.3: Q-BLEU-1 of generated questions (Nema and Khapra 2018, "Towards a Better Metric for Evaluating Question
Generation Systems"), tuned on SQuAD as in the paper.

    answerability  =  .41 F1(named entities) + .36 F1(content words) + .20 F1(question words) + .03 F1(function words)
    Q-BLEU-1       =  .66 answerability  +  (1 - .66) BLEU-1 of the question

F1 is of BLEU-1 in both directions over the words of one class alone. A named entity is a word with a capital letter,
save a question word at the start; `what` and `which` take the next word along. As in the authors' script, a class that
both questions lack scores 0, so that 1 is reached only by questions that have all four.

The script (PrekshaNema25/Answerability-Metric) takes the weights as arguments. These four are `--ner_weight 0.41
--re_weight 0.36 --qt_weight 0.20 --delta 0.66`, as in the command for Q-BLEU-1 on SQuAD that is given in
github.com/ZhangShiyue/QGforQA/issues/2 after an exchange with the metric's authors; the script takes what is left of 1,
.03, for function words. The example in its README, 0.6, 0.1, 0.2 and 0.7, is another `Weights`.

One decision: the script tokenizes with Stanford's PTB tokenizer in Java; here words are runs of letters and digits,
with an apostrophe inside. Both drop case and punctuation; they differ on contractions ("don't").
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragx.errors import RagxError


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each class of words counts, and answerability against BLEU-1; function words get what is left of 1."""

    named_entities: float = 0.41
    content_words: float = 0.36
    question_words: float = 0.20
    delta: float = 0.66

    @property
    def function_words(self) -> float:
        """What the other three classes leave of 1."""
        return 1 - self.named_entities - self.content_words - self.question_words


SQUAD = Weights()
QUESTION_WORDS = frozenset("what which why who whom whose where when how".split())
# NLTK's first English stop words without the question words, as the authors take them.
FUNCTION_WORDS = frozenset(
    """a about above after again against all am an and any are as at be because been before being below between both
    but by can did do does doing don down during each few for from further had has have having he her here hers
    herself him himself his i if in into is it its itself just me more most my myself no nor not now of off on
    once only or other our ours ourselves out over own s same she should so some such t than that the their theirs
    them themselves then there these they this those through to too under until up very was we were while will
    with you your yours yourself yourselves""".split()
)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_TAKES_NEXT = ("what", "which")


def q_bleu_1(*, prediction: str, references: Sequence[str], weights: Weights = SQUAD) -> float:
    """Q-BLEU-1 of a question, the best over the references; between 0 and 1.

    Raises:
        RagxError: `references` is a text or empty.
    """
    if isinstance(references, str) or not references:
        raise RagxError(f"references must be a list of at least one question, got {references!r}. Wrap a single one")
    return max(_one(prediction, reference, weights) for reference in references)


def answerability(*, prediction: str, reference: str, weights: Weights = SQUAD) -> float:
    """The weighted F1 over the four classes of words."""
    ours, theirs = _classes(prediction), _classes(reference)
    shares = (weights.named_entities, weights.content_words, weights.question_words, weights.function_words)
    return sum(share * _f1(a, b) for share, a, b in zip(shares, ours, theirs, strict=True))


def _one(prediction: str, reference: str, weights: Weights) -> float:
    fluency = _bleu(_words(prediction), _words(reference))
    answerable = answerability(prediction=prediction, reference=reference, weights=weights)
    return weights.delta * answerable + (1 - weights.delta) * fluency


def _classes(text: str) -> tuple[list[str], list[str], list[str], list[str]]:
    """Named entities, content words, question words, function words; in tokens."""
    raw = unicodedata.normalize("NFC", text).split()
    asked = [i for i, word in enumerate(raw) if word in QUESTION_WORDS or word in _CAPITALIZED]
    question = [j for i in asked for j in ([i, i + 1] if raw[i].lower() in _TAKES_NEXT and i + 1 < len(raw) else [i])]
    taken = {raw[i] for i in question}
    named = [w for i, w in enumerate(raw) if w[0].isupper() and not (i == 0 and w.lower() in QUESTION_WORDS)]
    content = [w for w in raw if w not in taken and not w[0].isupper() and w not in FUNCTION_WORDS]
    function = [w for w in raw if w.lower() in FUNCTION_WORDS]
    return _tokens(named), _tokens(content), _tokens(raw[i] for i in question), _tokens(function)


_CAPITALIZED = frozenset(word.capitalize() for word in QUESTION_WORDS)


def _tokens(words: Iterable[str]) -> list[str]:
    return _words(" ".join(words))


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", text).lower())


def _f1(ours: list[str], theirs: list[str]) -> float:
    precision, recall = _bleu(ours, theirs), _bleu(theirs, ours)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _bleu(words: list[str], reference: list[str]) -> float:
    """BLEU-1 of one sentence, with the brevity penalty; 0 where either has no word."""
    if not words or not reference:
        return 0.0
    shared = sum((Counter(words) & Counter(reference)).values())
    return shared / len(words) * math.exp(min(0.0, 1 - len(reference) / len(words)))
