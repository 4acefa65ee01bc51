"""From the options of a benchmark to the models and inputs of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ragx.experiments.benchmarks.batches import Lengths
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.sizes import PRESETS, Setup


def setup(
    config: Benchmark, *, kind: str, n_docs: int, tokenizers: str | None = None, short_answers: bool = False
) -> Setup:
    """The model of one cell."""
    return Setup(
        size=PRESETS[config.preset],
        seed=config.seed,
        kind=kind,
        n_docs=n_docs,
        device=config.device,
        max_input_length=config.max_input_length,
        tokenizers=tokenizers,
        short_answers=short_answers,
    )


def products(config: Benchmark, *, tokenizers: str | None = None) -> Iterator[tuple[Setup, int]]:
    """Every kind with every n_docs and batch size."""
    for kind, n_docs, batch_size in product(config.kinds, config.n_docs, config.batch_sizes):
        yield setup(config, kind=kind, n_docs=n_docs, tokenizers=tokenizers), batch_size


def lengths(config: Benchmark) -> Lengths:
    """Of the inputs that are drawn."""
    return Lengths(config.query_length, config.context_length, config.target_length)
