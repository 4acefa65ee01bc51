"""Config to objects: the one place that knows what a config group stands for.

The objects themselves take flat parameters and know nothing of configuration.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ragx.data.corpus import read_passages
from ragx.data.tasks import read_examples
from ragx.data.world_leaders.editions import edition as embedded_edition
from ragx.data.world_leaders.facts import EDITIONS
from ragx.data.world_leaders.questions import hot_swap_questions, questions
from ragx.errors import ConfigError
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.limits import EMBEDDED
from ragx.model import CLOSED_BOOK, DECODERS, RagModel
from ragx.protocols import Retriever
from ragx.records import Example, Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever, build_index
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder
from ragx.schema import (
    BuildIndex,
    DataConfig,
    EditionConfig,
    Generate,
    GeneratorConfig,
    ModelConfig,
    RetrieverConfig,
    Train,
)
from ragx.training.checkpoint import load_checkpoint, read_record

CHECKPOINTS = Path(__file__).parent / "checkpoints"
SPLITS = ("train", "dev", "test")
HOT_SWAP = "hot_swap/"


def weights(name: str, part: str = "") -> str:
    """The folder of an embedded checkpoint (`dpr-nano`, `bart-nano`); any other path or hub name as it is."""
    embedded = CHECKPOINTS / name / part
    return str(embedded) if name in ("dpr-nano", "bart-nano") else name


def edition(data: DataConfig) -> str:
    """The version of the corpus: as given, else the embedded edition's, else the name of the passages file."""
    if not data.passages.startswith(EMBEDDED):
        return data.edition or Path(data.passages).name.split(".")[0]
    name = data.passages.removeprefix(EMBEDDED)
    if name not in EDITIONS:
        raise ConfigError(
            [f"data.passages must be a file or {EMBEDDED}{{{','.join(EDITIONS)}}}, got {data.passages!r}."]
        )
    if data.edition not in (None, name):
        raise ConfigError([f"data.edition must be null or {name} with {data.passages}, got {data.edition!r}."])
    return name


def passages(data: DataConfig) -> list[Passage]:
    """The corpus of `data.passages`."""
    name = edition(data)
    if data.passages.startswith(EMBEDDED):
        return embedded_edition(name)
    return list(read_passages(data.passages, version=name))


def examples(source: str, *, require_answers: bool = True) -> list[Example]:
    """The questions of a file or of `world_leaders:<train, dev, test or hot_swap/EDITION>`."""
    if not source.startswith(EMBEDDED):
        return read_examples(source, require_answers=require_answers)
    name = source.removeprefix(EMBEDDED)
    if name in SPLITS:
        return questions(name)
    if name.startswith(HOT_SWAP) and name.removeprefix(HOT_SWAP) in EDITIONS:
        return hot_swap_questions(name.removeprefix(HOT_SWAP))
    known = ", ".join([*SPLITS, *(HOT_SWAP + date for date in EDITIONS)])
    raise ConfigError([f"questions must be a file or {EMBEDDED} with one of {known}, got {source!r}."])


def passage_encoder(settings: RetrieverConfig) -> PassageEncoder:
    """d(z), frozen."""
    if settings.passage_encoder is None:
        raise ConfigError(["retriever.passage_encoder must be given to build a dense index, got null. Name one."])
    name = weights(settings.passage_encoder, "passage_encoder")
    return PassageEncoder.from_pretrained(name, pooling=settings.pooling, max_length=settings.max_passage_length)


def query_encoder(settings: RetrieverConfig) -> QueryEncoder:
    """q(x), as it was pretrained."""
    if settings.query_encoder is None:
        raise ConfigError(["retriever.query_encoder must be given for dense retrieval, got null. Name one."])
    name = weights(settings.query_encoder, "query_encoder")
    return QueryEncoder.from_pretrained(name, pooling=settings.pooling, max_length=settings.max_query_length)


def index(config: BuildIndex) -> Manifest:
    """Builds `index.directory` from `data.passages`, whole or not at all."""
    corpus, directory, name = passages(config.data), config.index.directory, edition(config.data)
    if config.retriever.kind == "bm25":
        return BM25Retriever.build(corpus, directory, edition=name).manifest
    return build_index(
        corpus,
        passage_encoder=passage_encoder(config.retriever).to(device(config.index.device)),
        directory=directory,
        edition=name,
        kind=config.index.kind,
        batch_size=config.index.batch_size,
        progress=True,
        reuse=config.reuse,
        **config.index.parameters,
    )


def edition_of(directory: str) -> str:
    """The edition of the index in `directory`."""
    return Manifest.read(directory).edition


def editions(before: EditionConfig, after: EditionConfig) -> dict[str, EditionConfig]:
    """The two sides of a hot swap by the edition of their index.

    Raises:
        ConfigError: both are of one edition.
    """
    found = {edition_of(part.index): part for part in (before, after)}
    if len(found) < 2:
        name = next(iter(found))
        problem = f"before.index and after.index must be of two editions, got {name!r} twice"
        raise ConfigError([f"{problem}. Build one with another data.edition."])
    return found


def retriever(settings: RetrieverConfig, *, directory: str) -> Retriever:
    """The index in `directory`, dense or BM25."""
    if settings.kind == "bm25":
        return BM25Retriever.open(directory)
    return dense_retriever(settings, directory=directory)


def dense_retriever(settings: RetrieverConfig, *, directory: str) -> DenseRetriever:
    """A dense index; it must have been built with `retriever.passage_encoder`, unless that is null."""
    built_with = None if settings.passage_encoder is None else passage_encoder(settings).fingerprint()
    return DenseRetriever.open(directory, passage_encoder_fingerprint=built_with)


def generator(settings: GeneratorConfig) -> Seq2SeqGenerator:
    """p(y|x,z), as it was pretrained."""
    return Seq2SeqGenerator.from_pretrained(
        weights(settings.checkpoint),
        max_length=settings.max_input_length,
        template=settings.template,
        bos_in_labels=settings.bos_in_labels,
    )


def model(config: Train | Generate) -> RagModel:
    """The model of `model.checkpoint`, else one of the pretrained parts; `closed_book` opens no index."""
    kind, checkpoint = config.model.kind, config.model.checkpoint
    if kind is None and checkpoint is not None:
        kind = read_record(checkpoint)["kind"]
    index = None if kind == CLOSED_BOOK else retriever(config.retriever, directory=config.index.directory)
    if checkpoint is not None:
        built = trained_model(config.model, retriever=index)
    else:
        assert kind is not None and config.model.n_docs is not None  # ragx.config.resolve has seen to it
        dense = kind != CLOSED_BOOK and config.retriever.kind == "dense"
        built = RagModel(
            kind=kind,
            generator=generator(config.generator),
            query_encoder=query_encoder(config.retriever) if dense else None,
            retriever=index,
            n_docs=config.model.n_docs,
            max_target_length=config.model.max_target_length,
        )
    if config.retriever.freeze_query_encoder and built.query_encoder is not None:
        built.freeze_query_encoder = True
    return built


def trained_model(settings: ModelConfig, *, retriever: Retriever | None) -> RagModel:
    """The model of `model.checkpoint` over an index; null for kind and n_docs means as recorded there."""
    assert settings.checkpoint is not None  # ragx.config.resolve has seen to it
    loaded = load_checkpoint(settings.checkpoint, retriever=retriever, kind=settings.kind)
    loaded.n_docs = settings.n_docs or loaded.n_docs
    loaded.max_target_length = settings.max_target_length
    return loaded


def decoder(name: str | None, kind: str) -> str:
    """The decoder that was asked for, else the first of those that fit the model's kind."""
    return name or next(iter(DECODERS[kind]))


def device(name: str) -> str:
    """`cpu` or `cuda`; `auto` is the GPU where there is one."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
