"""Section 2.2: a bi-encoder from a user's questions and passages; what scripts/train_bi_encoder.py runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ragx import build
from ragx.data.corpus import read_passages
from ragx.data.retriever_examples import RetrieverExample, from_examples, read_retriever_examples
from ragx.data.world_leaders.facts import EDITIONS
from ragx.errors import ConfigError
from ragx.limits import EMBEDDED
from ragx.records import Passage
from ragx.schema import DataConfig
from ragx.schema_bi_encoder import EncodersConfig, PairsConfig, TrainBiEncoder
from ragx.training.bi_encoder_loop import BiEncoderResult, train_bi_encoder
from ragx.training.bi_encoder_model import BiEncoder


def run(config: TrainBiEncoder, *, run_dir: Path, command: str) -> BiEncoderResult:
    """Trains in `run_dir`, where a run that was stopped is continued."""
    settings = config.training.settings()
    if problems := settings.problems():
        raise ConfigError(problems)
    examples = pairs(config.data.train, config.data)
    dev_examples = None if config.data.dev is None else pairs(config.data.dev, config.data)
    card = f"Trained on {Path(config.data.train).name}.\n\n**Command.** `{command}`"
    model = towers(config.encoders)
    return train_bi_encoder(model, examples, settings=settings, run_dir=run_dir, dev_examples=dev_examples, card=card)


def pairs(source: str, data: PairsConfig) -> list[RetrieverExample]:
    """The questions of a file or of the embedded knowledge base, with their passages."""
    if source.startswith(EMBEDDED):
        corpus = corpus_of(data) if data.passages else build.embedded_edition(EDITIONS[0])
        return from_examples(build.examples(source), corpus)
    return read_retriever_examples(source, passages=corpus_of(data) if data.passages else None)


def corpus_of(data: PairsConfig) -> Iterable[Passage]:
    """The passages that questions name; a file is read as it is asked for."""
    assert data.passages is not None
    described = DataConfig(passages=data.passages, edition=data.edition)
    if data.passages.startswith(EMBEDDED):
        return build.passages(described)
    return read_passages(data.passages, version=build.edition(described))


def towers(encoders: EncodersConfig) -> BiEncoder:
    """What the training starts from."""
    passage = encoders.passage_encoder
    return BiEncoder.from_pretrained(
        build.weights(encoders.query_encoder, "query_encoder"),
        None if passage is None else build.weights(passage, "passage_encoder"),
        shared=encoders.shared,
        as_dpr=encoders.as_dpr,
        pooling=encoders.pooling,
        max_query_length=encoders.max_query_length,
        max_passage_length=encoders.max_passage_length,
    )
