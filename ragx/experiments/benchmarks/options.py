"""Schema of configs/benchmark.yaml; it stands here, beside what it configures, and names itself to Hydra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from ragx.experiments.benchmarks.sizes import PRESETS
from ragx.limits import all_at_least, at_least, file, folder, limited, one_of, output, weights
from ragx.retriever.kinds import KINDS as KINDS_OF_INDEX

WORKS = ("loss", "train", "train_text", "decode", "decode_text", "encode", "search", "open", "swap")
KINDS = ("rag_sequence", "rag_token")
DECODERS = ("token_beam", "thorough", "fast")


def some_of(*options: str) -> Any:
    """A list of names, not empty."""
    return limited(f"be one or more of {', '.join(options)}", lambda given: bool(given) and set(given) <= set(options))


@dataclass
class Benchmark:
    """What is compared, at which size, and how it is measured; configs/benchmark.yaml says what each means."""

    work: str = one_of(*WORKS)
    preset: str = one_of(*PRESETS)
    kinds: list[str] = some_of(*KINDS)  # noqa: RUF009 (a field, as the others are)
    decoders: list[str] = some_of(*DECODERS)  # noqa: RUF009
    n_docs: list[int] = all_at_least(1)  # noqa: RUF009
    batch_sizes: list[int] = all_at_least(1)  # noqa: RUF009
    query_length: int = at_least(1)
    context_length: int = at_least(3)
    target_length: int = at_least(3)
    num_beams: int = at_least(1)
    max_answer_length: int = at_least(2)
    peer_mask: bool | None = MISSING
    questions: str = file()
    passages: str = file()
    plain_tsv: bool = MISSING
    words: int = at_least(1)
    max_input_length: int = at_least(16)
    batches: int = at_least(1)
    corpus_size: int = at_least(0)
    encoder: str | None = weights()
    sizes: list[str] = limited("be one or more of the form 100000x768", bool)  # noqa: RUF009
    index_kinds: list[str] = some_of(*KINDS_OF_INDEX)  # noqa: RUF009
    device: str = one_of("cpu", "cuda")
    dtype: str = one_of("fp32", "bf16")
    threads: int = at_least(1)
    seed: int = at_least(0)
    pairs: int = at_least(1)
    warmup: int = at_least(1)
    least_seconds: float = at_least(0)
    clock: str = one_of("wall", "cpu")
    isolate: bool = MISSING
    profile: bool = MISSING
    folder: str | None = folder()
    out: str | None = output()


ConfigStore.instance().store(name="Benchmark_schema", node=Benchmark)
