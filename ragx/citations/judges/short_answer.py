"""A short answer weighed with its question: the exact words of an answer prove little (AIS, section 2.2).

    "Who was mayor of Bree?"  "Ann Lee"        the passage names Ann Lee: does it name her as the mayor of Bree?

    full      a sentence holds the answer word for word and, with the title, most of question and answer
    partial   the answer stands elsewhere in a passage that holds some of question and answer
    none      it stands in a passage that holds hardly any of them

"Most" and "some" are the thresholds of the lexical judge. One decision: what counts is the sentence that holds the
answer, not the passage. The right passage on a question names many people, and their names are there word for word as
well. Words cannot tell two names of one sentence apart; that takes an entailment model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ragx.citations.judges.exact_span import exact_span
from ragx.citations.judges.lexical import LexicalJudge
from ragx.citations.judges.words import sentences
from ragx.records import Passage

if TYPE_CHECKING:  # the protocols module imports torch, which these judges do without
    from ragx.protocols import ScoringJudge

_ORDER = ("not_judged", "none", "partial", "full")


class ShortAnswerJudge:
    """The lexical judge of answers to one question; as `ragx.protocols.ScoringJudge`.

    Args:
        question: that the answers answer.
        lexical: whose weights and thresholds apply.
    """

    def __init__(self, question: str, *, lexical: ScoringJudge | None = None) -> None:
        self._question, self._lexical = question, lexical or LexicalJudge()
        self.id = self._lexical.id

    def states(self, answer: str, passages: Sequence[Passage]) -> bool:
        """Whether a sentence holds the answer word for word and most of the question with it."""
        asked = self._asked(answer)
        return any(self._lexical.judge(asked, [held]) == "full" for held in _holding(answer, passages))

    def judge(self, answer: str, passages: Sequence[Passage]) -> str:
        """The label of an answer, by words alone; one whose own words are not there is not saved by its question."""
        if self.states(answer, passages):
            return "full"
        most = "partial" if any(_holding(answer, passages)) else self._lexical.judge(answer, passages)
        return min(most, self._lexical.judge(self._asked(answer), passages), key=_ORDER.index)

    def score(self, answer: str, passages: Sequence[Passage]) -> float | None:
        """1 for an answer that is stated, else the share that a sentence with it holds of question and answer.

        Without such a sentence it is the smaller share of the answer, and of question and answer, in the passages.
        """
        if self.states(answer, passages):
            return 1.0
        asked = self._asked(answer)
        near = [self._lexical.score(asked, [held]) for held in _holding(answer, passages)]
        shares = near or [self._lexical.score(text, passages) for text in (answer, asked)]
        given = [share for share in shares if share is not None]
        if len(given) < len(shares):
            return None
        return max(given) if near else min(given)

    def _asked(self, answer: str) -> str:
        return f"{self._question} {answer}"


def _holding(answer: str, passages: Sequence[Passage]) -> Iterator[Passage]:
    """Each sentence that holds the answer word for word; the passage, where the answer is longer than a sentence."""
    for passage in passages:
        if exact_span(answer, passage.text) is None:
            continue
        holding = [part for part in sentences(passage.text) if exact_span(answer, part) is not None]
        for text in holding or [passage.text]:
            yield replace(passage, text=text, sha256="")
