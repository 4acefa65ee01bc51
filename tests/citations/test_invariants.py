"""I1 to I10, lineage and independence (CITATIONS C3): each breaks once, and nothing else does."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ragx.citations.evidence import Evidence
from ragx.citations.trace_records import (
    Answer,
    Budget,
    Candidate,
    Citation,
    Claim,
    Dropped,
    Packed,
    TokenScores,
    Trace,
)
from tests.citations.cases import audit, gold, key, passage, store, trace

A1, B1, D1 = "A.v1.a", "B.v1.b", "D.v1.d"


def codes(asked: Trace, *rest: Any, **options: Any) -> list[tuple[str, str]]:
    return [(finding.code, finding.detail) for finding in audit(asked, *rest, **options).findings]


def packed(*names: str, priors: tuple[float, ...] | None = None, **fields: Any) -> tuple[Packed, ...]:
    priors = priors or (1 / len(names),) * len(names)
    return tuple(
        Packed(i, fields.get("refs", range(1, 9))[i - 1], key(name), prior=prior, tokens=fields.get("tokens"))
        for i, (name, prior) in enumerate(zip(names, priors, strict=True), 1)
    )


def test_a_sound_trace_has_no_findings() -> None:
    """R2, R7, R22: R within S within C, numbers 1..n, a reason for what was dropped, the budget kept."""
    asked = trace(
        {"c": [A1]},
        packed=[A1],
        retrieved=[A1, B1],
        packed_rows=packed(A1, tokens=4),
        dropped=(Dropped(key(B1), "pack", "over_budget", 3),),
        budget=Budget("token", 10, 2, 2, 6, 2),
    )
    assert codes(asked) == []


TWO = [A1, B1]
LEFT_OUT = Dropped(key(B1), "pack", "below_k")
SMALL = Budget("token", 10, 2, 2, 6, 0)
BROKEN: dict[str, tuple[Trace, str]] = {
    "I1": (trace({"c": [B1]}, packed=[A1], retrieved=TWO, dropped=(LEFT_OUT,)), "cited_but_not_packed"),
    "I2": (trace(packed=TWO, retrieved=[A1]), "packed_but_not_retrieved"),
    "I3": (trace({"c": ["Q.v1.q"]}, packed=[A1], extra_retrieval=(key("Q.v1.q"),)), "does_not_resolve"),
    "I4": (trace(packed=[A1], retrieved=[A1, A1]), "twice_in_C"),
    "I5": (trace(packed=TWO, packed_rows=packed(*TWO, priors=(0.4, 0.4))), "priors_do_not_sum_to_1"),
    "I6": (trace(packed=TWO, packed_rows=packed(*TWO, tokens=4), budget=SMALL), "over_budget"),
    "I7": (trace(packed=TWO, packed_rows=packed(*TWO, refs=(1, 3))), "reference_map_stale"),
    "I8": (trace(packed=[A1], retrieved=TWO), "dropped_without_one_reason"),
    "I9": (trace(answer=Answer(text="short"), claims=(Claim("c", "x", (0, 6)),)), "claim_outside_answer"),
}  # fmt: skip


@pytest.mark.parametrize("code", BROKEN)
def test_one_broken_invariant_is_one_finding(code: str) -> None:
    asked, detail = BROKEN[code]
    corpus = store(A1, B1)
    assert codes(asked, None, corpus) == [(code, detail)]


@pytest.mark.parametrize(
    ("budget", "detail"),
    [
        (Budget("token", 10, 2, 2, 7, 3), "budget_is_not_window_less_fixed_less_reserve"),
        (Budget("token", 10, 2, 2, 6, 3), "remaining_is_wrong"),
    ],
)
def test_i6_the_budget_adds_up(budget: Budget, detail: str) -> None:
    """A2.1, A9.4: B = W - F - O, and what remains; every budget has its unit."""
    asked = trace(packed=[A1], packed_rows=packed(A1, tokens=4), budget=budget)
    assert codes(asked) == [("I6", detail)]


def test_e4_context_in_code_points() -> None:
    """E4, F25: capacity 1400, reserve 200: 609 and 852 are left of it; of 250, 50 are, and nothing is packed."""
    for window, cost, left in ((1400, 591, 609), (1400, 348, 852)):
        rows = packed(A1, tokens=cost)
        asked = trace(packed=[A1], packed_rows=rows, budget=Budget("code_point", window, 0, 200, 1200, left))
        assert codes(asked) == []
    dropped = (Dropped(key(A1), "pack", "over_budget", 348),)
    asked = trace(retrieved=[A1], dropped=dropped, budget=Budget("code_point", 250, 0, 200, 50, 50))
    assert codes(asked) == []


def test_d06_a_duplicate_is_dropped_for_being_one() -> None:
    """D06, A2.4: A, A, B under 5 - 4: the second A is a duplicate, B over budget; one reason each."""
    asked = trace(
        packed=[A1],
        retrieved=[A1, A1, B1],
        packed_rows=packed(A1, tokens=4),
        dropped=(Dropped(key(A1), "pack", "duplicate", 1), Dropped(key(B1), "pack", "over_budget", 2)),
        budget=Budget("token", 9, 2, 2, 5, 1),
    )
    assert codes(asked) == []
    twice = Trace(**{**{n: getattr(asked, n) for n in asked.__slots__}, "dropped": (*asked.dropped, asked.dropped[1])})
    assert codes(twice) == [("I8", "dropped_without_one_reason")]


def test_d34_numbers_of_the_list_before_packing() -> None:
    """D34, R7, F21: a was dropped; "[1]" is b by the final map, and a citation that says a=1 is by an old one."""
    rows = packed(B1, D1)
    fine = trace({"c": [Citation("c", None, 1)]}, packed=[B1, D1], packed_rows=rows)
    assert audit(fine).citations[0].key == key(B1) and codes(fine) == []
    old = trace({"c": [Citation("c", key(D1), 1)]}, packed=[B1, D1], packed_rows=rows)
    assert codes(old) == [("I7", "reference_map_stale")]


def test_d34_numbers_by_how_often_a_file_is_cited() -> None:
    """D34: another rule of numbering gives other numbers to the same passages; "[1]" follows it, the keys stay."""
    by_frequency = packed(B1, D1, refs=(2, 1))
    cited = {"c": [Citation("c", None, 1), Citation("c", None, 2)]}
    found = audit(trace(cited, packed=[B1, D1], packed_rows=by_frequency))
    assert [result.key for result in found.citations] == [key(D1), key(B1)] and found.findings == ()


@pytest.mark.parametrize(("total", "found"), [(0.9999999, False), (1.00005, False), (0.9998, True)])
def test_i5_priors_of_the_passages_kept_sum_to_one(total: float, found: bool) -> None:
    """A1.2, A1.3, A1.4: normalised over the passages that were kept, as exactly as float32 can be."""
    rows = packed(A1, B1, priors=(0.6, total - 0.6))
    assert bool(codes(trace(packed=TWO, packed_rows=rows))) is found


def test_a_passage_that_the_reader_may_not_see_is_dropped_before_packing() -> None:
    """A4.3, F12: permission comes before the input is made, and leaves its reason."""
    asked = trace(packed=[A1], retrieved=TWO, dropped=(Dropped(key(B1), "filter", "acl"),))
    assert codes(asked) == []


def test_i9_claims_are_apart() -> None:
    claims = (Claim("c", "x", (0, 4)), Claim("d", "y", (3, 6)))
    assert codes(trace(answer=Answer(text="abcdefgh"), claims=claims)) == [("I9", "claims_overlap")]


SCORES = TokenScores(
    "complete",
    (math.log(0.6), math.log(0.4)),
    ((math.log(0.9), math.log(0.1)), (math.log(0.2), math.log(0.8))),
    ((0, 2), (3, 9)),
)


@pytest.mark.parametrize(
    ("posterior", "status", "detail"),
    [
        (0.542373, "complete", None),
        (0.5425, "complete", "posterior_is_not_what_it_was_computed_from"),
        (0.542373, "incomplete", "posterior_without_all_pairs"),
    ],
)
def test_i10_posteriors_are_computed_again(posterior: float, status: str, detail: str | None) -> None:
    """D03, D04: within 1e-4; where a pair is missing there is no posterior at all."""
    cited = Citation("c", key(B1), origin="posterior", posterior=posterior)
    scores = TokenScores(status, SCORES.log_prior, SCORES.logp, SCORES.token_spans)
    asked = trace(
        {"c": [cited]},
        packed=[A1, B1],
        packed_rows=packed(A1, B1, priors=(0.6, 0.4)),
        model={"kind": "rag_sequence"},
        attribution=scores,
    )
    assert codes(asked) == ([("I10", detail)] if detail else [])


@pytest.mark.parametrize(
    ("lineages", "found"),
    [
        (({"embedding": "e1"}, {"embedding": "e1"}), []),
        (({"embedding": "e1"}, {"embedding": "e2"}), [("mixed_lineage", "embedding")]),
        (({"parser": "p1", "checksum": "1"}, {"parser": "p1", "checksum": "2"}), []),
    ],
)
def test_f23_mixed_versions_of_an_embedding(lineages: tuple[dict[str, str], ...], found: list[Any]) -> None:
    """F23, F29, DS2: two embedding versions in one input."""
    items = [Evidence(passage(name), lineage=lineage) for name, lineage in zip(TWO, lineages, strict=True)]
    assert codes(trace(packed=TWO), None, store(*items)) == found


@pytest.mark.parametrize(
    ("model", "known", "detail"),
    [
        ({"id": "m", "started_at": "2026-02-01"}, {"labeller": "m"}, "labeller_is_the_system"),
        ({"id": "m", "started_at": "2026-02-01"}, {"frozen_at": "2026-02-02"}, "frozen_after_the_run_began"),
        ({"id": "m", "started_at": "2026-02-01"}, {"labeller": "people", "frozen_at": "2026-01-31"}, None),
    ],
)
def test_d39_independence(model: dict[str, str], known: dict[str, str], detail: str | None) -> None:
    """D39, F22, R10: who labels is not who answers, and labels come first."""
    found = codes(trace(packed=[A1], model=model), gold(**known))
    assert found == ([("independence", detail)] if detail else [])


class Self:
    """A judge that is the model itself."""

    id = "m"

    def judge(self, claim: str, passages: Any) -> str:
        return "full"


def test_d39_the_judge_is_not_the_system() -> None:
    asked = trace({"c": [A1]}, packed=[A1], model={"id": "m"})
    assert codes(asked, judge=Self()) == [("independence", "judge_is_the_system")]


def test_ranks_are_those_of_the_trace() -> None:
    assert trace(retrieved=TWO).retrieved == (Candidate(1, key(A1), 9.0), Candidate(2, key(B1), 8.0))
