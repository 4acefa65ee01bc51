"""A checkpoint trained over vectors, words or given passages is not opened over another of these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragx.errors import IndexMismatchError
from ragx.model import RagModel
from ragx.records import GivenPassages
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.given import GivenRetriever
from ragx.training.checkpoint import load_checkpoint, save_checkpoint
from tests.training.conftest import PASSAGES


def test_what_was_searched_and_what_is_are_both_named(make_model: Callable[..., RagModel], tmp_path: Path) -> None:
    model = make_model()
    vectors, words = model.retriever, BM25Retriever.build(PASSAGES, tmp_path / "words", edition="1")
    given = GivenRetriever({"q": GivenPassages(tuple(PASSAGES))})
    save_checkpoint(model, tmp_path / "dense")
    model.query_encoder, model.retriever = None, words
    save_checkpoint(model, tmp_path / "bm25")
    model.retriever = given
    save_checkpoint(model, tmp_path / "given")
    for name, retriever, message in (
        ("dense", words, r"over vectors of passage encoder \w+, with .*, got a BM25 index\. Build the index with that"),
        ("bm25", vectors, r"over a BM25 index, with .*, got vectors of passage encoder \w+\. Give retriever=bm25"),
        ("given", words, r"over given passages, with .*, got a BM25 index\. Give retriever=given\."),
        ("bm25", given, r"over a BM25 index, with .*, got given passages\. Give retriever=bm25 index=bm25\."),
    ):
        with pytest.raises(IndexMismatchError, match=message):
            load_checkpoint(tmp_path / name, retriever=retriever)
