"""Figure 2: which passage each token of an answer comes from, with the passages.

    RAG-Token      p(z|x,y_j)  ~  p(z|x) p(y_j|x,z,y_<j)            a column a token
    RAG-Sequence   p(z|x,y)    ~  p(z|x) prod_j p(y_j|x,z,y_<j)     one column

Cells are percent, and as dark as they are large. One decision: the answers shown are those whose tokens disagree most
about the passage (the largest total variation between two tokens), as in the paper's example, accepted ones first where
the accepted answers are known. RAG-Sequence is shown on the same questions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from ragx.citations.posteriors import Array, span_posterior, token_posterior
from ragx.citations.trace_records import TokenScores
from ragx.data.predictions import read_predictions
from ragx.data.tasks import read_examples
from ragx.evaluation.answers import exact_match
from ragx.experiments.demo_results import DECODERS
from ragx.experiments.report.files import Answers, Holdings
from ragx.experiments.report.parts import Answer, Cell, Section, Source, Table
from ragx.records import Example, Prediction

KINDS = {"rag_token": "RAG-Token", "rag_sequence": "RAG-Sequence"}
PASSAGES, TOKENS = 5, 16  # shown of an answer


def figure_2(found: Holdings, *, questions: int) -> Section:
    """The answers of the first run that has some, one file a kind of model.

    Args:
        questions: how many are shown.
    """
    blocks: list[Answer] = []
    chosen: list[str] = []
    for kind in KINDS:
        source = _source(found, kind)
        if source is None or not questions:
            continue
        usable = {p.id: p for p in read_predictions(source.path) if _scores(p) is not None}
        asked = _examples(source.path)
        chosen = [i for i in chosen if i in usable] or _chosen(list(usable.values()), kind, asked)[:questions]
        blocks += [_answer(usable[i], kind, source, asked.get(i)) for i in chosen]
    return Section(
        "figure-2",
        "Figure 2: which passage an answer comes from",
        "Posterior of each passage in percent: a column a token for RAG-Token, one for the whole answer for "
        "RAG-Sequence. Shown are the answers whose tokens disagree most about the passage, accepted ones first.",
        blocks,
        command="python scripts/generate.py model.checkpoint=... index.directory=...",
    )


def _source(found: Holdings, kind: str) -> Answers | None:
    """The predictions of a kind: of the paper's decoder, and of the model that is called as its kind, if there are."""
    files = [a for a in found.answers if a.model == kind]
    first = DECODERS[kind][0]
    order = sorted(
        files, key=lambda a: (found.runs.index(a.run), a.decoder != first, not a.path.name.startswith(kind), a.path)
    )
    return order[0] if order else None


def _examples(predictions: Path) -> dict[str, Example]:
    """The questions of a demo by id, which lie beside its folder of predictions; none elsewhere."""
    path = predictions.parent.parent / "questions.jsonl"
    return {e.id: e for e in read_examples(path)} if path.is_file() else {}


def _scores(prediction: Prediction) -> TokenScores | None:
    """The numbers behind the posteriors, None where tokens have no place in the answer or a passage no prior."""
    tokens = prediction.tokens
    if tokens is None or not tokens.aligned or not tokens.spans or any(p.prior <= 0 for p in prediction.passages):
        return None
    priors = tuple(math.log(passage.prior) for passage in prediction.passages)
    return TokenScores("complete", priors, tokens.logprobs, tokens.spans)


def _posterior(prediction: Prediction, kind: str) -> Array:
    """(T, K) for RAG-Token, (1, K) for RAG-Sequence."""
    scores = _scores(prediction)
    assert scores is not None  # `figure_2` leaves the others out
    if kind == "rag_token":
        return token_posterior(scores, kind=kind)
    return span_posterior(scores, range(len(scores.token_spans)))[None]


def _chosen(predictions: Sequence[Prediction], kind: str, asked: Mapping[str, Example]) -> list[str]:
    """Ids, accepted answers first, of those the ones with the largest `_disagreement`; as in the file if alike."""
    order = sorted(
        range(len(predictions)),
        key=lambda i: (
            not _accepted(predictions[i], asked.get(predictions[i].id)),
            -round(_disagreement(predictions[i], kind), 6),
            i,
        ),
    )
    return [predictions[i].id for i in order]


def _disagreement(prediction: Prediction, kind: str) -> float:
    """The largest total variation between two tokens' posteriors; for RAG-Sequence between prior and posterior."""
    rows = _posterior(prediction, kind)
    if kind == "rag_sequence":
        rows = np.vstack([[passage.prior for passage in prediction.passages], rows])
    return float(max((abs(a - b).sum() / 2 for i, a in enumerate(rows) for b in rows[:i]), default=0.0))


def _accepted(prediction: Prediction, example: Example | None) -> bool:
    return example is not None and exact_match(prediction=prediction.answer, answers=example.answers) == 1.0


def _answer(prediction: Prediction, kind: str, source: Answers, example: Example | None) -> Answer:
    posterior = _posterior(prediction, kind)
    shown = _shown(prediction, posterior)
    remark = f"{KINDS[kind]}, {source.decoder}, {source.run}; p(y|x) = {math.exp(prediction.logprob):.3f}"
    if example is not None:
        accepted = " or ".join(example.answers)
        right = _accepted(prediction, example)
        remark += "; an accepted answer" if right else f"; not an accepted answer (accepted: {accepted})"
    if prediction.null_document is not None:
        remark += f"; the null document has {100 * prediction.null_document.posterior:.0f}% of the posterior"
    return Answer(
        question=prediction.query,
        answer=prediction.answer,
        remark=remark,
        tables=[_heat_map(prediction, kind, posterior, shown)],
        sources=[_passage(prediction, row) for row in shown],
    )


def _shown(prediction: Prediction, posterior: Array) -> list[int]:
    """The passages with the largest prior or posterior, in the order of their ranks."""
    weight = [max(p.prior, float(posterior[:, row].max())) for row, p in enumerate(prediction.passages)]
    return sorted(sorted(range(len(weight)), key=lambda row: -weight[row])[:PASSAGES])


def _heat_map(prediction: Prediction, kind: str, posterior: Array, shown: Sequence[int]) -> Table:
    assert prediction.tokens is not None
    spans = prediction.tokens.spans[:TOKENS]
    tokens = [prediction.answer[start:end] or "·" for start, end in spans]
    heads = tokens if kind == "rag_token" else ["the answer"]
    rows = []
    for row in shown:
        values = [prediction.passages[row].prior, *(float(v) for v in posterior[: len(heads), row])]
        rows.append([Cell(f"[{row + 1}]"), *(Cell(f"{100 * v:.0f}", shade=v) for v in values)])
    left = [len(prediction.passages) - len(shown), len(prediction.tokens.spans) - len(spans)]
    cut = [f"{n} more {name}" for n, name in zip(left, ("passages", "tokens"), strict=True) if n > 0]
    note = f"Left out: {' and '.join(cut)}." if cut else ""
    condition = "question, token" if kind == "rag_token" else "question, answer"
    return Table(f"p(passage | {condition}), percent", ["passage", "prior", *heads], rows, note=note)


def _passage(prediction: Prediction, row: int) -> Source:
    passage = prediction.passages[row]
    cited = {citation.key: citation for citation in prediction.citations}.get(passage.key)
    span = cited.span if cited is not None else None
    cuts = [0, len(passage.text)] if span is None else [0, *span, len(passage.text)]
    pieces = [(passage.text[a:b], span == (a, b)) for a, b in pairwise(cuts) if a < b]
    return Source(f"[{row + 1}]", passage.title, "{}@{}#{}".format(*passage.key), pieces)
