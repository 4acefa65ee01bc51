"""Before any time is believed: do both sides compute the same?

|ours - peer|  <=  tolerance * largest |peer|          per tensor; a gradient may be as large as its group's 1%
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ragx.errors import RagxError

TOLERANCE = 1e-4
_LEAST_SHARE = 0.01  # of its group's largest value: what is smaller is rounding, such as the gradient of a key's bias
Results = Mapping[str, Tensor]
Agreement = Callable[[Results, Results], dict[str, float]]


def values(ours: Results, peer: Results) -> dict[str, float]:
    """The largest relative difference, as {"difference": ...}; names `group/...` form groups.

    Raises:
        RagxError: another set of names or shapes, a difference beyond `TOLERANCE`, or a value that is not a number.
    """
    if ours.keys() != peer.keys():
        odd = sorted(ours.keys() ^ peer.keys())
        raise RagxError(f"both sides must compute the same things, got {odd[:3]} on one alone. Compare their parts.")
    scales: dict[str, float] = {}
    for name, value in peer.items():
        group = name.rpartition("/")[0]
        scales[group] = max(scales.get(group, 0.0), _largest(value))
    worst = 0.0
    for name, value in peer.items():
        if ours[name].shape != value.shape:
            got = f"{tuple(ours[name].shape)} beside {tuple(value.shape)}"
            raise RagxError(f"{name} must have one shape on both sides, got {got}. Compare their inputs.")
        scale = max(_largest(value), _LEAST_SHARE * scales[name.rpartition("/")[0]]) or 1.0
        difference = _largest(ours[name].float() - value.float()) / scale
        if not difference <= TOLERANCE:  # also where it is not a number
            raise RagxError(
                f"{name} must agree with the peer to {TOLERANCE}, got a relative difference of {difference:.2g}. "
                "No time was taken: different work is not comparable."
            )
        worst = max(worst, difference)
    return {"difference": worst}


def answers(ours: Results, peer: Results) -> dict[str, float]:
    """{"same": share of equal `ids` (N, T), "difference": of `logprob` (N,)}: answers that differ must be equally good.

    Raises:
        RagxError: an answer of ours is less or more probable than the peer's by more than rounding.
    """
    return {"same": _same(ours, peer), **values({"logprob": ours["logprob"]}, {"logprob": peer["logprob"]})}


def no_better_answers(ours: Results, peer: Results) -> dict[str, float]:
    """As `answers` where ours chooses among the same answers by an approximation (fast decoding): none can be better.

    Raises:
        RagxError: an answer of ours is more probable than the best one.
    """
    excess = (ours["logprob"] - peer["logprob"]) / peer["logprob"].abs().clamp(min=1.0)
    if not float(excess.max()) <= TOLERANCE:
        raise RagxError(
            f"answers must be at most as probable as the best, got one that exceeds it by {float(excess.max()):.2g}. "
            "No time was taken: one of the two searches is wrong."
        )
    return {"same": _same(ours, peer)}


def reported(ours: Results, peer: Results) -> dict[str, float]:
    """{"same": share of equal answers} where the peer is known to be wrong and nothing can be demanded."""
    return {"same": _same(ours, peer)}


def _same(ours: Results, peer: Results) -> float:
    width = max(ours["ids"].shape[1], peer["ids"].shape[1])
    padded = [torch.nn.functional.pad(r["ids"], (0, width - r["ids"].shape[1]), value=-1) for r in (ours, peer)]
    return float((padded[0] == padded[1]).all(1).float().mean())


def _largest(value: Tensor) -> float:
    return float(value.float().abs().max()) if value.numel() else 0.0
