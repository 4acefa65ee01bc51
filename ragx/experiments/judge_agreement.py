"""The support judges against people: AUC, precision, recall and kappa on labelled claims.

    rows    {id, set, source, question, claim, references[], supported}, one JSON object a line: AttributionBench
            (Li et al. 2024), and any file in that form

One decision: what is chosen (word weights, thresholds) is chosen on one part of the rows, what is reported is reported
on the other. The parts are sets of the file, or halves by question, so that no question is on both sides.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragx.citations.agreement import Agreement, agreement, best_threshold
from ragx.citations.judges.composite import CompositeJudge
from ragx.citations.judges.constraints import ConstraintJudge
from ragx.citations.judges.exact_span import ExactSpanJudge
from ragx.citations.judges.lexical import LexicalJudge, WordWeights
from ragx.citations.judging import hypothesis
from ragx.errors import ConfigError
from ragx.jsonl import Row, read_rows
from ragx.protocols import Judge, ScoringJudge
from ragx.records import Passage

# ALCE's own judge (an 11B entailment model) against people, from its paper: citation recall and precision.
ALCE_KAPPA = (0.698, 0.525)
MIDDLE = 0.5
_LABEL_SCORES = {"full": 1.0, "partial": 0.5, "none": 0.0, "contradict": 0.0}
_MARKERS = re.compile(r"\s*\[\d+(?:\s*[,;–-]\s*\d+)*\](?:\s*,?\s*\[\d+(?:\s*[,;–-]\s*\d+)*\])*")
_NUMBER = re.compile(r"^\s*\[\d+\]\s*")


@dataclass(frozen=True, slots=True)
class LabelledClaim:
    """A claim, what was cited for it, and whether people say that it is fully supported.

    Attributes:
        id, set, source: the row, the part of the file that it belongs to, where it comes from.
        question, claim, passages, supported: what is judged, and the label.
        short: whether the claim is a short answer, which says nothing without its question.
    """

    id: str
    set: str
    source: str
    question: str
    claim: str
    passages: tuple[Passage, ...]
    supported: bool
    short: bool = False

    @classmethod
    def from_row(cls, row: Row) -> LabelledClaim:
        """The claim of a line, citation markers removed.

        Raises:
            DataError: a field that is absent or of the wrong kind.
        """
        name = row.text("id", row.require("id"))
        texts = [row.string("references", text) for text in row.items("references", row.require("references"))]
        supported = row.require("supported")
        if not isinstance(supported, bool):
            row.fail("supported", f"must be true or false, got {supported!r}. Write it without quotation marks")
        return cls(
            id=name,
            set=row.string("set", row.values.get("set") or ""),
            source=row.string("source", row.values.get("source") or ""),
            question=row.string("question", row.values.get("question") or ""),
            claim=_MARKERS.sub("", row.text("claim", row.require("claim"))).strip(),
            passages=tuple(Passage(name, "1", str(i), "", _NUMBER.sub("", text)) for i, text in enumerate(texts)),
            supported=supported,
        )


def read_claims(path: str | Path) -> list[LabelledClaim]:
    """The labelled claims of a JSON lines file (also `.gz`)."""
    return [LabelledClaim.from_row(row) for row in read_rows(path)]


def split(
    claims: Sequence[LabelledClaim], *, tune_sets: Collection[str]
) -> tuple[list[LabelledClaim], list[LabelledClaim]]:
    """The rows to tune on and the rows to report on.

    Args:
        tune_sets: names of sets that are tuned on; empty splits by question, half and half, whatever the order.

    Raises:
        ConfigError: a part that lacks supported or unsupported rows.
    """
    tune = [c for c in claims if (c.set in tune_sets if tune_sets else _is_even(c.question or c.id))]
    chosen = {c.id for c in tune}
    rest = [c for c in claims if c.id not in chosen]
    for name, part in (("tune", tune), ("report", rest)):
        if len({c.supported for c in part}) < 2:
            raise ConfigError(
                [f"{name} part must hold supported and unsupported rows, got {len(part)} rows. Name other tune_sets."]
            )
    return tune, rest


def _is_even(text: str) -> bool:
    return hashlib.sha256(text.encode("utf-8")).digest()[0] % 2 == 0


def offline_judges(tune: Sequence[LabelledClaim], *, nli: ScoringJudge | None = None) -> list[Judge]:
    """The judges to measure; words are weighed by the passages of the tuning rows."""
    lexical = LexicalJudge(weights=WordWeights.of(passage.text for claim in tune for passage in claim.passages))
    judges: list[Judge] = [ExactSpanJudge(), ConstraintJudge(), lexical, CompositeJudge(lexical=lexical)]
    return [*judges, nli, CompositeJudge(nli=nli)] if nli is not None else judges


def load_nli(checkpoint: str | None, *, labels: Sequence[str]) -> ScoringJudge | None:
    """The entailment judge of a checkpoint, None without one; torch models are imported only then."""
    if checkpoint is None:
        return None
    from ragx.citations.judges.nli import NliJudge

    return NliJudge.load(checkpoint, labels=labels)


def judge_agreement(
    tune: Sequence[LabelledClaim], report: Sequence[LabelledClaim], judges: Sequence[Judge]
) -> dict[str, Any]:
    """The table.

    Returns:
        {"judges": {id: {"threshold", "tune": {...}, "report": {...}, "by_source": {source: {...}}}}, "n": {"tune",
        "report"}, "alce_kappa": {...}}; each {...} of `Agreement`.
    """
    return {
        "n": {"tune": len(tune), "report": len(report)},
        "alce_kappa": dict(zip(("citation_recall", "citation_precision"), ALCE_KAPPA, strict=True)),
        "judges": {judge.id: _measured(judge, tune, report) for judge in judges},
    }


def _measured(judge: Judge, tune: Sequence[LabelledClaim], report: Sequence[LabelledClaim]) -> dict[str, Any]:
    tuned, reported = ([_score(judge, claim) for claim in part] for part in (tune, report))
    threshold = _threshold([claim.supported for claim in tune], tuned)
    by_source: dict[str, Agreement] = {}
    for source in sorted({claim.source for claim in report}):
        rows = [i for i, claim in enumerate(report) if claim.source == source]
        by_source[source] = agreement(
            [report[i].supported for i in rows], [reported[i] for i in rows], threshold=threshold
        )
    return {
        "threshold": threshold,
        "tune": agreement([claim.supported for claim in tune], tuned, threshold=threshold).to_json(),
        "report": agreement([claim.supported for claim in report], reported, threshold=threshold).to_json(),
        "by_source": {source: found.to_json() for source, found in by_source.items()},
    }


def _score(judge: Judge, claim: LabelledClaim) -> float | None:
    """The judge's score, or its label as a number; None where it did not judge."""
    asked, text = hypothesis(judge, claim.claim, question=claim.question if claim.short else "")
    if isinstance(asked, ScoringJudge):
        return asked.score(text, claim.passages)
    return _LABEL_SCORES.get(asked.judge(text, claim.passages))


def _threshold(truth: Sequence[bool], scores: Sequence[float | None]) -> float:
    """Tuned for a scale; a judge that only knows yes or no needs none."""
    if len({score for score in scores if score is not None}) < 3:
        return MIDDLE
    return best_threshold(truth, scores)


def as_markdown(results: Mapping[str, Any]) -> str:
    """The table of the report part: all rows, then AUC by source."""
    columns = ("auc", "auc_all", "precision", "recall", "precision_unsupported", "recall_unsupported", "kappa")
    lines = [
        f"Reported on {results['n']['report']} rows, tuned on {results['n']['tune']} others. `not judged` is the share "
        "without a judgement;",
        "figures are over judged rows, `AUC, all` over all of them (not judged = 0.5).",
        "",
        "| judge | not judged | threshold | AUC | AUC, all | P | R | P unsupported | R unsupported | kappa |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results["judges"].items():
        row = found["report"]
        cells = [name, _cell(row["not_judged"]), _cell(found["threshold"]), *(_cell(row[c]) for c in columns)]
        lines.append(f"| {' | '.join(cells)} |")
    sources = sorted({source for found in results["judges"].values() for source in found["by_source"]})
    lines += ["", f"| AUC, all, by source | {' | '.join(sources)} |", "|---" * (len(sources) + 1) + "|"]
    for name, found in results["judges"].items():
        lines.append(f"| {name} | {' | '.join(_cell(found['by_source'][s]['auc_all']) for s in sources)} |")
    recall, precision = (results["alce_kappa"][key] for key in ("citation_recall", "citation_precision"))
    lines += ["", f"For comparison, kappa of ALCE's 11B judge with people: {recall} (recall), {precision} (precision)."]
    return "\n".join(lines) + "\n"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
