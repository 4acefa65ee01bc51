"""The retriever group to objects: encoders, and what finds passages by them, by words, by both, or not at all."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import torch

from ragx.data.given import read_given
from ragx.errors import ConfigError
from ragx.protocols import Retriever
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.edition import Edition
from ragx.retriever.given import GivenRetriever
from ragx.retriever.hybrid import HybridRetriever
from ragx.retriever.manifest import Manifest
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.query_encoder import QueryEncoder
from ragx.retriever.ray_actors import import_ray
from ragx.retriever.ray_encoding import RayPassageEncoder
from ragx.retriever.ray_search import open_sharded
from ragx.retriever.reranker import CrossEncoder, RerankedRetriever
from ragx.retriever.trained_passage_encoder import TrainedPassageEncoder
from ragx.schema import IndexConfig
from ragx.schema_retriever import FusionConfig, RetrieverConfig

CHECKPOINTS = Path(__file__).parent / "checkpoints"
_logger = logging.getLogger(__name__)


def weights(name: str, part: str = "") -> str:
    """The folder of an embedded checkpoint (`dpr-nano`, `bart-nano`); any other path or hub name as it is."""
    embedded = CHECKPOINTS / name / part
    return str(embedded) if name in ("dpr-nano", "bart-nano") else name


def passage_encoder(settings: RetrieverConfig) -> PassageEncoder:
    """d(z), frozen."""
    if settings.passage_encoder is None:
        raise ConfigError(["retriever.passage_encoder must be given to build a dense index, got null. Name one."])
    name = weights(settings.passage_encoder, "passage_encoder")
    return PassageEncoder.from_pretrained(name, pooling=settings.pooling, max_length=settings.max_passage_length)


def corpus_encoder(settings: RetrieverConfig, index: IndexConfig) -> PassageEncoder:
    """d(z) for a whole corpus: in this process, or by Ray actors."""
    encoder = passage_encoder(settings)
    if not index.ray_workers:
        return encoder
    assert settings.passage_encoder is not None  # or it would not have been opened
    return RayPassageEncoder(
        encoder,
        checkpoint=weights(settings.passage_encoder, "passage_encoder"),
        workers=index.ray_workers,
        device="cuda" if index.device == "cuda" else "cpu",
    )


def index_device(settings: IndexConfig) -> str:
    """Where this process encodes. Ray's actors may have GPUs that it lacks, so with them it takes what is there."""
    return device("auto" if settings.ray_workers and settings.device == "cuda" else settings.device)


def trained_passage_encoder(settings: RetrieverConfig) -> TrainedPassageEncoder:
    """d(z) that learns with the model (`training.live_refresh`)."""
    if settings.passage_encoder is None:
        raise ConfigError(["retriever.passage_encoder must be given to be trained, got null. Name the index's."])
    name = weights(settings.passage_encoder, "passage_encoder")
    options = {"pooling": settings.pooling, "max_length": settings.max_passage_length}
    return TrainedPassageEncoder.from_pretrained(name, **options)  # type: ignore[arg-type]


def query_encoder(settings: RetrieverConfig) -> QueryEncoder:
    """q(x), as it was pretrained."""
    if settings.query_encoder is None:
        raise ConfigError(["retriever.query_encoder must be given for dense retrieval, got null. Name one."])
    name = weights(settings.query_encoder, "query_encoder")
    return QueryEncoder.from_pretrained(name, pooling=settings.pooling, max_length=settings.max_query_length)


def retriever(settings: RetrieverConfig, *, directory: str) -> Retriever:
    """What finds passages: in the index of `directory`, or, where they are given, in none; perhaps reranked."""
    found: Retriever
    allowed = settings.filter.passage_filter()
    if settings.given is not None:
        found = GivenRetriever(read_given(settings.given), name=settings.given, passage_filter=allowed)
    elif settings.kind == "bm25":
        found = BM25Retriever.open(directory, passage_filter=allowed)
    elif settings.fusion is not None:
        _require_there(settings, directory)
        found = HybridRetriever.open(
            directory,
            bm25_directory(settings.fusion, directory),
            settings=settings.fusion.settings(),
            passage_encoder=None if settings.passage_encoder is None else passage_encoder(settings),
            passage_filter=allowed,
        )
    else:
        found = dense_retriever(settings, directory=directory)
    reranker = settings.reranker
    if reranker.checkpoint is None:
        return found
    encoder = CrossEncoder.from_pretrained(
        reranker.checkpoint, max_length=reranker.max_length, batch_size=reranker.batch_size
    ).to(device(reranker.device))
    return RerankedRetriever(found, encoder, candidates=reranker.candidates, logits=reranker.logits)


def bm25_directory(settings: FusionConfig, directory: str) -> str:
    """Where the words of a hybrid are indexed, whose vectors lie in `directory`."""
    return settings.bm25_directory or f"{directory}-bm25"


def dense_retriever(settings: RetrieverConfig, *, directory: str) -> DenseRetriever:
    """A dense index; it must have been built with `retriever.passage_encoder`, unless that is null."""
    _require_there(settings, directory)
    built_with = None if settings.passage_encoder is None else passage_encoder(settings)
    here = partial(Edition.open, device=device(settings.device))
    opener = partial(open_sharded, shards=settings.shards) if settings.shards else here
    return DenseRetriever.open(
        directory,
        passage_encoder=built_with,
        passage_filter=settings.filter.passage_filter(),
        open_edition=opener,
    )


def _require_there(settings: RetrieverConfig, directory: str) -> None:
    """Tells what is missing before any weights are read."""
    Manifest.read(directory)
    if settings.shards:
        import_ray()


def trains_query_encoder(settings: RetrieverConfig) -> bool:
    """Whether q(x) learns: it may, and the logits of p(z|x) depend on it."""
    fused_by_rank = settings.fusion is not None and settings.fusion.method == "reciprocal_rank"
    reranked = settings.reranker.checkpoint is not None and settings.reranker.logits == "reranker"
    if (fused_by_rank or reranked) and not settings.freeze_query_encoder:
        _logger.info("q(x) stands still: %s give it no gradient", "reranker scores" if reranked else "ranks")
    return not (settings.freeze_query_encoder or fused_by_rank or reranked)


def device(name: str) -> str:
    """`cpu` or `cuda`; `auto` is the GPU where there is one.

    Raises:
        ConfigError: `cuda` where there is none.
    """
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ConfigError(
            ["device must be cpu or auto where torch finds no GPU, got 'cuda'. Give auto, or see why torch finds none."]
        )
    return ("cuda" if there else "cpu") if name == "auto" else name
