"""Section 4.5, index hot-swapping: the same weights answer from another year's index.

    matched      questions of an edition, answered from the index of that edition        paper: .70 (2016), .68 (2018)
    mismatched   the same questions, answered from the index of the other edition        paper: .12, .04

One decision: the index is replaced in the running process under the very same model, and the weights are hashed before
and after, so that the table can only be due to the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ragx.decoding.settings import DecodingSettings
from ragx.errors import RagxError
from ragx.evaluation.answers import exact_match
from ragx.evaluation.significance import aggregate
from ragx.experiments.evaluate import paired
from ragx.experiments.predict import predict
from ragx.experiments.provenance import weights_sha256
from ragx.model import RagModel
from ragx.protocols import Retriever
from ragx.records import Example, Prediction


class SwappableRetriever(Retriever, Protocol):
    """A retriever whose index can be replaced while it serves."""

    @property
    def edition(self) -> str:
        """The edition that answers now."""
        ...

    def swap(self, directory: str | Path) -> Any:
        """Replaces the index, or refuses and keeps the old one."""
        ...


Answers = dict[str, dict[str, list[Prediction]]]


def hot_swap(
    model: RagModel,
    *,
    retriever: SwappableRetriever,
    index_dirs: Mapping[str, str | Path],
    questions: Mapping[str, Sequence[Example]],
    decoder: str,
    settings: DecodingSettings,
) -> dict[str, Any]:
    """Exact match of every edition's questions on every edition's index; see `summarize` for the result.

    Args:
        model: a RagModel that retrieves with `retriever`.
        retriever: is left with the edition it came with, where `index_dirs` has it.
        index_dirs: index directory per edition, at least two.
        questions: examples per edition, the same editions.
        decoder, settings: as for `predict`.

    Raises:
        RagxError: fewer than two editions, other editions, another retriever than the model's, an index of another
            edition than its name says, or weights that changed.
    """
    answers = answer_matrix(
        model, retriever=retriever, index_dirs=index_dirs, questions=questions, decoder=decoder, settings=settings
    )
    return summarize(answers, questions)


def answer_matrix(
    model: RagModel,
    *,
    retriever: SwappableRetriever,
    index_dirs: Mapping[str, str | Path],
    questions: Mapping[str, Sequence[Example]],
    decoder: str,
    settings: DecodingSettings,
) -> Answers:
    """The predictions behind the matrix, as [edition of the index][edition of the questions]; errors as `hot_swap`."""
    if len(index_dirs) < 2 or index_dirs.keys() != questions.keys():
        raise RagxError(
            f"index_dirs and questions must name the same two editions or more, got {sorted(index_dirs)} "
            f"and {sorted(questions)}. Give an index and questions for each"
        )
    if model.retriever is not retriever:
        raise RagxError("retriever must be the model's own, got another. Pass `retriever=model.retriever`")
    before, came_with = weights_sha256(model), retriever.edition
    answers: Answers = {}
    try:
        for edition, directory in index_dirs.items():
            retriever.swap(directory)
            if retriever.edition != edition:
                raise RagxError(
                    f"index_dirs[{edition!r}] must hold edition {edition!r}, got {retriever.edition!r}. "
                    "Name the directory that was built from it"
                )
            answers[edition] = {
                asked: list(
                    predict(
                        model,
                        examples,
                        decoder=decoder,
                        settings=settings,
                        provenance={"edition": edition, "questions": asked},
                    )
                )
                for asked, examples in questions.items()
            }
    finally:
        if came_with in index_dirs:
            retriever.swap(index_dirs[came_with])
    if weights_sha256(model) != before:
        raise RagxError(
            "weights must not change while the index is swapped, got others after it. Look for a module "
            "that updates itself when it is run"
        )
    return answers


def summarize(answers: Answers, questions: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
    """The table of the experiment.

    Returns:
        {"matched": {edition: exact match}, "mismatched": {edition: exact match}, "n": {edition: questions},
        "ci": {"matched": {edition: [low, high]}, "mismatched": ...}, "matrix": {index: {questions: {value, n, n_null,
        ci95}}}}. The edition under `mismatched` is that of the questions; with more than two, a question counts with
        its mean over the other indexes.
    """
    scored = {
        index: {
            asked: [
                exact_match(prediction=prediction.answer, answers=example.answers)
                for prediction, example in paired(predictions, questions[asked])
            ]
            for asked, predictions in row.items()
        }
        for index, row in answers.items()
    }
    matched = {asked: aggregate(scored[asked][asked]) for asked in questions}
    mismatched = {
        asked: aggregate(_mean_of_rows([scored[index][asked] for index in scored if index != asked]))
        for asked in questions
    }
    return {
        "matched": {asked: metric.value for asked, metric in matched.items()},
        "mismatched": {asked: metric.value for asked, metric in mismatched.items()},
        "n": {asked: metric.n for asked, metric in matched.items()},
        "ci": {
            "matched": {asked: metric.ci95 for asked, metric in matched.items()},
            "mismatched": {asked: metric.ci95 for asked, metric in mismatched.items()},
        },
        "matrix": {index: {asked: aggregate(s).to_json() for asked, s in row.items()} for index, row in scored.items()},
    }


def _mean_of_rows(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(column) for column in zip(*rows, strict=True)]
