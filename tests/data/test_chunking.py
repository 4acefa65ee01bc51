"""Chunks are disjoint, miss no word, and are found again in their source by code point."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ragx.data.chunking import Document, chunk_words, passages_of
from ragx.errors import ConfigError


def test_by_hand() -> None:
    text = "  Lima  is\nthe capital. 😀 ü"
    assert [text[a:b] for a, b in chunk_words(text, size=2)] == ["Lima  is", "the capital.", "😀 ü"]
    assert chunk_words(text, size=2) == [(2, 10), (11, 23), (24, 27)]
    assert chunk_words(text, size=6) == [(2, 27)]
    assert chunk_words("") == chunk_words(" \n\t") == []


@pytest.mark.parametrize("seed", range(20))
def test_disjoint_and_complete(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choice(["a", "é", "😀", ".", " ", "  ", "\n", "\u2003"]) for _ in range(rng.randrange(400)))
    size = rng.randint(1, 12)
    spans = chunk_words(text, size=size)
    chunks = [text[start:end] for start, end in spans]
    assert [word for chunk in chunks for word in chunk.split()] == text.split()
    assert all(len(chunk.split()) == size for chunk in chunks[:-1])
    assert all(chunk == chunk.strip() for chunk in chunks)
    assert all(a[1] < b[0] for a, b in pairwise(spans))


def test_passages_of_an_article() -> None:
    text = " ".join(f"word{number}" for number in range(250))
    document = Document("peru", "2016-12", "Peru", text, valid_from="2011", valid_to="2016", acl=("staff",))
    passages = list(passages_of(document))
    assert [passage.key for passage in passages] == [("peru", "2016-12", str(chunk)) for chunk in range(3)]
    assert [len(passage.text.split()) for passage in passages] == [100, 100, 50]
    for passage in passages:
        assert passage.span is not None and text[slice(*passage.span)] == passage.text
        assert (passage.title, passage.valid_from, passage.valid_to, passage.acl) == (
            "Peru",
            "2011",
            "2016",
            ("staff",),
        )
    assert list(passages_of(Document("empty", "1", "Empty", ""))) == []


def test_size_is_checked() -> None:
    with pytest.raises(ConfigError, match="size must be >= 1 words, got 0"):
        chunk_words("a", size=0)
