"""Statuses of citations and claims (CITATIONS C4) and the worked cases of section D."""

from __future__ import annotations

from typing import Any

import pytest

from ragx.citations.audit import ClaimResult
from ragx.citations.evidence import Evidence
from ragx.citations.statuses import INVALID, LABELS, CitationResult
from ragx.citations.trace_records import Citation, Claim, Packed, Trace
from ragx.records import PassageKey
from tests.citations.cases import audit, gold, key, passage, store, trace


def statuses(results: tuple[CitationResult, ...]) -> list[str]:
    return [result.status for result in results]


def one(cited: Any, known: Any = None, corpus: Any = None, **options: Any) -> ClaimResult:
    """The audit of a question with the one claim c."""
    fields = {name: options.pop(name) for name in ("packed", "retrieved", "as_of", "principal") if name in options}
    fields.setdefault("packed", [name for name in cited if isinstance(name, str)])
    return audit(trace({"c": cited}, **fields), known, corpus, **options).claims[0]


A1, B1, X1 = "A.v1.a", "B.v1.b", "X.v1.x"


def test_d07_version_change() -> None:
    """D07, A3.1, DS10, F4: citing v2 where v1 is labelled is unknown, and covers nothing."""
    asked = trace({"c": ["A.v2.a"]}, packed=[A1])
    result = audit(asked, gold({("c", A1): "full"}), store(A1))
    assert statuses(result.citations) == ["unknown_version"]
    assert (result.claims[0].covered, result.claims[0].status) == (False, "invalid_citation")


def test_d08_good_and_bad_citations() -> None:
    """D08, A3.3d, A4.1: both readings, side by side."""
    claim = one([A1, "A.v2.a"], gold({("c", A1): "full"}), store(A1), packed=[A1])
    assert (claim.covered, claim.strict, claim.status) == (True, "invalid_citation", "supported")


def test_unlabelled_is_not_unknown() -> None:
    """A3.3c, R14: cannot be found, and nobody judged, are two things; neither is `none`."""
    result = audit(trace({"c": [A1, "Q.v1.q"]}, packed=[A1]), gold(), store(A1))
    assert statuses(result.citations) == ["not_judged", "unknown_source"]


def test_d10_duplicates() -> None:
    """D10, F20: three times the same is one citation."""
    asked = trace({"c": [A1, A1, A1]}, packed=[A1])
    result = audit(asked, gold({("c", A1): "full"}))
    assert [r.duplicate for r in result.citations] == [False, True, True]
    assert result.claims[0].precision == (1.0,)


@pytest.mark.parametrize(
    ("cited", "status", "group", "fraction", "precision"),
    [
        ([A1], "partially_supported", False, 0.5, (0.0,)),
        ([A1, B1], "supported", True, 1.0, (1.0, 1.0)),
        ([A1, B1, X1], "supported", True, 1.0, (1.0, 1.0, 0.0)),
    ],
)
def test_d12_groups(cited: list[str], status: str, group: bool, fraction: float, precision: tuple[float, ...]) -> None:
    """D12, R5, DS9, F6: one of two needed documents is a half; a third lowers precision to 2/3."""
    claim = one(cited, gold(groups={"c": [[A1, B1]]}), packed=[A1, B1, X1])
    assert (claim.status, claim.group, claim.group_fraction) == (status, group, fraction)
    assert claim.precision == precision


def test_d12_a_table_of_single_passages_cannot_say_so() -> None:
    """R5: covered by its own label, and yet the group is not there."""
    claim = one([A1], gold({("c", A1): "full"}, groups={"c": [[A1, B1]]}))
    assert (claim.covered, claim.group) == (True, False)


@pytest.mark.parametrize(
    ("cited", "extra", "status"),
    [
        ("A.v1.a", (), "not_judged"),
        ("B.v1.b", (), "not_packed"),
        ("Z.v1.z", (), "not_retrieved"),
        ("Z.v1.z", ("Z.v1.z",), "not_judged"),
        ("Q.v1.q", (), "unknown_source"),
    ],
)
def test_d13_chain(cited: str, extra: tuple[str, ...], status: str) -> None:
    """D13, R2, R3, A9.2: C = {A, B, D}, S = {A}; outside C only with a record of a permitted search."""
    asked = trace({"c": [cited]}, packed=[A1], retrieved=[A1, B1, "D.v1.d"], extra_retrieval=tuple(map(key, extra)))
    assert statuses(audit(asked, None, store(A1, B1, "D.v1.d", "Z.v1.z")).citations) == [status]


def test_d14_partial_support_in_figure_3_of_alce() -> None:
    """D14: ALCE sees 4 of 6 citations as precise, Liu's rule 5 of 6 with [2] partial; recall is 2 of 3."""
    names = [f"D{i}.v1.0" for i in range(1, 6)]
    known = gold(
        {("s1", names[0]): "full", ("s1", names[1]): "full", ("s2", names[2]): "none", ("s3", names[1]): "partial"},
        groups={"s3": [[names[3], names[4]]]},
    )
    cited = {"s1": names[:2], "s2": [names[2]], "s3": [names[1], *names[3:]]}
    claims = audit(trace(cited, packed=names), known).claims
    assert [claim.recall for claim in claims] == [1.0, 0.0, 1.0]
    assert [sum(c.precision) for c in claims] == [2.0, 0.0, 2.0]  # type: ignore[arg-type]
    assert [sum(c.partial_precision) for c in claims] == [2.0, 0.0, 3.0]  # type: ignore[arg-type]
    assert sum(len(c.precision) for c in claims) == 6


def test_d16_numbers_out_of_range_stay_in_the_denominator() -> None:
    """D16, F20: a[1] full, b[1][9] of five: recall 1/2, precision 1/3, one invalid."""
    names = [f"D{i}.v1.0" for i in range(1, 6)]
    cited = {"a": [Citation("a", None, 1)], "b": [Citation("b", None, 1), Citation("b", None, 9)]}
    result = audit(trace(cited, packed=names), gold({("a", names[0]): "full", ("b", names[0]): "full"}))
    assert [claim.recall for claim in result.claims] == [1.0, 0.0]
    assert [value for claim in result.claims for value in claim.precision] == [1.0, 0.0, 0.0]
    assert statuses(result.citations) == ["full", "full", "out_of_range"]


TRAVEL_1 = Evidence(passage("travel-v1.v1.0", "600", valid_to="2025-12-31"))
TRAVEL_2 = Evidence(passage("travel-v2.v2.0", "750", valid_from="2026-01-01"), supersedes=("travel-v1", "v1"))


@pytest.mark.parametrize(
    ("cited", "label", "correct", "status", "checks"),
    [
        ("travel-v2.v2.0", "contradict", False, "contradict", (True, False, False)),
        ("travel-v1.v1.0", "contradict", True, "stale", (True, True, False)),
    ],
    ids=["F17: 600 citing v2", "F16: 750 citing v1"],
)
def test_d22_number_against_source(cited: str, label: str, correct: bool, status: str, checks: Any) -> None:
    """D22, F9, F16, F17, R9: is it there, is it right, is it said: three questions."""
    asked = trace({"c": [cited]}, packed=[cited], as_of="2026-09-14")
    result = audit(asked, gold({("c", cited): label}), store(TRAVEL_1, TRAVEL_2), correct=correct)
    (citation,), (claim,) = result.citations, result.claims
    assert (citation.status, citation.label, citation.valid) == (status, label, status != "stale")
    assert (citation.evidence is not None, result.correct, claim.together) == checks


def test_without_a_date_nothing_is_stale() -> None:
    """R19: what another version replaced is a remark then."""
    asked = trace({"c": ["travel-v1.v1.0"]}, packed=["travel-v1.v1.0"])
    (citation,) = audit(asked, None, store(TRAVEL_1, TRAVEL_2)).citations
    assert (citation.status, citation.notes[0]) == ("not_judged", "superseded")


class NeverAsked:
    """A judge that must not be asked."""

    id = "never"

    def judge(self, claim: str, passages: Any) -> str:
        raise AssertionError("was asked")


@pytest.mark.parametrize(("recorded", "status"), [("00", "hash_mismatch"), ("", "hash_missing")])
def test_d23_a_text_that_is_not_the_recorded_one_is_not_judged(recorded: str, status: str) -> None:
    """D23, F14: the judge is not called."""
    corpus = store(Evidence(passage(A1), sha256=recorded))
    asked = trace({"c": [A1]}, packed=[A1])
    assert statuses(audit(asked, None, corpus, judge=NeverAsked()).citations) == [status]


def test_the_digest_of_the_run_counts_too() -> None:
    """F14, DS8: the corpus changed after the answer was given."""
    row = Packed(1, 1, key(A1), prior=1.0, sha256=passage(A1, "as it was").sha256)
    asked = trace({"c": [A1]}, packed=[A1], packed_rows=(row,))
    assert statuses(audit(asked, None, store(passage(A1, "as it is"))).citations) == ["hash_mismatch"]


def test_d37_conflict() -> None:
    """D37, R6, F18: supported, and another passage that was read says otherwise."""
    v2, v3 = "T.v2.0", "T.v3.0"
    claim = one([v2], gold({("c", v3): "contradict"}, groups={"c": [[v2]]}), packed=[v2, v3])
    assert (claim.status, claim.covered, claim.conflicts) == ("supported_with_conflict", True, (key(v3),))


def test_conflicts_are_looked_for_only_if_asked() -> None:
    v2, v3 = "T.v2.0", "T.v3.0"
    known = gold({("c", v3): "contradict"}, groups={"c": [[v2]]})
    assert one([v2], known, packed=[v2, v3], judge_packed=False).status == "supported"


LONG = passage(A1, "word " * 20, acl=())
SPANS = [
    ("span_out_of_range", {"evidence_span": (90, 101)}),
    ("quote_mismatch", {"quote": "not there"}),
    ("quote_mismatch", {"quote": "word", "evidence_span": (0, 3)}),
    ("outside_visible_span", {"evidence_span": (50, 60)}),
    ("not_judged", {"evidence_span": (0, 20)}),
    ("not_judged", {"quote": "word  word\nword"}),
]


@pytest.mark.parametrize(("status", "fields"), SPANS)
def test_where_a_citation_points(status: str, fields: dict[str, Any]) -> None:
    """R18, R23, A9.3: within the text, its very words, and in the part that reached the generator."""
    row = Packed(1, 1, key(A1), prior=1.0, visible=(0, 40), truncated=True)
    asked = trace({"c": [Citation("c", key(A1), **fields)]}, packed=[A1], packed_rows=(row,))
    assert statuses(audit(asked, None, store(LONG)).citations) == [status]


def test_the_first_fault_counts() -> None:
    """C4: forbidden, stale, out of the chain and out of range; each hides those after it."""
    item = Evidence(passage("P.v1.0", "short", acl=("hr",), valid_to="2020"))
    everything = Citation("c", key("P.v1.0"), evidence_span=(0, 99))

    def status(citation: Citation, evidence: Evidence, packed: str) -> str:
        asked = trace({"c": [citation]}, packed=[packed], as_of="2026")
        return audit(asked, None, store(evidence, A1)).citations[0].status

    public = Evidence(passage("P.v1.0", "short", valid_to="2020"))
    plain = Citation("c", key("P.v1.0"))
    assert status(everything, item, A1) == "span_out_of_range"
    assert status(plain, item, A1) == "forbidden"
    assert status(plain, public, A1) == "not_retrieved"
    assert status(plain, public, "P.v1.0") == "stale"


def test_invalid_and_labels_are_apart() -> None:
    assert not set(INVALID) & set(LABELS)


@pytest.mark.parametrize(
    ("place", "span", "quote", "granularity"),
    [
        ({}, None, None, "source"),
        ({"section": "4.2"}, None, None, "section"),
        ({"section": "4.2", "page": 18}, None, None, "page"),
        ({"page": 18}, (0, 4), None, "span"),
        ({}, None, "word", "span"),
    ],
)
def test_f8_granularity(place: dict[str, Any], span: Any, quote: str | None, granularity: str) -> None:
    """F8: a whole source is no place in it."""
    corpus = store(Evidence(passage(A1, "word " * 20), place=place))
    asked = trace({"c": [Citation("c", key(A1), evidence_span=span, quote=quote)]}, packed=[A1])
    assert audit(asked, None, corpus).citations[0].granularity == granularity


class ByText:
    """A judge that reads: `full` where the claim's last word stands in one of the passages."""

    id = "by_text"

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def judge(self, claim: str, passages: Any) -> str:
        self.asked.append((claim, tuple(p.text for p in passages)))
        return "full" if any(claim.split()[-1] in p.text for p in passages) else "none"


def test_the_judge_reads_what_the_generator_read() -> None:
    """A9.3, F13: what was cut off supports nothing."""
    row = Packed(1, 1, key(A1), prior=1.0, visible=(0, 5), truncated=True)
    asked = trace({}, packed=[A1], packed_rows=(row,), claims=(Claim("c", "it is 750"),))
    asked = Trace(**{**{n: getattr(asked, n) for n in asked.__slots__}, "citations": (Citation("c", key(A1)),)})
    judge = ByText()
    result = audit(asked, None, store(passage(A1, "It is 750.")), judge=judge)
    assert (result.claims[0].status, judge.asked) == ("unsupported", [("it is 750", ("It is",))])


def test_each_pair_is_judged_once() -> None:
    asked = trace({"c": [A1, B1]}, packed=[A1, B1])
    judge = ByText()
    audit(asked, None, judge=judge)
    assert len(judge.asked) == len(set(judge.asked)) == 3  # each alone, and both together


def test_r10_labels_come_before_the_judge() -> None:
    """R10, R13: frozen labels are the authority."""
    claim = one([A1], gold({("c", A1): "none"}), judge=ByText())
    assert claim.status == "unsupported"


def test_f3_packed_and_not_what_it_says() -> None:
    """F3, F5: everything was there; the claim is something else."""
    claim = one([A1, B1], gold({("c", A1): "none", ("c", B1): "none"}))
    assert (claim.status, claim.strict) == ("unsupported", "unsupported")


@pytest.mark.parametrize(
    ("labels", "status"),
    [
        (("full", "none"), "supported"),
        (("full", "contradict"), "supported_with_conflict"),
        (("partial", "contradict"), "contradicted"),
        (("partial", None), "partially_supported"),
        (("none", None), "not_judged"),
        (("none", "none"), "unsupported"),
    ],
)
def test_claim_statuses(labels: tuple[str | None, ...], status: str) -> None:
    """C4, R14: supports, refutes, not enough information."""
    named = zip((A1, B1), labels, strict=True)
    assert one([A1, B1], gold({("c", name): label for name, label in named if label})).status == status


def test_uncited_and_exempt() -> None:
    """A4.1: an empty list of evidence is not `supported` for being a subset of anything."""
    asked = trace(claims=(Claim("c", "It is."), Claim("d", "Here it is:", worthy=False)), packed=[A1])
    first, second = audit(asked).claims
    assert (first.status, first.strict, first.covered) == ("uncited", "unsupported", False)
    assert second.status == "exempt"


def test_a_group_of_the_question_supports_an_accepted_answer_only() -> None:
    """R9: gold passages say that the right answer is right, not that any answer is."""
    known = gold(groups=[[A1]])
    assert one([A1], known, correct=True).status == "supported"
    assert one([A1], known, correct=False).status == "not_judged"


def test_r1_keys_are_whole_records() -> None:
    """R1, DS1: what is carried along is the identity with source, version and chunk, never a bare text."""
    result = audit(trace({"c": [A1]}, packed=[A1]))
    assert result.citations[0].key == PassageKey("A", "v1", "a")
