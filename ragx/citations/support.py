"""Does a passage support a claim: the judges by name, all offline.

    J0 frozen    J1 exact_span    J2 constraints    J3 lexical    J4 nli    J6 composite

Each is a module of `ragx.citations.judges` and offers `ragx.protocols.Judge`. Only `nli` needs torch and weights; it is
imported where one is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragx.citations.judges.composite import CompositeJudge
from ragx.citations.judges.constraints import ConstraintJudge
from ragx.citations.judges.exact_span import ExactSpanJudge, exact_span, judge_exact_span
from ragx.citations.judges.frozen import FrozenLabels
from ragx.citations.judges.lexical import LexicalJudge, WordWeights
from ragx.citations.judges.verdict import LABELS, SupportRate, Verdict, support_rate
from ragx.errors import ConfigError

if TYPE_CHECKING:
    from ragx.protocols import Judge

JUDGES = ("exact_span", "constraints", "lexical", "nli", "composite")


def build_judge(
    name: str,
    *,
    lexical: LexicalJudge | None = None,
    checkpoint: str | Path | None = None,
    labels: Sequence[str] = (),
) -> Judge:
    """The judge of a name.

    Args:
        lexical: with thresholds and weights of its own, for `lexical` and `composite`.
        checkpoint: a sequence-classification checkpoint for `nli`, and for `composite` in place of `lexical`.
        labels: the meaning of its outputs in order, where their names do not say (`nli.label_meanings`).

    Raises:
        ConfigError: an unknown name, or `nli` without a checkpoint.
    """
    if name not in JUDGES:
        raise ConfigError([f"judge must be one of {', '.join(JUDGES)}, got {name!r}."])
    if name == "exact_span":
        return ExactSpanJudge()
    if name == "constraints":
        return ConstraintJudge()
    if name == "lexical":
        return lexical or LexicalJudge()
    if checkpoint is None:
        if name == "nli":
            raise ConfigError(["checkpoint must be given for judge nli, got none. Name a classification checkpoint."])
        return CompositeJudge(lexical=lexical or LexicalJudge())
    from ragx.citations.judges.nli import NliJudge

    nli = NliJudge.load(checkpoint, labels=labels)
    return nli if name == "nli" else CompositeJudge(nli=nli)


__all__ = [
    "JUDGES",
    "LABELS",
    "CompositeJudge",
    "ConstraintJudge",
    "ExactSpanJudge",
    "FrozenLabels",
    "LexicalJudge",
    "SupportRate",
    "Verdict",
    "WordWeights",
    "build_judge",
    "exact_span",
    "judge_exact_span",
    "support_rate",
]
