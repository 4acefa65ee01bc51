"""The figures of a retriever alone, counted by hand, and the lift of a reranker."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragx.errors import ConfigError, RagxError
from ragx.experiments.retrieval import evaluate_retrieval
from ragx.records import Example, GivenPassages, Passage
from ragx.retriever.building import build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.given import GivenRetriever
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder
from ragx.retriever.reranker import CrossEncoder, RerankedRetriever
from tests.experiments.conftest import passages_of, questions_of

PASSAGES = [Passage(name, "1", "0", name, f"text {name}") for name in "abcd"]


class Alphabet(CrossEncoder):
    """Scores a passage by its letter, d highest."""

    def __init__(self) -> None: ...

    def fingerprint(self) -> str:
        return "alphabet"

    def scores(self, queries: object, passages: object) -> np.ndarray:
        return np.array([ord(passage.title) for passage in passages], dtype=np.float32)  # type: ignore[attr-defined]


def example(name: str, *gold: int) -> Example:
    return Example(name, name, ("x",), gold=tuple(PASSAGES[row].key for row in gold))


def given() -> GivenRetriever:
    return GivenRetriever({name: GivenPassages(tuple(PASSAGES)) for name in ("q1", "q2", "q3", "q4")})


def test_success_is_counted_over_questions_with_gold() -> None:
    examples = [example("q1", 0), example("q2", 1, 3), example("q3", 3), example("q4")]
    found = evaluate_retrieval(given(), examples, ks=(1, 2, 4), batch_size=3)
    values = {k: (m["value"], m["n"], m["n_null"]) for k, m in found["success_at"].items()}
    assert values == {"1": (pytest.approx(1 / 3), 3, 1), "2": (pytest.approx(2 / 3), 3, 1), "4": (1.0, 3, 1)}
    assert found["recall_at"]["2"]["value"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert found["mrr"]["value"] == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    assert found["n_docs"] == 4 and found["index"] == given().fingerprint and "lift" not in found


def test_gold_of_another_version_is_no_zero_but_an_error() -> None:
    other = Example("q1", "q1", ("x",), gold=(PASSAGES[0].key._replace(version="2018"),))
    with pytest.raises(RagxError, match="must be of a version that the index holds, got 2018 beside 1"):
        evaluate_retrieval(given(), [other], ks=(1,))


def test_the_lift_of_a_reranker_is_after_minus_before() -> None:
    examples = [example("q1", 0), example("q2", 3), example("q3", 3), example("q4", 2)]
    found = evaluate_retrieval(RerankedRetriever(given(), Alphabet(), candidates=4), examples, ks=(1, 2))
    assert [found["success_at"][k]["value"] for k in ("1", "2")] == [0.5, 0.75]
    assert [found["before"]["success_at"][k]["value"] for k in ("1", "2")] == [0.25, 0.25]
    lift = found["lift"]["success_at.1"]
    assert (lift["value"], lift["n"]) == (0.25, 4) and lift["ci95"][0] <= 0.25 <= lift["ci95"][1]
    assert found["lift"]["success_at.2"]["value"] == 0.5


def test_candidates_beyond_those_that_were_asked_for_can_be_lifted() -> None:
    """With four candidates the gold passage on place four comes first; with two it cannot."""
    for candidates, value in ((4, 1.0), (2, 0.0)):
        reranked = RerankedRetriever(given(), Alphabet(), candidates=candidates)
        assert evaluate_retrieval(reranked, [example("q1", 3)], ks=(1,))["success_at"]["1"]["value"] == value


def test_a_dense_retriever_is_asked_with_the_query_encoder(index_dirs: dict[str, Path], encoder_folder: Path) -> None:
    encoder, retriever = QueryEncoder.from_pretrained(encoder_folder), DenseRetriever.open(index_dirs["2016-12"])
    found = evaluate_retrieval(retriever, questions_of("2016-12"), query_encoder=encoder, ks=(1, 4))
    hits = 0
    for question in questions_of("2016-12"):
        scores = (
            retriever._edition.index.embeddings.rows(slice(0, 4)) @ encoder.embed([question.query])[0].detach().numpy()
        )
        hits += passages_of("2016-12")[int(scores.argmax())].key in question.gold
    assert found["success_at"]["1"]["value"] == pytest.approx(hits / 3) and found["success_at"]["4"]["value"] == 1.0


def test_what_an_approximate_index_finds_is_measured_on_the_questions(encoder_folder: Path, tmp_path: Path) -> None:
    """Candidates are chosen among 300 by four bits a number; the share of the exact ten is counted by brute force."""
    words = ("leads", "France", "Hollande", "Trump", "Peru", "Humala")
    texts = [" ".join(order) for order in permutations(words, 4)][:300]
    passages = [Passage(f"p{n}", "1", "0", "", text) for n, text in enumerate(texts)]
    options: dict[str, Any] = {"passage_encoder": PassageEncoder.from_pretrained(encoder_folder), "edition": "1"}
    encoder = QueryEncoder.from_pretrained(encoder_folder)
    examples = [Example(f"q{n}", f"{w} {words[-n]}", ("x",), gold=(passages[n].key,)) for n, w in enumerate(words)]
    build_index(passages, directory=tmp_path / "sq", kind="sq", bits=4, nlist=1, nprobe=1, rerank=10, **options)
    retriever = DenseRetriever.open(tmp_path / "sq")
    found = evaluate_retrieval(retriever, examples, query_encoder=encoder, ks=(1, 12), batch_size=4)

    queries = encoder.embed([example.query for example in examples]).detach()
    scores = queries.numpy() @ retriever._edition.index.embeddings.rows(slice(0, 300)).T
    tenth = np.sort(scores, axis=1)[:, -10]
    asked = retriever.retrieve([e.query for e in examples], 10, query_embeds=queries)
    shares = [(row >= least - 1e-5).mean() for row, least in zip(asked.doc_scores, tenth, strict=True)]
    assert found["index_recall_at"]["10"]["value"] == pytest.approx(np.mean(shares)) and 0 < np.mean(shares) < 1
    assert found["index_recall_at"]["10"]["n"] == 6
    of_five = evaluate_retrieval(retriever, examples, query_encoder=encoder, ks=(1, 12), batch_size=4, index_recall=5)
    some = of_five["index_recall_at"]["10"]
    assert (some["value"], some["n"], some["n_null"]) == (pytest.approx(np.mean(shares[:5])), 5, 1)
    none = evaluate_retrieval(retriever, examples, query_encoder=encoder, ks=(1, 12), index_recall=0)
    assert "index_recall_at" not in none

    build_index(passages, directory=tmp_path / "flat", **options)
    exact = evaluate_retrieval(DenseRetriever.open(tmp_path / "flat"), examples, query_encoder=encoder, ks=(1, 12))
    assert "index_recall_at" not in exact


def test_questions_without_any_gold_are_refused() -> None:
    with pytest.raises(RagxError, match="examples must name gold passages, got none in 1"):
        evaluate_retrieval(given(), [example("q1")])


def test_more_passages_than_the_index_holds_are_refused_by_the_name_of_the_option(
    index_dirs: dict[str, Path], encoder_folder: Path
) -> None:
    encoder, retriever = QueryEncoder.from_pretrained(encoder_folder), DenseRetriever.open(index_dirs["2016-12"])
    asked = questions_of("2016-12")
    message = r"success_at must be at most the 4 passages of the index, got 5\. Give success_at=\[1,4\], or"
    for found in (retriever, RerankedRetriever(retriever, Alphabet())):
        with pytest.raises(ConfigError, match=message):
            evaluate_retrieval(found, asked, query_encoder=encoder, ks=(5, 1))
    with pytest.raises(ConfigError, match="n_docs must be at most 4, the passages given for 'q1', got 5"):
        evaluate_retrieval(given(), [example("q1", 0)], ks=(5,))
