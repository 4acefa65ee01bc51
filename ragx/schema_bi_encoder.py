"""The schema of bi-encoder training."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from omegaconf import MISSING

from ragx.limits import at_least, file, one_of, weights
from ragx.schema_training import LoopConfig
from ragx.training.bi_encoder_settings import BiEncoderSettings


@dataclass
class EncodersConfig:
    """What the towers start from; null for `passage_encoder` starts it from the query encoder's weights."""

    query_encoder: str = weights()
    passage_encoder: str | None = weights()
    shared: bool = MISSING
    as_dpr: bool = MISSING
    pooling: str | None = one_of("cls", "mean", "unit_mean")
    max_query_length: int | None = at_least(3)
    max_passage_length: int | None = at_least(3)


@dataclass
class PairsConfig:
    """Questions with their passages; `passages` is the corpus of files that name passages by id or key."""

    train: str = file()
    dev: str | None = file()
    passages: str | None = file()
    edition: str | None = MISSING


@dataclass
class BiEncoderTrainingConfig(LoopConfig):
    """The fields of `BiEncoderSettings`, which explains and checks them."""

    hard_negatives: int = MISSING
    negatives: int = MISSING
    random_positive: bool = MISSING
    learning_rate: float = MISSING
    seed: int = at_least(0)
    eval_negatives: int = MISSING
    eval_batch_size: int = MISSING

    def settings(self) -> BiEncoderSettings:
        """What `ragx.training.bi_encoder_loop.train_bi_encoder` takes."""
        return BiEncoderSettings(**asdict(self))


@dataclass
class TrainBiEncoder:
    """Schema of configs/train_bi_encoder.yaml."""

    encoders: EncodersConfig = MISSING
    data: PairsConfig = MISSING
    training: BiEncoderTrainingConfig = MISSING


SCRIPTS = (TrainBiEncoder,)
