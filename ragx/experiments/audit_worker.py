"""One line of input audited: the unit that workers share out; what it returns does not depend on any other line.

    bytes of a line  ->  trace  ->  labels, judge  ->  Audited  ->  lines of three files, and what the summary needs

One decision: a worker returns finished lines instead of objects. They are small, need no second pass, and the parent
only sorts them, so that memory and time grow with the number of questions and with nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import normalize

from ragx.citations.audit import Audited, audit_trace
from ragx.citations.evidence import EvidenceStore
from ragx.citations.gold import Gold
from ragx.citations.judging import Support
from ragx.citations.provenance_metrics import fever_label
from ragx.citations.redaction import Redaction
from ragx.citations.rows import citation_row, claim_row, stage_row, to_line
from ragx.citations.scores import score
from ragx.citations.tally import AnswerScores
from ragx.citations.trace_records import Trace
from ragx.errors import DataError
from ragx.evaluation.answers import exact_match, f1, has_answer
from ragx.experiments.audit_inputs import Parse
from ragx.experiments.audit_pairing import check_pair
from ragx.experiments.audit_summary import Addend, addend
from ragx.jsonl import row_of

if TYPE_CHECKING:
    from ragx.protocols import Judge

Line = tuple[int, bytes]
Plain = tuple[Any, ...]
_WORD = re.compile(r"\w+")


class Outcome(NamedTuple):
    """What became of one line.

    Attributes:
        qid: the question; empty where the line was refused.
        line: its number.
        ids: the claim ids, which must be unique in the file.
        claims, citations, stages: lines of the three files, in UTF-8.
        scores: what the summary needs.
        concern: how much the report should show it, higher first.
        error: why the line was refused: its field and the message.
    """

    qid: str
    line: int
    ids: tuple[str, ...] = ()
    claims: bytes = b""
    citations: bytes = b""
    stages: bytes = b""
    scores: Addend | None = None
    concern: int = 0
    error: tuple[str | None, str] | None = None

    def plain(self) -> Plain:
        """This as tuples without names, which take a third of the time to send to another process."""
        return (*self[:6], None if self.scores is None else tuple(self.scores), self.concern, self.error)

    @classmethod
    def of(cls, plain: Plain) -> Outcome:
        """The inverse of `plain`."""
        *head, scores, concern, error = plain
        return cls._make([*head, None if scores is None else Addend._make(scores), concern, error])


@dataclass
class Auditor:
    """Everything that auditing a line needs; built once in each process.

    Attributes:
        path: the file that is audited, for error messages.
        parse: how its lines become traces.
        store, golds, judge: the corpus, frozen gold data by question id, and the judge of what nobody labelled.
        judge_packed: whether passages that were not cited are judged too.
        per_sentence: TREC's rule: best, first or union.
        salt: of the digests that stand for restricted passages.
    """

    path: Path
    parse: Parse
    store: EvidenceStore
    golds: Mapping[str, Gold]
    judge: Judge | None
    judge_packed: bool
    per_sentence: str
    salt: bytes
    cache: dict[tuple[Any, ...], tuple[str, str]] = field(default_factory=dict)

    def outcome(self, line: int, raw: bytes) -> Outcome:
        """Audits one line; what cannot be read is an outcome too."""
        try:
            audited, answer = self.audited(line, raw)
        except DataError as error:
            return Outcome("", line, error=(error.field, error.message))
        redaction = Redaction(audited, self.store, salt=self.salt)
        return Outcome(
            qid=audited.trace.qid,
            line=line,
            ids=tuple(claim.claim_id for claim in audited.trace.claims),
            claims="".join(to_line(claim_row(audited, claim, redaction)) for claim in audited.claims).encode(),
            citations="".join(to_line(citation_row(audited, cited, redaction)) for cited in audited.citations).encode(),
            stages=to_line(stage_row(audited, redaction)).encode(),
            scores=addend(score(audited, answer, per_sentence=self.per_sentence)),
            concern=concern(audited),
        )

    def audited(self, line: int, raw: bytes) -> tuple[Audited, AnswerScores]:
        """The audit of one line, and how right its answer is.

        Raises:
            DataError: the line cannot be read.
            RagxError: it is none of the questions that gold is about.
        """
        trace = self.parse(row_of(raw, path=self.path, line=line))
        gold = self.golds.get(trace.qid)
        check_pair(trace, gold)
        answer = answer_scores(trace, gold, self.store)
        correct = is_correct(trace, gold, answer)
        support = Support(trace, gold, self.store, judge=self.judge, correct=correct, cache=self.cache)
        result = audit_trace(trace, gold, self.store, support, correct=correct, judge_packed=self.judge_packed)
        return result, answer


def answer_scores(trace: Trace, gold: Gold | None, store: EvidenceStore) -> AnswerScores:
    """How right the answer is; all None where no accepted answer is known or nothing was answered."""
    if gold is None or not gold.answers or trace.answer.status != "answered":
        return AnswerScores()
    text, answers = trace.answer.text, list(gold.answers)
    right = exact_match(prediction=text, answers=answers)
    read = list(_read(trace, store))
    held = _may_hold("\n".join(read), answers) and any(has_answer(passage, answers) for passage in read)
    unread = bool(read) and not held
    overlap = f1(prediction=text, answers=answers)
    return AnswerScores(right, overlap, float(has_answer(text, answers)), right if unread else None)


def _may_hold(text: str, answers: Sequence[str]) -> bool:
    """Whether a look at the tokens is worth its time: some answer's first word must stand somewhere in the text."""
    lowered = text.lower() if text.isascii() else normalize("NFC", text).lower()
    firsts = (_WORD.search(normalize("NFC", answer).lower()) for answer in answers)
    return any(first is None or first[0] in lowered for first in firsts)


def is_correct(trace: Trace, gold: Gold | None, answer: AnswerScores) -> bool | None:
    """Whether the answer is an accepted one: its class, all of it if short, contained in it if long."""
    if gold is not None and gold.label is not None and trace.answer.status == "answered":
        return fever_label(trace.answer.text) == fever_label(gold.label)
    value = answer.accuracy if trace.task == "qa_long" else answer.exact_match
    return None if value is None else value == 1.0


def _read(trace: Trace, store: EvidenceStore) -> Iterator[str]:
    """Title and visible text of each passage that the generator read."""
    for packed in trace.packed:
        evidence = store.get(packed.key)
        if evidence is not None:
            text = evidence.passage.text
            yield f"{evidence.passage.title}\n{text[slice(*packed.visible)] if packed.visible else text}"


def concern(audited: Audited) -> int:
    """How much a reader should see this question: a leak first, then broken records, then what is not supported."""
    statuses = {result.status for result in audited.citations}
    claims = {claim.status for claim in audited.claims}
    grades = (
        "forbidden" in statuses,
        bool(audited.findings),
        bool(claims & {"invalid_citation", "contradicted"}) or "tombstoned" in statuses,
        bool(claims & {"unsupported", "supported_with_conflict"}) or any(not r.valid for r in audited.citations),
        bool(claims & {"uncited", "partially_supported"}),
    )
    return next((len(grades) - i for i, grade in enumerate(grades) if grade), 0)
