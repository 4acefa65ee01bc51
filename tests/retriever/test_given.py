"""Passages that the caller brings are read as if they had been retrieved: same order, same prior, nothing invented."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ragx.errors import ConfigError, ShapeError
from ragx.filters import PassageFilter
from ragx.losses import prior
from ragx.protocols import Retriever
from ragx.records import GivenPassages, Passage
from ragx.retriever.given import GivenRetriever


def passage(name: str, **fields: object) -> Passage:
    return Passage(name, "1", "0", name, f"text of {name}", **fields)  # type: ignore[arg-type]


A, B, C, D = (passage(name) for name in "abcd")
RANKINGS = {
    "scored": GivenPassages((A, B, C), (1.0, 3.0, 1.0)),
    "flat": GivenPassages((D, B, A)),
}


def test_the_best_come_first_and_ties_keep_the_given_order() -> None:
    retriever = GivenRetriever(RANKINGS)
    assert isinstance(retriever, Retriever) and len(retriever) == 3
    found = retriever.retrieve(["scored", "flat"], 3)
    assert found.passages == [[B, A, C], [D, B, A]]
    assert found.doc_scores.tolist() == [[3.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    assert found.doc_embeds is None and found.doc_scores.dtype == np.float32
    assert found.rows.tolist() == [[1, 0, 2], [3, 1, 0]]  # one number a passage, whichever question it is given for
    assert retriever.retrieve(["scored"], 2).passages == [[B, A]]


def test_without_scores_the_prior_is_uniform() -> None:
    scores = torch.from_numpy(GivenRetriever(RANKINGS).retrieve(["flat"], 2).doc_scores)
    torch.testing.assert_close(prior.doc_logprobs(scores).exp(), torch.tensor([[0.5, 0.5]]))


@pytest.mark.parametrize("query", ["Scored", "scored ", ""])
def test_a_question_is_known_by_its_exact_text(query: str) -> None:
    with pytest.raises(ConfigError, match="query must be one of the 2 questions of mine.jsonl, letter by letter"):
        GivenRetriever(RANKINGS, name="mine.jsonl").retrieve(["flat", query], 1)


def test_scores_must_be_finite() -> None:
    ranking = GivenPassages((Passage("a", "1", "0", "", "a"),), (float("nan"),))
    with pytest.raises(ShapeError, match="doc_scores must be finite, got .* for 'q'. Repair mine"):
        GivenRetriever({"q": ranking}, name="mine")
    assert len(GivenRetriever({})) == 0


def test_fewer_passages_than_n_docs_are_refused_and_never_padded() -> None:
    retriever = GivenRetriever({**RANKINGS, "short": GivenPassages((A,))})
    assert len(retriever) == 1
    with pytest.raises(ConfigError, match="n_docs must be at most 1, the passages given for 'short', got 2"):
        retriever.retrieve(["flat", "short"], 2)
    with pytest.raises(ConfigError, match="n_docs must be >= 1, got 0"):
        retriever.retrieve(["flat"], 0)


def test_filters_of_the_retriever_and_of_the_call_both_narrow() -> None:
    staff, old = passage("staff", acl=("staff",)), passage("old", valid_to="2015")
    rankings = {"q": GivenPassages((staff, old, A, B))}
    retriever = GivenRetriever(rankings, passage_filter=PassageFilter(acl=()))
    assert retriever.retrieve(["q"], 3).passages == [[old, A, B]]
    assert retriever.retrieve(["q"], 2, passage_filter=PassageFilter(as_of="2016")).passages == [[A, B]]
    wide = PassageFilter(acl=("staff",))
    assert retriever.retrieve(["q"], 3, passage_filter=wide).passages == [[old, A, B]]  # a call cannot widen it
    with pytest.raises(ConfigError, match="at most 2, the given passages that the filter leaves for 'q', got 3"):
        retriever.retrieve(["q"], 3, passage_filter=PassageFilter(as_of="2016"))


def test_the_fingerprint_covers_questions_passages_and_scores() -> None:
    first = GivenRetriever(RANKINGS).fingerprint
    assert (
        GivenRetriever(dict(RANKINGS)).fingerprint
        == first
        == GivenRetriever(RANKINGS).retrieve(["flat"], 1).index_fingerprint
    )
    others = [
        {**RANKINGS, "flat": GivenPassages((D, A, B))},
        {**RANKINGS, "scored": GivenPassages((A, B, C), (1.0, 3.0, 1.5))},
        {"scored": RANKINGS["scored"], "Flat": RANKINGS["flat"]},
    ]
    assert len({first, *(GivenRetriever(other).fingerprint for other in others)}) == 4
