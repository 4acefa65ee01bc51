"""Labels that people froze (CITATIONS A3.1, D07, D29, R10): what is not labelled is not judged, never none."""

from __future__ import annotations

import pytest

from ragx.citations.judges.frozen import FrozenLabels
from ragx.citations.judges.verdict import support_rate
from ragx.errors import RagxError
from ragx.records import Passage, PassageKey

A, B, C = (Passage(name, "v1", "a", "", name) for name in "ABC")
LABELS = FrozenLabels(
    {
        ("q", "c", A.key): "full",
        ("q", "c", B.key): "contradict",
        ("q", "d", A.key): "partial",
        ("q", "d", B.key): "none",
        ("q", "e", A.key): "none",
        ("q", "e", B.key): "contradict",
    }
)


@pytest.mark.parametrize(
    ("claim_id", "passages", "label"),
    [
        ("c", [A], "full"),
        ("c", [B], "contradict"),
        ("c", [C], "not_judged"),
        ("c", [A, B, C], "full"),
        ("c", [B, C], "not_judged"),
        ("d", [A, B], "partial"),
        ("e", [A, B], "contradict"),
        ("f", [A], "not_judged"),
        ("c", [], "not_judged"),
    ],
)
def test_one_and_several_passages(claim_id: str, passages: list[Passage], label: str) -> None:
    assert LABELS.of("q", claim_id).judge("any text", passages) == label


def test_d07_another_version_has_no_label() -> None:
    assert LABELS.label("q", "c", [PassageKey("A", "v2", "a")]) == "not_judged"
    assert LABELS.label("other", "c", [A.key]) == "not_judged"


def test_a_label_outside_the_scale_is_refused() -> None:
    with pytest.raises(RagxError, match="must be one of full, partial, none, contradict, got 'not_judged'"):
        FrozenLabels({("q", "c", A.key): "not_judged"})


def test_d29_bounds_of_a_rate_with_open_claims() -> None:
    rate = support_rate(["full"] * 6 + ["none"] + ["not_judged"] * 3)
    assert rate.judged_only == pytest.approx(6 / 7)
    assert rate.bounds == pytest.approx((0.6, 0.9))
    assert (rate.n, rate.not_judged) == (10, 3)


def test_d09_nothing_has_no_rate() -> None:
    assert (support_rate([]).judged_only, support_rate([]).bounds) == (None, None)
    assert support_rate(["not_judged"]).judged_only is None
