"""Several judges in one order.

    J0 frozen labels  >  J2 a constraint is violated  >  J1 exact span  >  J4 entailment, or else J3 lexical

One decision: the order is the whole rule, no judge is averaged with another, and every verdict names the judge that
gave it. The lexical judge decides only where there is no entailment model, and its verdicts are marked `heuristic`. For
a short answer whose question is known, J1 holds only in a sentence that holds most of the question too, and J3 weighs
the answer as `ragx.citations.judges.short_answer` says: a wrong name stands word for word in the right passage as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ragx.citations.judges.constraints import ConstraintJudge
from ragx.citations.judges.exact_span import ExactSpanJudge
from ragx.citations.judges.short_answer import ShortAnswerJudge
from ragx.citations.judges.verdict import Verdict
from ragx.records import Passage

if TYPE_CHECKING:  # the protocols module imports torch, which these judges do without
    from ragx.protocols import Judge, ScoringJudge


@dataclass(frozen=True, slots=True)
class CompositeJudge:
    """J6 as `ragx.protocols.ScoringJudge`.

    Attributes:
        frozen: labels of the claim at hand (`FrozenLabels.of`).
        constraints: the veto.
        exact: the exact span; heuristic where a question limits it.
        nli: an entailment model; where given, `lexical` is not asked.
        lexical: None leaves open what no other judge decides.
        question: put before the claim for the judges that read sentences, where an answer alone states nothing.
    """

    frozen: Judge | None = None
    constraints: Judge = field(default_factory=lambda: ConstraintJudge(capitalized=False))
    exact: Judge = field(default_factory=ExactSpanJudge)
    nli: ScoringJudge | None = None
    lexical: ScoringJudge | None = None
    question: str = ""

    @property
    def id(self) -> str:
        """The name, with the judge that decides last."""
        return f"composite({self._last.id})" if self._last else "composite"

    @property
    def _last(self) -> ScoringJudge | None:
        return self.nli or self.lexical

    def about(self, question: str) -> CompositeJudge:
        """This judge for short answers to `question`: "750" is looked for as it is, and weighed with its question."""
        return replace(self, question=question)

    def labelled(self, frozen: Judge) -> CompositeJudge:
        """This judge with the frozen labels of a claim before all else."""
        return replace(self, frozen=frozen)

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        """The label of the first judge in the order that decides."""
        return self.verdict(claim, passages).label

    def verdict(self, claim: str, passages: Sequence[Passage]) -> Verdict:
        """The label, who gave it, and whether by counting words alone."""
        decided = self._decided(claim, passages)
        if decided is not None:
            return decided
        last, asked = self._last_asked(claim)
        if last is None:
            return Verdict("not_judged", self.id)
        return Verdict(last.judge(asked, passages), last.id, heuristic=self.nli is None)

    def score(self, claim: str, passages: Sequence[Passage]) -> float | None:
        """1 or 0 where a judge without a scale decides, else the score of the last judge."""
        decided = self._decided(claim, passages)
        if decided is not None:
            return {"full": 1.0, "partial": 0.5}.get(decided.label, 0.0)
        last, asked = self._last_asked(claim)
        return None if last is None else last.score(asked, passages)

    def _decided(self, claim: str, passages: Sequence[Passage]) -> Verdict | None:
        """What the judges without a scale decide, None where they leave it open."""
        for judge in (self.frozen, self.constraints):
            if judge is not None and (label := judge.judge(claim, passages)) != "not_judged":
                return Verdict(label, judge.id)
        label = self.exact.judge(claim, passages)
        if label == "not_judged" or (self.question and not self._short.states(claim, passages)):
            return None
        return Verdict(label, self.exact.id, heuristic=bool(self.question))

    @property
    def _short(self) -> ShortAnswerJudge:
        return ShortAnswerJudge(self.question, lexical=self.lexical)

    def _last_asked(self, claim: str) -> tuple[ScoringJudge | None, str]:
        """Who decides what is left, and about which text."""
        if self.nli is None and self.lexical is not None and self.question:
            return self._short, claim
        return self._last, f"{self.question} {claim}" if self.question else claim
