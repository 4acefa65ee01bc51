"""The schema of configs/ablate.yaml: what a training run is told, how it is decoded, and what is compared with what."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from ragx.limits import all_at_least, at_least, limited
from ragx.schema import Train
from ragx.schema_decoding import DecodingConfig


@dataclass
class AblationConfig:
    """What the jobs of a sweep share.

    Attributes:
        name: of the sweep and its folder.
        baseline: swept keys with a value, as `model.n_docs=5`; an arm is compared with the one that has these values
            and otherwise its own. Empty compares nothing.
        metrics: figures of the table as `evaluate` names them (`success_at.1`); the first one is compared.
        success_at: k of the figures of the ranking.
        n_docs: passages a question when it is answered; null as in training.
        passage_words: passages are cut anew into so many words; null leaves them as they are.
        train: each job trains; false answers with `model.checkpoint` as it is, which may hold ${experiment.seed}.
        build_index: each job builds the index that it needs in the folder of the sweep; false opens `index.directory`.
    """

    name: str = MISSING
    baseline: list[str] = MISSING
    metrics: list[str] = limited("name at least one figure", bool)  # noqa: RUF009 (a field, as the others are)
    success_at: list[int] = all_at_least(1)  # noqa: RUF009
    n_docs: int | None = at_least(1)
    passage_words: int | None = at_least(1)
    train: bool = MISSING
    build_index: bool = MISSING


@dataclass
class Ablate(Train):
    """Schema of configs/ablate.yaml: one job of a sweep, trained, decoded and evaluated."""

    decoding: DecodingConfig = MISSING
    ablation: AblationConfig = MISSING


SCRIPTS = (Ablate,)
