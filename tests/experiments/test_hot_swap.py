"""The hot-swap matrix: by a model that reads, by a real tiny one, and what must not pass as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragx.errors import RagxError
from ragx.experiments.hot_swap import answer_matrix, hot_swap, summarize
from ragx.experiments.provenance import weights_sha256
from ragx.model import Answered, RagModel
from ragx.records import Example, Prediction
from ragx.retriever.dense import DenseRetriever
from tests.experiments.conftest import EDITIONS, SETTINGS, questions_of

QUESTIONS = {edition: questions_of(edition) for edition in EDITIONS}
MakeModel = Callable[..., RagModel]


@pytest.fixture
def model(make_model: MakeModel) -> RagModel:
    return make_model("rag_sequence", n_docs=4)


@pytest.fixture
def reader(model: RagModel, monkeypatch: pytest.MonkeyPatch) -> RagModel:
    """The tiny model, but its answer is the first word of the passage that its question names."""
    original = model.generate

    def read(answer: Answered) -> Answered:
        text = next(p.text for p in answer.passages if p.title in answer.query)
        return replace(answer, texts=(text.split()[0], *answer.texts[1:]))

    def generate(queries: list[str], **options: Any) -> list[Answered]:
        return [read(answer) for answer in original(queries, **options)]

    monkeypatch.setattr(model, "generate", generate)
    return model


def swap(model: RagModel, index_dirs: dict[str, Path], **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"retriever": model.retriever, "index_dirs": index_dirs, "questions": QUESTIONS}
    return hot_swap(model, **{**options, **changes}, decoder="thorough", settings=SETTINGS)


def test_a_model_that_reads_answers_from_the_index_it_has(reader: RagModel, index_dirs: dict[str, Path]) -> None:
    table = swap(reader, index_dirs)
    assert table["matched"] == {"2016-12": 1.0, "2018-12": 1.0}
    assert table["mismatched"] == {"2016-12": 0.0, "2018-12": 0.0}
    assert table["n"] == {"2016-12": 3, "2018-12": 3}
    assert table["ci"]["matched"]["2016-12"] == (1.0, 1.0)
    assert table["matrix"]["2018-12"]["2016-12"]["value"] == 0.0


def test_a_real_model_answers_from_exactly_the_named_edition(model: RagModel, index_dirs: dict[str, Path]) -> None:
    before = weights_sha256(model)
    assert isinstance(model.retriever, DenseRetriever)
    answers = answer_matrix(
        model, retriever=model.retriever, index_dirs=index_dirs, questions=QUESTIONS, decoder="thorough",
        settings=SETTINGS,
    )  # fmt: skip
    fingerprints = set()
    for edition, row in answers.items():
        for asked, predictions in row.items():
            assert [p.query for p in predictions] == [e.query for e in QUESTIONS[asked]]
            assert {passage.key.version for p in predictions for passage in p.passages} == {edition}
            assert {p.provenance["edition"] for p in predictions} == {edition}
            fingerprints.add((edition, predictions[0].provenance["index"]))
    assert len(fingerprints) == 2
    assert weights_sha256(model) == before
    assert model.retriever.edition == "2016-12"


def answered(examples: list[Example], right: int) -> list[Prediction]:
    return [
        Prediction(e.id, e.query, e.answers[0] if i < right else "x", 0.0, (), (), (), 0, {})
        for i, e in enumerate(examples)
    ]


def test_the_edition_under_mismatched_is_that_of_the_questions() -> None:
    old, new = QUESTIONS["2016-12"], QUESTIONS["2018-12"]
    answers = {
        "2016-12": {"2016-12": answered(old, 3), "2018-12": answered(new, 0)},
        "2018-12": {"2016-12": answered(old, 1), "2018-12": answered(new, 2)},
    }
    table = summarize(answers, QUESTIONS)
    assert table["matched"] == {"2016-12": 1.0, "2018-12": pytest.approx(2 / 3)}
    assert table["mismatched"] == {"2016-12": pytest.approx(1 / 3), "2018-12": 0.0}


def test_what_is_no_hot_swap_is_refused(model: RagModel, index_dirs: dict[str, Path]) -> None:
    with pytest.raises(RagxError, match="must name the same two editions or more"):
        swap(model, {"2016-12": index_dirs["2016-12"]})
    with pytest.raises(RagxError, match="must name the same two editions or more"):
        swap(model, index_dirs, questions={"2016-12": [], "2017-12": []})
    with pytest.raises(RagxError, match="retriever must be the model's own, got another"):
        swap(model, index_dirs, retriever=DenseRetriever.open(index_dirs["2016-12"]))
    with pytest.raises(RagxError, match=r"index_dirs\['2018-12'\] must hold edition '2018-12', got '2016-12'"):
        swap(model, {edition: index_dirs["2016-12"] for edition in EDITIONS})


def test_weights_that_change_meanwhile_are_refused(
    model: RagModel, index_dirs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = model.generate

    def generate(queries: list[str], **options: Any) -> list[Answered]:
        with torch.no_grad():
            next(model.parameters()).add_(1e-7)
        return original(queries, **options)

    monkeypatch.setattr(model, "generate", generate)
    with pytest.raises(RagxError, match="weights must not change while the index is swapped"):
        swap(model, index_dirs)
    assert isinstance(model.retriever, DenseRetriever) and model.retriever.edition == "2016-12"
