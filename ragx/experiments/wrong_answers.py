"""Short answers, right and wrong, for measuring the support judges: a question file with its gold passages is enough.

    {"id", "question", "answers", "positive_ctx_id", "hard_negative_ctx_ids"}    one JSON object a line, as DPR's files

    right            an accepted answer, with the gold passage
    same passage     another name of the gold passage: no support
    other passage    a name of a passage that does not answer the question: no support

Each question gives a pair for every kind of wrong answer, so that each kind is balanced. One decision: every answer
stands word for word in its passage, the wrong ones too. That is what a judge of exact spans cannot tell apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ragx.citations.judges.constraints import names_of
from ragx.citations.judges.exact_span import exact_span
from ragx.citations.judges.words import STOPWORDS, folded, words
from ragx.data.corpus import read_passages
from ragx.experiments.judge_agreement import LabelledClaim
from ragx.jsonl import Row, read_rows
from ragx.records import Passage

SAME, OTHER = "a name of the same passage", "a name of another passage"


def read_short_answers(questions: str | Path, passages: str | Path) -> list[LabelledClaim]:
    """Labelled answers made from a file of questions; those without a name to mistake give none.

    Raises:
        DataError: naming file, line and field: a row of another form, or a passage that is not there.
    """
    texts = {passage.source: passage for passage in read_passages(passages)}
    return [claim for row in read_rows(questions) for claim in _pairs(row, texts)]


def _pairs(row: Row, texts: Mapping[str, Passage]) -> Iterator[LabelledClaim]:
    question = row.text("question", row.require("question"))
    answers = [row.text("answers", answer) for answer in row.items("answers", row.require("answers"))]
    gold = _passage(row, "positive_ctx_id", row.require("positive_ctx_id"), texts)
    given = [answer for answer in answers if exact_span(answer, gold.text) is not None]
    if not given:
        return
    right = min(given, key=lambda answer: (len(answer), answer))
    known = {word for text in (question, *answers) for word in words(text)}
    name = str(row.values.get("id") or question)
    negative = row.items("hard_negative_ctx_ids", row.values.get("hard_negative_ctx_ids") or [])[:1]
    for kind, passage in (
        (SAME, gold),
        *((OTHER, _passage(row, "hard_negative_ctx_ids", key, texts)) for key in negative),
    ):
        wrong = _name(passage, known, seed=name)
        if wrong is not None:
            yield _claim(f"{name}/{kind}/right", kind, question, right, gold, supported=True)
            yield _claim(f"{name}/{kind}/wrong", kind, question, wrong, passage, supported=False)


def _passage(row: Row, field: str, key: object, texts: Mapping[str, Passage]) -> Passage:
    if not isinstance(key, str) or key not in texts:
        row.fail(field, f"must be the id of a passage, got {key!r}. Give the passages of this question file")
    return texts[key]


def _name(passage: Passage, known: set[str], *, seed: str) -> str | None:
    """A name of at least two words in a passage that shares no word with the question or its answers.

    A run of capitals that opens with "The" or "In" is the beginning of a sentence and no name.
    """
    names: Sequence[str] = [
        name
        for name in dict.fromkeys(names_of(passage.text))
        if " " in name
        and folded(name.split()[0]) not in STOPWORDS
        and not known.intersection(words(name))
        and exact_span(name, passage.text) is not None
    ]
    return names[int(hashlib.sha256(seed.encode()).hexdigest(), 16) % len(names)] if names else None


def _claim(name: str, kind: str, question: str, answer: str, passage: Passage, *, supported: bool) -> LabelledClaim:
    return LabelledClaim(name, "", kind, question, answer, (passage,), supported, short=True)
