"""Which passages an answer cites, from posterior and gain alone.

    cited = passages with gain > 0 and p(z|x,y) >= 0.1, highest posterior first, until they hold 0.8 of it or are three

One decision: a passage is cited because leaving it out would make the answer less probable (gain > 0), not because its
posterior is the largest: with priors .9/.1 and likelihoods .1/.8 the posterior is .529/.471, and yet removing the first
passage raises p(y). Thresholds are never lowered until something is cited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROUNDING = 1e-6  # nats; equal passages differ by less in float32 and must not be cited for it


@dataclass(frozen=True, slots=True)
class EmissionRule:
    """When a passage is cited; goes into every prediction's provenance.

    Attributes:
        min_gain: nats; the gain must be larger, by more than rounding (1e-6).
        min_posterior: p(z|x,y) must be at least this.
        mass: no more passages are taken once those taken hold this much posterior.
        max_citations: nor more than this many.
        allow_trivial: whether the only passage may be cited; its posterior is 1 whatever it says.
    """

    min_gain: float = 0.0
    min_posterior: float = 0.10
    mass: float = 0.80
    max_citations: int = 3
    allow_trivial: bool = False


def emit(doc_posterior: Sequence[float], gain: Sequence[float], *, rule: EmissionRule) -> tuple[int, ...]:
    """Positions of the passages that the rule cites, highest posterior first, ties by rank."""
    fit = [z for z, r in enumerate(doc_posterior) if gain[z] > rule.min_gain + ROUNDING and r >= rule.min_posterior]
    taken: list[int] = []
    mass = 0.0
    for z in sorted(fit, key=lambda z: (-doc_posterior[z], z)):
        if mass >= rule.mass or len(taken) >= rule.max_citations:
            break
        taken.append(z)
        mass += doc_posterior[z]
    return tuple(taken)
