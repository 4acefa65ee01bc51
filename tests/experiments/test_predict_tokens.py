"""The numbers behind each answer's citations: tokens in their places, scored under every passage, and audited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragx.citations.audit import audit_trace
from ragx.citations.evidence import EvidenceStore
from ragx.citations.from_predictions import trace_of
from ragx.citations.judging import Support
from ragx.citations.posteriors import span_posterior
from ragx.data.predictions import read_predictions, write_predictions
from ragx.experiments.predict import predict
from ragx.model import RagModel
from tests.experiments.conftest import SETTINGS, passages_of, questions_of

MakeModel = Callable[..., RagModel]


@pytest.mark.parametrize(("kind", "decoder"), [("rag_sequence", "thorough"), ("rag_token", "token_beam")])
def test_posteriors_follow_from_the_recorded_tokens(
    make_model: MakeModel, tmp_path: Path, kind: str, decoder: str
) -> None:
    """C1, I10: one teacher-forced pass; the audit of a real run finds nothing wrong with its record."""
    corpus = EvidenceStore(passages_of("2016-12"))
    found = list(predict(make_model(kind), questions_of("2016-12"), decoder=decoder, settings=SETTINGS))
    write_predictions(tmp_path / "p.jsonl", found)
    for prediction in read_predictions(tmp_path / "p.jsonl"):
        tokens = prediction.tokens
        assert tokens is not None and tokens.aligned and len(tokens.logprobs) == len(prediction.passages)
        pieces = [prediction.answer[slice(*span)] for span in tokens.spans]
        assert " ".join(pieces).split() == prediction.answer.split()
        trace = trace_of(prediction)
        assert trace.attribution is not None
        again = span_posterior(trace.attribution, range(len(tokens.spans)))
        assert again == pytest.approx([p.posterior for p in prediction.passages], abs=1e-5)
        support = Support(trace, None, corpus, judge=None, correct=None, cache={})
        assert audit_trace(trace, None, corpus, support).findings == ()


def test_closed_book_has_no_passages_to_score(make_model: MakeModel) -> None:
    (first, *_) = predict(make_model("closed_book"), questions_of("2016-12"), decoder="greedy", settings=SETTINGS)
    assert first.tokens is None
