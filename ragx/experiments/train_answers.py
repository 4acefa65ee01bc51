"""What a tracked training shows of its answers: those of its last weights, with one beam, as short as in training.

One decision: a table to look at costs one quick pass over a few questions. Figures are made by `scripts/generate.py`
and `scripts/evaluate.py`, with the beams and lengths that are asked for there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragx import build
from ragx.decoding.settings import DecodingSettings
from ragx.experiments.predict import predict
from ragx.model import RagModel
from ragx.records import Example, Prediction


def answers_of(model: RagModel, examples: Sequence[Example]) -> list[Prediction]:
    """The answer to each question by the first decoder of the model's kind."""
    settings = DecodingSettings(num_beams=1, max_length=model.max_target_length)
    return list(predict(model, examples, decoder=build.decoder(None, model.kind), settings=settings))
