"""All works by name; each compares cells, and each cell becomes a row as soon as it is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ragx.errors import ConfigError
from ragx.experiments.benchmarks import decode, encode, loss, report, search, serving, train
from ragx.experiments.benchmarks.cell import Cell, Protocol, measured_once
from ragx.experiments.benchmarks.options import Benchmark
from ragx.experiments.benchmarks.peer import peer_class
from ragx.experiments.benchmarks.scale import scale_table
from ragx.experiments.benchmarks.texts import Texts
from ragx.experiments.benchmarks.worker import Machine

# Cells are to be measured; rows are, by works without a peer.
WORKS: dict[str, Callable[[Benchmark, Path], Iterator[Cell | dict[str, Any]]]] = {
    "loss": lambda config, folder: loss.cells(config),
    "train": lambda config, folder: train.cells(config),
    "train_text": lambda config, folder: train.text_cells(config, Texts(config, folder)),
    "decode": lambda config, folder: decode.cells(config),
    "decode_text": lambda config, folder: decode.text_cells(config, Texts(config, folder)),
    "encode": encode.cells,
    "search": search.cells,
    "open": serving.opened,
    "swap": serving.swapped,
}


def benchmark(config: Benchmark, *, output: Path, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measures one work and writes its rows to `output`, again after each of them.

    Args:
        tell: gets a line for each finished row, and our side's profile where one is asked for.

    Raises:
        ConfigError: a device that is not there, or options that do not go together.
        RagxError: the sides disagree, or the peer's class is missing.
    """
    _check(config)
    protocol = Protocol(
        machine=Machine(config.device, config.dtype, config.threads, config.least_seconds),
        pairs=config.pairs,
        warmup=config.warmup,
        clock=config.clock,
        isolate=config.isolate,
        profile=config.profile,
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for cell in WORKS[config.work](config, Path(folder)):
            row, profile = measured_once(cell, protocol) if isinstance(cell, Cell) else (cell, "")
            rows.append({"work": config.work, **row})
            report.write(output, rows, settings=asdict(config))
            tell(f"{report.table(rows[-1:]).splitlines()[2].strip()}")
            if profile:
                tell(profile)
    if config.work == "search":
        tell(f"\n{scale_table(rows)}")
    return rows


def _check(config: Benchmark) -> None:
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError([f"device must be cpu where torch finds no GPU, got {config.device}."])
    decoded = [decode.KINDS[decoder] for decoder in config.decoders]
    needed = {"loss": config.kinds, "train": config.kinds, "train_text": config.kinds, "decode": decoded}
    for kind in needed.get(config.work, decoded if config.work == "decode_text" else ()):
        peer_class(kind)
