"""Entailment by a sequence-classification checkpoint.

    p(entailment | premise, claim),  the largest over windows of the passages' sentences

The claim is never cut. A premise that is too long is cut in windows of whole sentences that overlap by one; a single
sentence that is too long is cut in overlapping runs of words. So nothing is left out and no pair is truncated; that is
counted in `truncated_windows`, which stays 0.

One decision: which output means entailment is read from the checkpoint's own label names, or given. Names like LABEL_0
are refused: published checkpoints order their labels both ways, and a wrong guess reverses every figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ragx.citations.judges.words import sentences
from ragx.errors import ConfigError
from ragx.records import Passage

if TYPE_CHECKING:
    from ragx.citations.judges.classifier import PairClassifier

MEANINGS = ("entailment", "neutral", "contradiction")
_NAMES = {
    "entailment": "entailment", "entail": "entailment", "entails": "entailment", "supports": "entailment",
    "supported": "entailment", "support": "entailment", "neutral": "neutral", "not_entailment": "neutral",
    "not entailment": "neutral", "non_entailment": "neutral", "not enough info": "neutral", "unsupported": "neutral",
    "not_supported": "neutral", "contradiction": "contradiction", "contradict": "contradiction",
    "contradicts": "contradiction", "refutes": "contradiction", "refuted": "contradiction",
}  # fmt: skip
_OVERLAP = 8  # words that two runs of one long sentence share


class Scorer(Protocol):
    """What the windows are given to: a checkpoint, or a stand-in in tests."""

    max_length: int

    def lengths(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """The number of tokens of each (premise, claim) with everything the model adds."""
        ...

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, float]]:
        """p(meaning) of each (premise, claim), nothing cut."""
        ...


def label_meanings(id2label: Mapping[int, str], labels: Sequence[str] = ()) -> list[str]:
    """What each output of a classifier means.

    Args:
        id2label: from the checkpoint's configuration.
        labels: the meaning of each output in order, where the names do not say.

    Raises:
        ConfigError: a name without a meaning, a meaning that its name denies, or not exactly one entailment.
    """
    names = [str(id2label[i]) for i in range(len(id2label))]
    named = [_NAMES.get(name.lower().strip()) for name in names]
    meanings = list(labels) or named
    problems = []
    if len(meanings) != len(names) or not set(meanings) <= set(MEANINGS):
        problems.append(
            f"labels must say for each of the outputs {names} whether it is {', '.join(MEANINGS)}, "
            f"got {list(labels) or 'none'}. Give one for each, in this order."
        )
    elif meanings.count("entailment") != 1:
        problems.append(f"labels must name entailment exactly once, got {meanings}. Mend the list.")
    problems += [
        f"labels must agree with the checkpoint, got {meaning} for {name!r}. Mend the list or leave it out."
        for name, meaning, known in zip(names, meanings, named, strict=False)
        if known not in (None, meaning)
    ]
    if problems:
        raise ConfigError(problems)
    return [meaning for meaning in meanings if meaning is not None]


class NliJudge:
    """J4 as `ragx.protocols.ScoringJudge`.

    Attributes:
        windows: how many (window, claim) pairs were scored.
        truncated_windows: how many of them did not fit and were cut; 0 by construction, and counted all the same.
        claims_too_long: claims that leave no room for a premise; they are `not_judged`.

    Args:
        scorer: gives lengths and probabilities.
        threshold: probability from which a label is given; tune it on labelled rows.
        min_room: tokens that a claim must leave for the premise.
    """

    id = "nli"
    reads_question = True

    def __init__(self, scorer: Scorer, *, threshold: float = 0.5, min_room: int = 16) -> None:
        self._scorer, self._threshold, self._min_room = scorer, threshold, min_room
        self.windows = self.truncated_windows = self.claims_too_long = 0
        self._last: tuple[tuple[str, str], dict[str, float] | None] | None = None

    @classmethod
    def load(cls, checkpoint: str | Path, *, labels: Sequence[str] = (), threshold: float = 0.5) -> NliJudge:
        """The judge of a Hugging Face checkpoint (folder or name on the hub).

        Raises:
            ConfigError: labels that do not say which one is entailment.
        """
        from ragx.citations.judges.classifier import PairClassifier

        scorer: PairClassifier = PairClassifier.load(checkpoint, labels=labels)
        return cls(scorer, threshold=threshold)

    def judge(self, claim: str, passages: Sequence[Passage]) -> str:
        """`full` where some window entails the claim, else `contradict` where one contradicts it, else `none`."""
        best = self._best(claim, passages)
        if best is None:
            return "not_judged"
        if best["entailment"] >= self._threshold:
            return "full"
        return "contradict" if best["contradiction"] >= self._threshold else "none"

    def score(self, claim: str, passages: Sequence[Passage]) -> float | None:
        """The largest p(entailment) over the windows."""
        best = self._best(claim, passages)
        return None if best is None else best["entailment"]

    def _best(self, claim: str, passages: Sequence[Passage]) -> dict[str, float] | None:
        """Per meaning the largest probability over the windows; the last result is kept, for a label and its score."""
        premise = "\n".join(f"{p.title}\n{p.text}" if p.title else p.text for p in passages)
        asked = (claim, premise)
        if self._last is None or self._last[0] != asked:
            self._last = (asked, self._scored(claim, premise))
        return self._last[1]

    def _scored(self, claim: str, premise: str) -> dict[str, float] | None:
        if not claim.strip() or not premise.strip():
            return None
        if self._length("", claim) + self._min_room > self._scorer.max_length:
            self.claims_too_long += 1
            return None
        pairs = [(window, claim) for window in self._cut(premise, claim)]
        self.windows += len(pairs)
        self.truncated_windows += sum(n > self._scorer.max_length for n in self._scorer.lengths(pairs))
        given = self._scorer.probabilities(pairs)
        return {meaning: max(p.get(meaning, 0.0) for p in given) for meaning in MEANINGS}

    def _length(self, premise: str, claim: str) -> int:
        return self._scorer.lengths([(premise, claim)])[0]

    def _fits(self, parts: Sequence[str], claim: str) -> bool:
        return self._length(" ".join(parts), claim) <= self._scorer.max_length

    def _cut(self, premise: str, claim: str) -> Iterator[str]:
        """Windows of whole sentences that fit beside the claim; neighbours share a sentence."""
        if self._fits([premise], claim):
            yield premise
            return
        window: list[str] = []
        for sentence in (piece for whole in sentences(premise) for piece in self._pieces(whole, claim)):
            if window and not self._fits([*window, sentence], claim):
                yield " ".join(window)
                window = window[-1:] if self._fits([window[-1], sentence], claim) else []
            window.append(sentence)
        yield " ".join(window)

    def _pieces(self, sentence: str, claim: str) -> Iterator[str]:
        """A sentence, or overlapping runs of its words (of its characters, where it is one word) that fit."""
        if self._fits([sentence], claim):
            yield sentence
            return
        units, joint = sentence.split(), " "
        if len(units) == 1:
            units, joint = list(sentence), ""
        start = 0
        while start < len(units):
            end = self._longest(units, start, joint, claim)
            yield joint.join(units[start:end])
            if end == len(units):
                return
            start = max(start + 1, end - _OVERLAP)

    def _longest(self, units: Sequence[str], start: int, joint: str, claim: str) -> int:
        """The end of the longest run from `start` that fits, by bisection; at least one unit."""
        low, high = start + 1, len(units)
        while low < high:
            middle = (low + high + 1) // 2
            if self._fits([joint.join(units[start:middle])], claim):
                low = middle
            else:
                high = middle - 1
        return low
