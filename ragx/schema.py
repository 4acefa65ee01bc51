"""The schema of every config group: dataclasses that hold types and limits; YAML holds the values.

Questions and passages are a file or `world_leaders:<split or edition>`, the embedded knowledge base. Encoders and
generators are a folder, a name on the Hugging Face hub, or one of the embedded `dpr-nano` and `bart-nano`. A field
carries its limit as metadata; `ragx.config.resolve` reads them all and reports every problem at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from ragx.decoding.settings import DecodingSettings
from ragx.model import DECODERS, MODEL_KINDS
from ragx.training.settings import TrainingSettings

EMBEDDED = "world_leaders:"
RETRIEVER_KINDS = ("dense", "bm25")
DECODER_NAMES = tuple(dict.fromkeys(name for fitting in DECODERS.values() for name in fitting))


def _limited(condition: str, holds: Callable[[Any], bool]) -> Any:
    return field(default=MISSING, metadata={"condition": condition, "holds": holds})


def _at_least(bound: float) -> Any:
    return _limited(f"be >= {bound}", lambda value: value >= bound)


def _all_at_least(bound: int) -> Any:
    return _limited(f"be one or more numbers >= {bound}", lambda values: bool(values) and min(values) >= bound)


def _one_of(*options: str) -> Any:
    return _limited(f"be one of {', '.join(options)}", lambda value: value in options)


def _file() -> Any:
    """A file that is read, or part of the embedded knowledge base."""
    condition = f"be a file or {EMBEDDED}..."
    return field(default=MISSING, metadata={"condition": condition, "holds": _is_readable, "path": True})


def _is_readable(value: str) -> bool:
    return value.startswith(EMBEDDED) or Path(value).is_file()


def _folder() -> Any:
    """A folder or file that a script reads or writes, made absolute; its content is checked where it is opened."""
    return field(default=MISSING, metadata={"path": True})


def _weights() -> Any:
    """A folder where there is one of that name, else a name: embedded or on the hub."""
    return field(default=MISSING, metadata={"path": True, "name": True})


@dataclass
class ModelConfig:
    """Which likelihood, over how many passages; null means as in the checkpoint."""

    kind: str | None = _one_of(*MODEL_KINDS)
    n_docs: int | None = _at_least(1)
    max_target_length: int = _at_least(1)
    checkpoint: str | None = _folder()


@dataclass
class RetrieverConfig:
    """p(z|x): which encoders, and whether q(x) is trained."""

    kind: str = _one_of(*RETRIEVER_KINDS)
    query_encoder: str | None = _weights()
    passage_encoder: str | None = _weights()
    pooling: str | None = _one_of("cls", "mean")
    max_query_length: int | None = _at_least(1)
    max_passage_length: int | None = _at_least(1)
    freeze_query_encoder: bool = MISSING


@dataclass
class IndexConfig:
    """The frozen index: where it lies and how it is built; `ragx.retriever.index` checks kind and parameters."""

    directory: str = _folder()
    kind: str = MISSING
    parameters: dict[str, int] = MISSING
    batch_size: int = _at_least(1)
    device: str = _one_of("auto", "cpu", "cuda")


@dataclass
class GeneratorConfig:
    """p(y|x,z): any BART or T5 of Hugging Face, and what it reads."""

    checkpoint: str = _weights()
    max_input_length: int = _at_least(8)
    template: str = MISSING
    bos_in_labels: bool = MISSING


@dataclass
class DecodingConfig:
    """Which decoder, null for the usual one of the model's kind; the rest are the fields of `DecodingSettings`."""

    decoder: str | None = _one_of(*DECODER_NAMES)
    num_beams: int = MISSING
    num_return_sequences: int = MISSING
    max_length: int = MISSING
    min_length: int = MISSING
    length_penalty: float = MISSING
    early_stopping: bool = MISSING
    max_sequences_in_flight: int | None = MISSING
    batch_size: int = _at_least(1)
    device: str = _one_of("auto", "cpu", "cuda")

    def settings(self) -> DecodingSettings:
        """What the decoders take; raises ConfigError."""
        values = asdict(self)
        return DecodingSettings(**{item.name: values[item.name] for item in fields(DecodingSettings)})


@dataclass
class DataConfig:
    """Passages and questions."""

    passages: str = _file()
    edition: str | None = MISSING
    train: str = _file()
    dev: str | None = _file()
    questions: str = _file()


@dataclass
class TrainingConfig:
    """The fields of `TrainingSettings`, which explains and checks them, the seed apart."""

    steps: int = MISSING
    batch_size: int = MISSING
    gradient_accumulation: int = MISSING
    generator_lr: float = MISSING
    query_encoder_lr: float = MISSING
    schedule: str = MISSING
    warmup_steps: int = MISSING
    weight_decay: float = MISSING
    adam_beta1: float = MISSING
    adam_beta2: float = MISSING
    adam_epsilon: float = MISSING
    max_grad_norm: float = MISSING
    reduction: str = MISSING
    bucket_by_length: bool = MISSING
    eval_every: int = MISSING
    save_every: int = MISSING
    best_metric: str = MISSING
    best_mode: str = MISSING
    patience: int = MISSING
    mixed_precision: str = MISSING
    gradient_checkpointing: bool = MISSING
    device: str = MISSING
    progress: bool = MISSING
    wandb_project: str | None = MISSING
    wandb_mode: str = MISSING

    def settings(self, *, seed: int) -> TrainingSettings:
        """What `ragx.training.loop.train` takes."""
        return TrainingSettings(**asdict(self), seed=seed)


@dataclass
class ExperimentConfig:
    """What the run is called and the one seed that everything random in it comes from."""

    name: str = MISSING
    seed: int = _at_least(0)


@dataclass
class BuildIndex:
    """Schema of configs/build_index.yaml."""

    data: DataConfig = MISSING
    retriever: RetrieverConfig = MISSING
    index: IndexConfig = MISSING
    reuse: bool = MISSING


@dataclass
class Train:
    """Schema of configs/train.yaml."""

    model: ModelConfig = MISSING
    retriever: RetrieverConfig = MISSING
    index: IndexConfig = MISSING
    generator: GeneratorConfig = MISSING
    data: DataConfig = MISSING
    training: TrainingConfig = MISSING
    experiment: ExperimentConfig = MISSING


@dataclass
class Generate:
    """Schema of configs/generate.yaml."""

    model: ModelConfig = MISSING
    retriever: RetrieverConfig = MISSING
    index: IndexConfig = MISSING
    generator: GeneratorConfig = MISSING
    decoding: DecodingConfig = MISSING
    data: DataConfig = MISSING
    output: str | None = _folder()


@dataclass
class Evaluate:
    """Schema of configs/evaluate.yaml."""

    predictions: str = _file()
    data: DataConfig = MISSING
    success_at: list[int] = _all_at_least(1)  # noqa: RUF009 (a field, as the others are)
    seed: int = _at_least(0)
    output: str | None = _folder()


@dataclass
class EditionConfig:
    """One edition of a knowledge base: its index and the questions whose answers are those of its date."""

    index: str = _folder()
    questions: str = _file()


@dataclass
class HotSwap:
    """Schema of configs/hot_swap.yaml."""

    model: ModelConfig = MISSING
    retriever: RetrieverConfig = MISSING
    decoding: DecodingConfig = MISSING
    before: EditionConfig = MISSING
    after: EditionConfig = MISSING
    output: str | None = _folder()
