"""Config to objects: the one place that knows what a config group stands for.

The objects themselves take flat parameters and know nothing of configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from accelerate import PartialState

from ragx.build_retriever import (  # noqa: F401  (scripts find all that is built in this module)
    CHECKPOINTS,
    bm25_directory,
    corpus_encoder,
    dense_retriever,
    device,
    index_device,
    passage_encoder,
    query_encoder,
    retriever,
    trained_passage_encoder,
    trains_query_encoder,
    weights,
)
from ragx.data.corpus import DEFAULT_VERSION, read_passages
from ragx.data.labels import require_one_token
from ragx.data.patterns import text_targets
from ragx.data.tasks import Reading, read_examples
from ragx.data.world_leaders.claims import claims
from ragx.data.world_leaders.clues import clues
from ragx.data.world_leaders.editions import edition as embedded_edition
from ragx.data.world_leaders.facts import EDITIONS
from ragx.data.world_leaders.questions import hot_swap_questions, questions
from ragx.decoding.choice import DECODERS
from ragx.errors import ConfigError
from ragx.generator.causal_lm import CausalLMGenerator
from ragx.generator.pretrained import PretrainedGenerator
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.limits import EMBEDDED
from ragx.model import CLOSED_BOOK, RagModel
from ragx.protocols import Retriever
from ragx.records import Example, Passage
from ragx.retriever.bm25 import BM25Retriever
from ragx.retriever.building import Encoding, build_index
from ragx.retriever.corpus_store import on_disk
from ragx.retriever.manifest import Manifest
from ragx.retriever.null_document import NullDocument
from ragx.schema import (
    BuildIndex,
    DataConfig,
    EditionConfig,
    Generate,
    GeneratorConfig,
    ModelConfig,
    Train,
)
from ragx.training.checkpoint import load_checkpoint, read_record, require_same_encoder
from ragx.training.record import RECORD

SPLITS = ("train", "dev", "test")
HOT_SWAP = "hot_swap/"
_EMBEDDED = {"": questions, "clues": clues}


def edition(data: DataConfig) -> str:
    """The version of the corpus: as given, else the embedded edition's, else the name of the passages file."""
    if data.passages is None:
        if data.edition is None:
            raise ConfigError(["data.passages must be given, got null. Name the file that the index is built from."])
        return data.edition
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
    return list(stream(data))


def stream(data: DataConfig) -> Iterable[Passage]:
    """The corpus of `data.passages`, a passage of a file in memory at a time."""
    name = edition(data)
    if data.passages is None:
        raise ConfigError(["data.passages must be given, got null. Name the file that the index is built from."])
    return embedded_edition(name) if data.passages.startswith(EMBEDDED) else read_passages(data.passages, version=name)


def examples(
    source: str, *, data: DataConfig | None = None, require_answers: bool = True, targets: bool = False
) -> list[Example]:
    """The examples of `world_leaders:NAME` or of any source that `read_examples` knows.

    NAME is a split for questions, `clues/<split>`, `claims/<split>` or `hot_swap/EDITION`.

    Args:
        data: the task and what happens to bad rows; None reads questions and answers and refuses bad rows.
        targets: answers to train on: where the task has patterns, texts that they accept.
    """
    if not source.startswith(EMBEDDED):
        found = read_examples(source, require_answers=require_answers, reading=reading(data))
        return text_targets(found) if targets and data is not None and data.task == "regex_qa" else found
    name = source.removeprefix(EMBEDDED)
    kind, _, part = name.rpartition("/")
    if part in SPLITS and kind in _EMBEDDED:
        return _EMBEDDED[kind](part)
    if part in SPLITS and kind == "claims":
        return claims(part, labels=None if data is None else data.labels)
    if name.startswith(HOT_SWAP) and name.removeprefix(HOT_SWAP) in EDITIONS:
        return hot_swap_questions(name.removeprefix(HOT_SWAP))
    known = ", ".join([*SPLITS, "clues/SPLIT", "claims/SPLIT", *(HOT_SWAP + date for date in EDITIONS)])
    raise ConfigError([f"questions must be a file or {EMBEDDED} with one of {known}, got {source!r}."])


def reading(data: DataConfig | None) -> Reading:
    """How question files are read; ids of gold passages name those of `data.passages`, in the version of its first."""
    if data is None:
        return Reading()
    if data.passages is None:
        version = data.edition or DEFAULT_VERSION
    else:
        first = next(iter(stream(data)), None)
        version = edition(data) if first is None else first.key.version
    return Reading(task=data.task, labels=dict(data.labels), version=version, on_bad_row=data.on_bad_row)


def check_labels(data: DataConfig, generator: PretrainedGenerator) -> None:
    """Refuses labels of `data.labels` that are not one token each of the generator."""
    tokenizer = generator.inputs.tokenizer
    require_one_token(data.labels, tokens=lambda word: tokenizer(word, add_special_tokens=False)["input_ids"])


def index(config: BuildIndex) -> Manifest:
    """Builds `index.directory` from `data.passages`, whole or not at all; all processes of the run share the work."""
    directory, name, kind = config.index.directory, edition(config.data), config.retriever.kind
    if kind == "given":
        raise ConfigError(["retriever.kind must be one that searches to build an index, got given. Leave it out."])
    if kind == "bm25":
        return BM25Retriever.build(stream(config.data), directory, edition=name, **config.index.parameters).manifest
    processes = PartialState(cpu=index_device(config.index) == "cpu")
    encoder = corpus_encoder(config.retriever, config.index)
    with on_disk(stream(config.data), directory, processes=processes) as corpus:
        if config.retriever.fusion is not None and processes.is_main_process:
            BM25Retriever.build(corpus, bm25_directory(config.retriever.fusion, directory), edition=name)
        return build_index(
            corpus,
            passage_encoder=encoder.to(processes.device),
            directory=directory,
            edition=name,
            kind=config.index.kind,
            encoding=Encoding(
                storage=config.index.storage,
                batch_size=config.index.batch_size,
                vectors_from=config.index.vectors_from,
                processes=processes,
            ),
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


def generator(settings: GeneratorConfig) -> PretrainedGenerator:
    """p(y|x,z), as it was pretrained; one with a separator is decoder-only."""
    options: dict[str, Any] = {
        "max_length": settings.max_input_length,
        "template": settings.template,
        "bos_in_labels": settings.bos_in_labels,
    }
    if settings.separator is None:
        return Seq2SeqGenerator.from_pretrained(weights(settings.checkpoint), **options)
    return CausalLMGenerator.from_pretrained(weights(settings.checkpoint), separator=settings.separator, **options)


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
        dense = kind != CLOSED_BOOK and config.retriever.kind in ("dense", "hybrid")
        built = RagModel(
            kind=kind,
            generator=generator(config.generator),
            query_encoder=query_encoder(config.retriever) if dense else None,
            retriever=index,
            n_docs=config.model.n_docs,
            max_target_length=config.model.max_target_length,
        )
    if built.query_encoder is not None and not trains_query_encoder(config.retriever):
        built.freeze_query_encoder = True
    if isinstance(config, Train) and config.training.live_refresh and kind != CLOSED_BOOK:
        built.passage_encoder = trained_passage_encoder(config.retriever)
    built.filtered_by = tuple(config.retriever.filter.by_question)
    add_null_document(built, config.model.null_document)
    return built


def add_null_document(model: RagModel, kind: str | None) -> None:
    """Gives the model a null document that starts anew; one that came with its checkpoint stays.

    Raises:
        ConfigError: `kind` is another than the checkpoint's, or needs a query encoder where there is none.
    """
    if model.null_document is not None:
        if kind not in (None, model.null_document.kind):
            got = f"{kind!r}, the checkpoint has {model.null_document.kind!r}"
            raise ConfigError([f"model.null_document must be null or as in the checkpoint, got {got}. Leave it out."])
    elif kind is not None:
        encoder = model.query_encoder
        model.null_document = NullDocument(
            kind, embedding_size=None if encoder is None else encoder.tower.embedding_size
        ).to(model.generator.device)


def require_index_of(query_encoder: str | None, retriever: Retriever) -> None:
    """Refuses an index of another passage encoder than a checkpoint's q(x) was trained with."""
    checkpoint = Path(query_encoder or "").parent
    if query_encoder is not None and (checkpoint / RECORD).is_file():
        require_same_encoder(retriever, read_record(checkpoint)["index"] or {}, checkpoint)


def trained_model(settings: ModelConfig, *, retriever: Retriever | None) -> RagModel:
    """The model of `model.checkpoint` over an index; null for kind and n_docs means as recorded there."""
    assert settings.checkpoint is not None  # ragx.config.resolve has seen to it
    given = retriever is not None and getattr(retriever, "manifest", None) is None  # so there is no encoder to compare
    loaded = load_checkpoint(settings.checkpoint, retriever=None if given else retriever, kind=settings.kind)
    if given:
        loaded.retriever, loaded.query_encoder = retriever, None
    loaded.n_docs = settings.n_docs or loaded.n_docs
    loaded.max_target_length = settings.max_target_length
    return loaded


def decoder(name: str | None, kind: str) -> str:
    """The decoder that was asked for, else the first of those that fit the model's kind."""
    return name or next(iter(DECODERS[kind]))
