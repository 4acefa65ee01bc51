"""Labels that people froze before the system ran, the authority among the judges.

    one passage     its label
    several         full > contradict > partial > none, once nothing that is not labelled could change it

One decision: a pair without a label is `not_judged`, never `none`; a passage that nobody looked at may be the one that
supports the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragx.citations.judges.verdict import LABELS
from ragx.errors import RagxError
from ragx.records import Passage, PassageKey

Labels = Mapping[tuple[str, str, PassageKey], str]


class FrozenLabels:
    """Labels by (question id, claim id, passage).

    Raises:
        RagxError: a label that is none of full, partial, none, contradict.
    """

    id = "frozen"

    def __init__(self, labels: Labels) -> None:
        for place, label in labels.items():
            if label not in LABELS[:-1]:
                raise RagxError(
                    f"label of {place} must be one of {', '.join(LABELS[:-1])}, got {label!r}. "
                    "Leave out what nobody labelled"
                )
        self._labels = labels

    def label(self, question_id: str, claim_id: str, keys: Sequence[PassageKey]) -> str:
        """What the labels of these passages say together."""
        given = {self._labels.get((question_id, claim_id, key), "not_judged") for key in keys}
        for label in ("full", "not_judged", "contradict", "partial", "none"):
            if label in given:
                return label
        return "not_judged"

    def of(self, question_id: str, claim_id: str) -> FrozenJudge:
        """The labels of one claim as a judge."""
        return FrozenJudge(self, question_id, claim_id)


class FrozenJudge:
    """J0 of one claim as `ragx.protocols.Judge`; the text of the claim is not looked at."""

    id = FrozenLabels.id

    def __init__(self, labels: FrozenLabels, question_id: str, claim_id: str) -> None:
        self._labels, self._question_id, self._claim_id = labels, question_id, claim_id

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        """The frozen label of the passages for this judge's claim."""
        return self._labels.label(self._question_id, self._claim_id, [passage.key for passage in passages])
