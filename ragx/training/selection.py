"""Which checkpoint is the best, and when to stop waiting for a better one.

The metric and its direction are named, never guessed. A value that is not finite is never the best, and of two equal
values the earlier wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragx.errors import ConfigError


@dataclass
class Selection:
    """The best value so far.

    Attributes:
        metric, mode: what is compared; `min` or `max`.
        step, value: of the best evaluation; None before the first.
        waited: evaluations since.
    """

    metric: str
    mode: str
    step: int | None = None
    value: float | None = None
    waited: int = 0

    def consider(self, metrics: Mapping[str, float], step: int, *, eligible: bool = True) -> bool:
        """Takes an evaluation in; returns whether it is a new best. `eligible=False` only counts as waiting."""
        value = float(metrics.get(self.metric, math.nan))
        better = eligible and math.isfinite(value) and (self.value is None or self._before(value, self.value))
        if better:
            self.step, self.value, self.waited = step, value, 0
        else:
            self.waited += 1
        return better

    def exhausted(self, patience: int) -> bool:
        """Whether `patience` (0: never) evaluations have passed without a new best."""
        return 0 < patience <= self.waited

    def require_metric(self, metrics: Mapping[str, float]) -> None:
        """Raises ConfigError unless an evaluation yields the metric; called before the first step."""
        if self.metric not in metrics:
            raise ConfigError(
                [f"training.best_metric must be one of {', '.join(sorted(metrics))}, got {self.metric!r}. Choose one."]
            )

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `Selection(**object)` is its inverse."""
        return asdict(self)

    def _before(self, value: float, other: float) -> bool:
        return value < other if self.mode == "min" else value > other
