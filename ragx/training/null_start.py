"""Where training starts the null document's logit from: the scores that the retriever gives to the first questions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ragx.filters import question_filters
from ragx.model import RagModel
from ragx.records import Example

QUESTIONS = 64


@torch.no_grad()
def start_null_document(model: RagModel, examples: Sequence[Example]) -> None:
    """Starts `model.null_document` over the first questions, where there is one that has not been started."""
    null = model.null_document
    if null is None or bool(null.started):
        return
    training = model.training
    model.eval()
    asked = examples[:QUESTIONS]
    queries = [example.query for example in asked]
    # Its own logit is the last.
    _, scores = model.retrieve(queries, within=question_filters(asked, model.filtered_by))
    null.start(scores[:, :-1], None if model.query_encoder is None else model.query_encoder.embed(queries))
    model.train(training)
