"""The schema of the retriever group: p(z|x), from one index, from two at once, or from passages that are given."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from ragx.filters import BY_QUESTION, PassageFilter
from ragx.limits import all_of, at_least, file, folder, limited, one_of, share, weights
from ragx.retriever.fusion import SCALES
from ragx.retriever.hybrid import METHODS, FusionSettings
from ragx.retriever.reranker import LOGITS

RETRIEVER_KINDS = ("dense", "bm25", "hybrid", "given")


@dataclass
class FusionConfig:
    """How `hybrid` makes one ranking of two; `ragx.retriever.fusion` has the formulas.

    `bm25_directory` null is the folder of the vectors with `-bm25` after it.
    """

    method: str = one_of(*METHODS)
    candidates: int = at_least(1)
    weight: float = share()
    scale: str = one_of(*SCALES)
    rank_constant: float = limited("be > 0", lambda value: value > 0)
    bm25_directory: str | None = folder()

    def settings(self) -> FusionSettings:
        """What `ragx.retriever.hybrid` takes."""
        return FusionSettings(self.method, self.candidates, self.weight, self.scale, self.rank_constant)


@dataclass
class RerankerConfig:
    """A cross-encoder that reads query and passage together; `checkpoint` null leaves the retriever's ranking."""

    checkpoint: str | None = weights()
    candidates: int = at_least(1)
    max_length: int | None = at_least(8)
    batch_size: int = at_least(1)
    logits: str = one_of(*LOGITS)
    device: str = one_of("auto", "cpu", "cuda")


@dataclass
class FilterConfig:
    """Which passages exist for the questions of a run; null restricts nothing, see `ragx.filters`.

    `by_question` names what each question's own row restricts besides.
    """

    acl: list[str] | None = MISSING
    as_of: str | None = MISSING
    by_question: list[str] = all_of(*BY_QUESTION)  # noqa: RUF009 (a field, as the others are)

    def passage_filter(self) -> PassageFilter:
        """What every search is narrowed by."""
        return PassageFilter(None if self.acl is None else tuple(self.acl), self.as_of)


@dataclass
class RetrieverConfig:
    """p(z|x): which encoders, whether q(x) is trained, what else ranks passages, and which may be found."""

    kind: str = one_of(*RETRIEVER_KINDS)
    query_encoder: str | None = weights()
    passage_encoder: str | None = weights()
    pooling: str | None = one_of("cls", "mean", "unit_mean")
    max_query_length: int | None = at_least(1)
    max_passage_length: int | None = at_least(1)
    freeze_query_encoder: bool = MISSING
    given: str | None = file()
    device: str = one_of("auto", "cpu", "cuda")
    shards: int = at_least(0)
    filter: FilterConfig = MISSING
    fusion: FusionConfig | None = MISSING
    reranker: RerankerConfig = MISSING
