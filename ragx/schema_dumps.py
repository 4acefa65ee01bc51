"""The schema of the hot swap between two dated dumps."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from ragx.limits import all_at_least, at_least, folder
from ragx.schema_decoding import DecodingConfig
from ragx.schema_retriever import RetrieverConfig


@dataclass
class HotSwapDumps:
    """Schema of configs/hot_swap_dumps.yaml.

    Attributes:
        directory: the two dumps and the positions, see `ragx.data.factbook`.
        indexes: where the index of each encoder and dump lies, or is built.
        retriever: encoders whose retrieval is measured and whose indexes the models read.
        other: encoders measured beside it; null: none. BM25 is always measured.
        models: checkpoints; those of one kind are seeds of one model.
        success_at: k of success@k.
        seed: of the bootstrap intervals.
    """

    directory: str = folder()
    indexes: str = folder()
    retriever: RetrieverConfig = MISSING
    other: RetrieverConfig | None = MISSING
    models: list[str] = MISSING
    decoding: DecodingConfig = MISSING
    success_at: list[int] = all_at_least(1)  # noqa: RUF009 (a field, as the others are)
    seed: int = at_least(0)


SCRIPTS = (HotSwapDumps,)
