"""The schema of every config group: dataclasses that hold types and limits; YAML holds the values.

Questions and passages are a file or `world_leaders:<split or edition>`, the embedded knowledge base. Encoders and
generators are a folder, a name on the Hugging Face hub, or one of the embedded `dpr-nano` and `bart-nano`. A field
carries its limit as metadata; `ragx.config.resolve` reads them all and reports every problem at once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from omegaconf import MISSING

from ragx.data.tasks import BAD_ROW, TASKS
from ragx.limits import all_at_least, at_least, file, folder, one_of, output, questions, weights
from ragx.model import CLOSED_BOOK, MODEL_KINDS
from ragx.retriever.null_document import NULL_KINDS
from ragx.retriever.storage import STORAGES
from ragx.schema_audit import SCRIPTS as AUDIT_SCRIPTS
from ragx.schema_bi_encoder import SCRIPTS as BI_ENCODER_SCRIPTS
from ragx.schema_decoding import DecodingConfig
from ragx.schema_dumps import SCRIPTS as DUMPS_SCRIPTS
from ragx.schema_experiments import SCRIPTS as EXPERIMENT_SCRIPTS
from ragx.schema_import import SCRIPTS as IMPORT_SCRIPTS
from ragx.schema_pretraining import SCRIPTS as PRETRAINING_SCRIPTS
from ragx.schema_report import SCRIPTS as REPORT_SCRIPTS
from ragx.schema_retriever import RetrieverConfig
from ragx.schema_training import LoopConfig
from ragx.training.settings import TrainingSettings


@dataclass
class ModelConfig:
    """Which likelihood, over how many passages; null means as in the checkpoint."""

    kind: str | None = one_of(*MODEL_KINDS)
    n_docs: int | None = at_least(1)
    max_target_length: int = at_least(1)
    null_document: str | None = one_of(*NULL_KINDS)
    checkpoint: str | None = folder()


@dataclass
class IndexConfig:
    """The frozen index: where it lies and how it is built; `ragx.retriever.kinds` checks kind and parameters."""

    directory: str = folder()
    kind: str = MISSING
    parameters: dict[str, Any] = MISSING
    storage: str = one_of(*STORAGES)
    vectors_from: str | None = folder()
    batch_size: int = at_least(1)
    device: str = one_of("auto", "cpu", "cuda")
    ray_workers: int = at_least(0)


@dataclass
class GeneratorConfig:
    """p(y|x,z): any BART, T5 or, with a separator, decoder-only model of Hugging Face, and what it reads."""

    checkpoint: str = weights()
    max_input_length: int = at_least(8)
    template: str = MISSING
    bos_in_labels: bool = MISSING
    separator: str | None = MISSING


@dataclass
class DataConfig:
    """Passages and questions."""

    task: str = one_of(*TASKS)
    passages: str | None = file()
    edition: str | None = MISSING
    train: str = questions()
    dev: str | None = questions()
    questions: str = questions()
    labels: dict[str, str] = MISSING
    on_bad_row: str = one_of(*BAD_ROW)


@dataclass
class TrainingConfig(LoopConfig):
    """The fields of `TrainingSettings`, which explains and checks them, the seed apart."""

    gradient_accumulation: int = MISSING
    generator_lr: float = MISSING
    query_encoder_lr: float = MISSING
    null_document_lr: float = MISSING
    reduction: str = MISSING
    label_smoothing: float = MISSING
    bucket_by_length: bool = MISSING
    best_mode: str = MISSING
    live_refresh: int = MISSING
    passages_at_once: int = MISSING
    compile: bool = MISSING
    fsdp: bool = MISSING
    wandb_project: str | None = MISSING
    wandb_mode: str = MISSING
    wandb_upload: bool = MISSING

    def settings(self, *, seed: int) -> TrainingSettings:
        """What `ragx.training.loop.train` takes."""
        return TrainingSettings(**asdict(self), seed=seed)


@dataclass
class ExperimentConfig:
    """What the run is called and the one seed that everything random in it comes from."""

    name: str = MISSING
    seed: int = at_least(0)


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
    output: str | None = output()


@dataclass
class NDocs(Generate):
    """Schema of configs/n_docs.yaml: as Generate, once for each number of passages."""

    n_docs: list[int] = all_at_least(1)  # noqa: RUF009
    max_questions: int | None = at_least(1)


@dataclass
class Evaluate:
    """Schema of configs/evaluate.yaml."""

    predictions: str = file()
    compare: str | None = file()
    data: DataConfig = MISSING
    gold_titles: bool = MISSING
    success_at: list[int] = all_at_least(1)  # noqa: RUF009 (a field, as the others are)
    seed: int = at_least(0)
    output: str | None = output()


@dataclass
class EvaluateRetrieval:
    """Schema of configs/evaluate_retrieval.yaml."""

    retriever: RetrieverConfig = MISSING
    index: IndexConfig = MISSING
    data: DataConfig = MISSING
    success_at: list[int] = all_at_least(1)  # noqa: RUF009
    index_recall: int = at_least(0)
    seed: int = at_least(0)
    output: str | None = output()


@dataclass
class EditionConfig:
    """One edition of a knowledge base: its index and the questions whose answers are those of its date."""

    index: str = folder()
    questions: str = file()


@dataclass
class HotSwap:
    """Schema of configs/hot_swap.yaml."""

    model: ModelConfig = MISSING
    retriever: RetrieverConfig = MISSING
    decoding: DecodingConfig = MISSING
    before: EditionConfig = MISSING
    after: EditionConfig = MISSING
    output: str | None = output()


@dataclass
class ImportCheckpoint:
    """Schema of configs/import_checkpoint.yaml; null means as the published checkpoint says."""

    source: str = weights()
    directory: str = folder()
    kind: str | None = one_of(*(kind for kind in MODEL_KINDS if kind != CLOSED_BOOK))
    max_input_length: int | None = at_least(8)


@dataclass
class Demo:
    """Schema of configs/demo.yaml: the whole path on the embedded knowledge base."""

    run_dir: str = folder()
    n_docs: int = at_least(1)
    retriever: RetrieverConfig = MISSING
    generator: GeneratorConfig = MISSING
    decoding: DecodingConfig = MISSING
    training: TrainingConfig = MISSING
    seed: int = at_least(0)
    max_questions: int | None = at_least(1)


@dataclass
class DemoSeeds:
    """Schema of configs/demo_seeds.yaml."""

    runs: list[str] = MISSING


# The schema of each script's primary config, `<name>_schema` in its defaults.
SCRIPTS = (
    BuildIndex, Train, Generate, NDocs, Evaluate, EvaluateRetrieval, HotSwap, Demo, DemoSeeds, ImportCheckpoint,
    *AUDIT_SCRIPTS, *BI_ENCODER_SCRIPTS, *DUMPS_SCRIPTS, *EXPERIMENT_SCRIPTS, *IMPORT_SCRIPTS, *PRETRAINING_SCRIPTS,
    *REPORT_SCRIPTS,
)  # fmt: skip
