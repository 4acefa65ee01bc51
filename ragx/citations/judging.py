"""What supports a claim: frozen labels first, sufficient groups second, a judge last.

    label(c, e)     full, partial, none, contradict, not_judged        one passage for one claim
    enough(c, P)    True, False, None                                  do these passages together support it?  phi(P, c)

A set is enough where one of its passages is, where it holds a sufficient group, or where the judge says so of all its
texts together. One decision: None is not False. Where nobody judged, a rate has one claim less, and the report says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ragx.citations.evidence import EvidenceStore
from ragx.citations.gold import QUESTION, Gold, Keys
from ragx.citations.trace_records import Claim, Trace
from ragx.records import Passage, PassageKey

if TYPE_CHECKING:  # the protocols module imports torch, which the audit does without
    from ragx.protocols import Judge

NOT_JUDGED = "not_judged"
FROZEN = "frozen"  # who judged, where the gold file did
SHORT_ANSWERS = ("qa_short",)  # tasks whose claims say nothing without their question


class Support:
    """The support within one question; every passage is judged as far as the generator saw it.

    Args:
        trace: the question.
        gold: its frozen labels and groups; None where there are none.
        store: the corpus.
        judge: decides what nobody labelled; None leaves it `not_judged`.
        correct: whether the answer is an accepted one, None where that is not known. Groups of a whole question say
            what supports an accepted answer of one claim, and nothing about another.
        cache: judgements by question, claim and passages, shared by all questions.
    """

    def __init__(
        self,
        trace: Trace,
        gold: Gold | None,
        store: EvidenceStore,
        *,
        judge: Judge | None,
        correct: bool | None,
        cache: dict[tuple[Any, ...], tuple[str, str]],
    ) -> None:
        self._trace, self._gold, self._store, self._judge, self._cache = trace, gold, store, judge, cache
        self._visible = {packed.key: packed.visible for packed in trace.packed}
        self._order = {packed.key: packed.pos for packed in trace.packed}
        self._question_groups_hold = correct is not False and sum(claim.worthy for claim in trace.claims) == 1
        self._frozen = gold.labels if gold is not None else {}
        self._labels: dict[tuple[str, PassageKey], tuple[str, str]] = {}
        self._enough: dict[tuple[str, Keys], bool | None] = {}

    @property
    def judge_id(self) -> str:
        """Who judges what nobody labelled; empty for nobody."""
        return self._judge.id if self._judge is not None else ""

    def groups(self, claim: Claim) -> tuple[Keys, ...]:
        """The sufficient groups that are known to hold for this claim."""
        if self._gold is None:
            return ()
        own = self._gold.groups.get(claim.claim_id)
        if own is not None:
            return own
        return self._gold.groups.get(QUESTION, ()) if self._question_groups_hold else ()

    def label(self, claim: Claim, key: PassageKey) -> tuple[str, str]:
        """The support of one passage, and who judged it."""
        pair = (claim.claim_id, key)
        frozen = self._frozen.get(pair)
        if frozen is not None:
            return frozen, FROZEN
        if pair not in self._labels:
            self._labels[pair] = self._label(claim, key)
        return self._labels[pair]

    def judged(self, claims: Sequence[Claim], keys: Sequence[PassageKey]) -> list[tuple[str, PassageKey, str]]:
        """(claim id, passage, label) of every pair of the two that somebody judged."""
        if self._judge is None and (self._gold is None or not self._gold.groups):
            frozen = self._frozen
            pairs = ((claim.claim_id, key) for claim in claims for key in keys) if frozen else ()
            return [(*pair, frozen[pair]) for pair in pairs if pair in frozen]
        every = ((claim.claim_id, key, self.label(claim, key)[0]) for claim in claims for key in keys)
        return [row for row in every if row[2] != NOT_JUDGED]

    def enough(self, claim: Claim, keys: Keys) -> bool | None:
        """Whether these passages together support the claim; None where nobody can say."""
        pair = (claim.claim_id, keys)
        if pair not in self._enough:
            self._enough[pair] = self._is_enough(claim, keys)
        return self._enough[pair]

    def _label(self, claim: Claim, key: PassageKey) -> tuple[str, str]:
        holding = [group for group in self.groups(claim) if key in group]
        if holding:
            return ("full" if min(map(len, holding)) == 1 else "partial"), FROZEN
        return self._judged(claim, frozenset([key]))

    def _is_enough(self, claim: Claim, keys: Keys) -> bool | None:
        if not keys:
            return False
        frozen = self._gold.joint_labels.get((claim.claim_id, keys)) if self._gold is not None else None
        if frozen is not None:
            return frozen == "full"
        groups = self.groups(claim)
        if any(group <= keys for group in groups):
            return True
        labels = [self.label(claim, key) for key in keys]
        if any(label == "full" for label, _ in labels):
            return True
        if groups or all(label in ("none", "contradict") and by == FROZEN for label, by in labels):
            return False
        together, _ = labels[0] if len(keys) == 1 else self._judged(claim, keys)
        return None if together == NOT_JUDGED else together == "full"

    def _judged(self, claim: Claim, keys: Keys) -> tuple[str, str]:
        if self._judge is None:
            return NOT_JUDGED, ""
        passages = [self._passage(key) for key in sorted(keys, key=lambda key: (self._order.get(key, 10**9), key))]
        if not all(passages):
            return NOT_JUDGED, ""
        read = [passage for passage in passages if passage is not None]
        question = self._trace.question if self._trace.task in SHORT_ANSWERS else ""
        asked = (question, claim.text, *((passage.key, passage.sha256) for passage in read))
        if asked not in self._cache:
            self._cache[asked] = ask(self._judge, claim.text, read, question=question)
        return self._cache[asked]

    def _passage(self, key: PassageKey) -> Passage | None:
        """What the generator could read of it; None where the corpus does not hold its exact text."""
        resolution = self._store.resolve(key)
        if not resolution.resolved or resolution.evidence is None:
            return None
        passage = resolution.evidence.passage
        visible = self._visible.get(key)
        if visible is None or visible == (0, len(passage.text)):
            return passage
        return replace(passage, text=passage.text[slice(*visible)], sha256="")


def ask(judge: Judge, claim: str, passages: Sequence[Passage], *, question: str = "") -> tuple[str, str]:
    """The label, and the judge that gave it; one with a method `verdict` names which of its judges decided."""
    asked, text = hypothesis(judge, claim, question=question)
    if hasattr(asked, "verdict"):
        verdict = asked.verdict(text, passages)
        return verdict.label, verdict.judge
    return asked.judge(text, passages), asked.id


def hypothesis(judge: Judge, claim: str, *, question: str) -> tuple[Any, str]:
    """The judge to ask and the text to ask it about, for a claim that answers `question`.

    A claim that stands alone has the question "". An answer alone ("750") states nothing: a judge with a method `about`
    is asked about the answer to that question, one that `reads_question` is given both as one text.
    """
    if not question:
        return judge, claim
    about = getattr(judge, "about", None)
    if about is not None:
        return about(question), claim
    return judge, f"{question} {claim}" if getattr(judge, "reads_question", False) else claim
