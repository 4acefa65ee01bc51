"""BM25 equals the formula, keeps to the store, and its scores can serve as logits."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ragx.errors import ConfigError, DataError, IndexMismatchError
from ragx.protocols import Retriever
from ragx.records import Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.manifest import describe_files


def formula(passages: list[Passage], query: str, k1: float, b: float) -> list[float]:
    """Lucene's BM25: idf = ln(1 + (N - df + .5) / (df + .5)), tf / (tf + k1 (1 - b + b len / mean len))."""
    texts = [re.findall(r"\w+", f"{p.title} {p.text}".lower()) for p in passages]
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        counts, score = Counter(text), 0.0
        for word in re.findall(r"\w+", query.lower()):
            df = sum(word in other for other in texts)
            idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5)) if df else 0.0
            score += idf * counts[word] / (counts[word] + k1 * (1 - b + b * len(text) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("query", ["Who leads France?", "the river in Berlin", "of of the", "FRANCE-president"])
@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4)])
def test_scores_equal_the_formula(tmp_path: Path, passages: list[Passage], query: str, k1: float, b: float) -> None:
    retriever = BM25Retriever.build(passages, tmp_path / "bm25", edition="2016-12", k1=k1, b=b)
    found = retriever.retrieve([query], 6)
    expected = np.array(formula(passages, query, k1, b), dtype=np.float32)
    order = np.lexsort((np.arange(6), -expected))
    np.testing.assert_allclose(found.doc_scores[0], expected[order], atol=1e-5)
    assert found.passages[0][0] == passages[order[0]]
    assert found.passages == [[passages[row] for row in found.rows[0]]]
    assert found.doc_embeds is None and found.doc_scores.dtype == np.float32 and found.rows.dtype == np.int64


def test_ties_and_unknown_words_go_by_row(tmp_path: Path, passages: list[Passage]) -> None:
    same = [Passage(str(row), "1", "0", "Peru", "Lima") for row in range(40)]
    retriever = BM25Retriever.build([*passages, *same], tmp_path / "bm25", edition="x")
    found = retriever.retrieve(["zzz", "lima peru", "", "?"], 5)
    assert found.rows[[0, 2, 3]].tolist() == [[0, 1, 2, 3, 4]] * 3
    assert found.rows[1].tolist() == [6, 7, 8, 9, 10]
    assert found.doc_scores[0].tolist() == [0.0] * 5
    batched = retriever.retrieve(["lima peru"] * 3, 5)
    assert batched.rows.tolist() == [found.rows[1].tolist()] * 3


def test_round_trip_and_bytes(tmp_path: Path, passages: list[Passage]) -> None:
    built = BM25Retriever.build(passages, tmp_path / "a", edition="2016-12")
    BM25Retriever.build(iter(passages), tmp_path / "b", edition="2016-12")
    assert describe_files(tmp_path / "a") == describe_files(tmp_path / "b")
    opened = BM25Retriever.open(tmp_path / "a")
    assert isinstance(opened, Retriever)
    assert opened.fingerprint == built.fingerprint and opened.edition == "2016-12" and len(opened) == 6
    assert opened.retrieve(["river"], 2).index_fingerprint == opened.fingerprint


def test_refusals(tmp_path: Path, passages: list[Passage]) -> None:
    retriever = BM25Retriever.build(passages, tmp_path / "a", edition="x")
    for n_docs in (0, 7):
        with pytest.raises(
            ConfigError, match=f"n_docs must lie between 1 and the 6 passages of the index, got {n_docs}"
        ):
            retriever.retrieve(["river"], n_docs)
    with pytest.raises(DataError, match="at least one passage, got none"):
        BM25Retriever.build([], tmp_path / "b", edition="x")
    with pytest.raises(DataError, match="at least one word for BM25, got none"):
        BM25Retriever.build([Passage("a", "1", "0", "", "...")], tmp_path / "b", edition="x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    with pytest.raises(IndexMismatchError, match="metric must agree(.|\n)*asked: inner_product\n  index: bm25"):
        DenseRetriever.open(tmp_path / "a")
    file = tmp_path / "a" / "bm25" / "vocab.index.json"
    file.write_text(file.read_text().replace("lima", "rome"))
    with pytest.raises(IndexMismatchError, match=r"vocab.index.json: sha256 must agree"):
        BM25Retriever.open(tmp_path / "a")
