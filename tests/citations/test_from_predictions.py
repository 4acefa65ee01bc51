"""Predictions of ragx as traces: claims, citations of each, and the numbers behind them (CITATIONS C1)."""

from __future__ import annotations

import math

import pytest

from ragx.citations.from_predictions import trace_of
from ragx.citations.trace_records import Trace
from ragx.records import AnswerTokens, Citation, Prediction, RetrievedPassage
from tests.citations.cases import audit, key, store, trace

A, B = key("A.v1.a"), key("B.v1.b")
PRIORS = (0.6, 0.4)
RULE = {"min_gain": 0.0, "min_posterior": 0.1, "mass": 0.8, "max_citations": 3, "allow_trivial": False}


def retrieved(z: int, name: str, visible: tuple[int, int]) -> RetrievedPassage:
    return RetrievedPassage(key(name), "T", "A text of 21 letters.", "00", 2.0 - z, PRIORS[z], 0.5, visible)


def prediction(answer: str, *, tokens: AnswerTokens | None = None, kind: str = "rag_token") -> Prediction:
    passages = (retrieved(0, "A.v1.a", (0, 21)), retrieved(1, "B.v1.b", (0, 6)))
    cited = (Citation(B, 0.55, 0.3, (2, 6), "full"),)
    provenance = {
        "kind": kind,
        "decoder": "token_beam",
        "decoding": {"num_beams": 4},
        "attribution": RULE,
        "index": "i",
    }
    return Prediction("q", "What?", answer, -1.0, ((answer, -1.0),), passages, cited, 15, provenance, tokens)


def test_a_short_answer_is_one_claim() -> None:
    """DS8, R15: C, S with visible parts, model, decoder, index, splitter and its version."""
    found = trace_of(prediction("Lima"), as_of="2018-12")
    assert [(c.claim_id, c.text, c.span) for c in found.claims] == [("q.c1", "Lima", (0, 4))]
    assert [(p.ref, p.key, p.visible, p.truncated, p.sha256) for p in found.packed] == [
        (1, A, (0, 21), False, "00"), (2, B, (0, 6), True, "00"),
    ]  # fmt: skip
    (cited,) = found.citations
    assert (cited.key, cited.origin, cited.posterior, cited.delta, cited.prior) == (B, "posterior", 0.55, 0.3, 0.4)
    assert cited.evidence_span == (2, 6)
    assert (found.task, found.as_of, found.model["index"]) == ("qa_short", "2018-12", "i")
    assert found.decode["splitter"] == "ragx-sentences" and found.decode["num_beams"] == 4


def test_e10_an_empty_answer_is_a_claim_without_citation() -> None:
    """E10: outputs "" and "Yes [1].", the latter supported: recall 0 and 1, over two answers."""
    found = trace_of(prediction(""), claims="sentences")
    assert [(claim.text, claim.worthy) for claim in found.claims] == [("", True)]


def two_sentences(kind: str) -> Trace:
    """Each passage explains one of two sentences."""
    answer = "It is one. It is two."
    rows = ((math.log(0.9), math.log(0.1)), (math.log(0.2), math.log(0.8)))
    return trace_of(prediction(answer, kind=kind, tokens=AnswerTokens(((0, 10), (11, 21)), rows)))


def test_d03_each_claim_is_attributed_by_its_own_tokens() -> None:
    """D03: RAG-Token cites z1 for the first claim and z2 for the second."""
    found = two_sentences("rag_token")
    assert [(c.claim_id, c.key) for c in found.citations] == [("q.c1", A), ("q.c2", B)]
    assert [c.posterior for c in found.citations] == pytest.approx([0.870968, 0.842105], abs=1e-6)
    assert audit(found, None, store("A.v1.a")).findings[0].code == "I3"
    assert "I10" not in [f.code for f in audit(found, None, store("A.v1.a", "B.v1.b")).findings]


def test_d03_rag_sequence_has_one_distribution() -> None:
    found = two_sentences("rag_sequence")
    assert [(c.claim_id, c.key) for c in found.citations] == [("q.c1", B), ("q.c2", B)]


def test_without_numbers_a_citation_is_for_the_whole_answer_and_says_so() -> None:
    found = trace_of(prediction("It is one. It is two."))
    assert [c.note for c in found.citations] == ["cited_for_the_whole_answer"] * 2


def test_markers_in_the_text_are_its_citations() -> None:
    """C7, R7: numbers are places in S; what names nothing stays."""
    found = trace_of(prediction("It is one [1]. It is two [2][9]."))
    assert [(c.claim_id, c.ref, c.origin, c.note) for c in found.citations] == [
        ("q.c1", 1, "inline", None), ("q.c2", 2, "inline", None), ("q.c2", 9, "inline", "out_of_range"),
    ]  # fmt: skip
    result = audit(found, None, store("A.v1.a", "B.v1.b"))
    assert [r.key for r in result.citations] == [A, B, None]


@pytest.mark.parametrize(
    ("answer", "mode", "n"),
    [
        ("Lima", "auto", 1),
        ("It is one. It is two.", "auto", 2),
        ("It is one. It is two.", "answer", 1),
        ("word " * 13, "auto", 1),
    ],
)
def test_how_answers_are_cut(answer: str, mode: str, n: int) -> None:
    assert len(trace_of(prediction(answer), claims=mode).claims) == n


def test_closed_book_cites_nothing() -> None:
    """F7, D13: without passages there is nothing to cite."""
    closed = Prediction("q", "What?", "Lima", -1.0, (("Lima", -1.0),), (), (), 0, {"kind": "closed_book"})
    (claim,) = audit(trace_of(closed)).claims
    assert claim.status == "uncited"


def test_unreliable_offsets_say_so() -> None:
    tokens = AnswerTokens(((0, 21), (0, 21)), ((-0.1, -2.3), (-1.6, -0.2)), aligned=False)
    found = trace_of(prediction("It is one. It is two.", tokens=tokens))
    assert found.attribution is not None and found.attribution.status == "offsets_unreliable"
    by_claim = [{c.key: c.posterior for c in found.citations if c.claim_id == name} for name in ("q.c1", "q.c2")]
    assert by_claim[0] == by_claim[1] != {}


def test_d31_the_only_passage_is_no_citation() -> None:
    """D31: the reason is said."""
    asked = trace(packed=["A.v1.a"], claims=trace({"c": []}).claims, attribution=None)
    assert audit(asked).claims[0].reason is None
    alone = Prediction(
        "q", "What?", "Lima", -1.0, (), (RetrievedPassage(A, "T", "text", "00", 1.0, 1.0, 1.0, (0, 4)),), (), 0,
        {"kind": "rag_token"}, AnswerTokens(((0, 4),), ((-0.5,),)),
    )  # fmt: skip
    assert audit(trace_of(alone)).claims[0].reason == "trivial_attribution"
