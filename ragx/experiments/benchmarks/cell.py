"""One row of a benchmark: check, warm up, then both sides in turn.

ratio  =  median over pairs of  peer's seconds / our seconds          the two of a pair follow one another
memory_ratio  =  our extra memory / the peer's                        both beyond weights, gradients and optimizer state
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from safetensors.torch import load_file

from ragx import atomic
from ragx.experiments.benchmarks import agreement
from ragx.experiments.benchmarks.meter import Seconds
from ragx.experiments.benchmarks.worker import Elsewhere, Here, Machine, Runner, Side


@dataclass(frozen=True)
class Cell:
    """What one row compares.

    Attributes:
        settings: what the row says about itself.
        ours, peer: build the sides; they are sent to other processes.
        agree: demands equal results of them.
        items: units of work in a step (passages, queries), for rates; 0 reports none.
        utilisation: whether to report the share of the measured matrix rate.
        kept: where the row lies once it was measured, and is not measured again under the same protocol; None: nowhere.
    """

    settings: dict[str, Any]
    ours: Callable[[], Side]
    peer: Callable[[], Side]
    agree: agreement.Agreement = agreement.values
    items: int = 0
    utilisation: bool = False
    kept: Path | None = None


@dataclass(frozen=True)
class Protocol:
    """How a cell is measured.

    Attributes:
        pairs, warmup: timed pairs, and steps before them.
        clock: `wall`, or `cpu` (of all threads; hardly moves on a busy machine).
        isolate: a process for each side.
        profile: take our side's profile.
    """

    machine: Machine
    pairs: int
    warmup: int
    clock: str
    isolate: bool
    profile: bool


def measure(cell: Cell, protocol: Protocol) -> tuple[dict[str, Any], str]:
    """The row of a cell, and the profile of our side (empty where none was asked for).

    Raises:
        RagxError: the two sides do not compute the same.
    """
    run: Callable[..., Runner] = Elsewhere if protocol.isolate else Here
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = stack.enter_context(closing(run(cell.ours, protocol.machine, name="ours")))
        peer = stack.enter_context(closing(run(cell.peer, protocol.machine, name="peer")))
        checked = cell.agree(*(_results(side, folder / f"{side.name}.safetensors") for side in (ours, peer)))
        for side in (ours, peer):
            side.call("warm_up", protocol.warmup)
        pairs = [(ours.call("seconds", number), peer.call("seconds", number)) for number in range(protocol.pairs)]
        figures: dict[str, Any] = {**summary(pairs, clock=protocol.clock)}
        figures |= memory(ours.call("extra_mib"), peer.call("extra_mib"))
        if cell.utilisation:
            rate = ours.call("matmul_rate")
            figures |= utilisation(peer.call("flops"), rate, figures)
        profile = ours.call("profile") if protocol.profile else ""
    if cell.items:
        figures |= {f"{side}_per_s": cell.items / figures[f"{side}_s"] for side in ("ours", "peer")}
    return {**cell.settings, **figures, **checked}, profile


def measured_once(cell: Cell, protocol: Protocol) -> tuple[dict[str, Any], str]:
    """As `measure`, or the row that lies where the cell keeps it, if it was measured so."""
    asked = json.loads(json.dumps(asdict(protocol)))
    if cell.kept is not None and cell.kept.exists():
        noted = json.loads(cell.kept.read_text(encoding="utf-8"))
        if noted["protocol"] == asked:
            return noted["row"], ""
    row, profile = measure(cell, protocol)
    if cell.kept is not None:
        with atomic.open_file(cell.kept) as handle:
            json.dump({"protocol": asked, "row": row}, handle)
    return row, profile


def summary(pairs: list[tuple[Seconds, Seconds]], *, clock: str) -> dict[str, float]:
    """Medians of our and the peer's seconds and of their ratios, with the least and the largest ratio."""
    times = [(getattr(ours, clock), getattr(peer, clock)) for ours, peer in pairs]
    ratios = [peer / ours for ours, peer in times]
    return {
        "ours_s": median(ours for ours, _ in times),
        "peer_s": median(peer for _, peer in times),
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
    }


def memory(ours_mib: float | None, peer_mib: float | None) -> dict[str, float | None]:
    """Extra memory of both and our share of the peer's; None where it was not measured."""
    ratio = ours_mib / peer_mib if ours_mib is not None and peer_mib else None
    return {"ours_mib": ours_mib, "peer_mib": peer_mib, "memory_ratio": ratio}


def utilisation(flops: int, rate: float, figures: dict[str, Any]) -> dict[str, float]:
    """Model FLOPs utilisation of both sides: the step's operations per second over those of a large product.

    The operations are counted on the peer, which computes nothing twice.
    """
    shares = {f"{side}_mfu": flops / figures[f"{side}_s"] / rate for side in ("ours", "peer")}
    return {"step_tflop": flops / 1e12, "matmul_tflops": rate / 1e12, **shares}


def _results(side: Runner, path: Path) -> dict[str, Any]:
    side.call("check", path)
    return load_file(path)
