"""Looking up what was cited: identity, digests, versions, dates, derived and withdrawn text."""

from __future__ import annotations

from typing import Any

import pytest

from ragx.citations.evidence import Evidence, EvidenceStore, is_identity
from ragx.errors import DataError, RagxError
from ragx.jsonl import Row
from ragx.records import Passage, PassageKey, text_sha256
from tests.citations.cases import key, passage, store

V1 = Passage("A", "v1", "a", "Travel", "Lodging is limited to 600.")
V2 = Passage("A", "v2", "b", "Travel", "Lodging is limited to 750.")


@pytest.mark.parametrize(
    ("named", "status"),
    [
        (V1.key, "resolved"),
        (["A", "v1", "a"], "resolved"),
        (("B", "v1", "a"), "unknown_source"),
        (("A", "v3", "a"), "unknown_version"),
        (("A", "v2", "a"), "unknown_chunk"),
        ("A1a", "malformed"),
        (("A", "v1"), "malformed"),
        (("A", "v1", ""), "malformed"),
        (("A", "v1", 1), "malformed"),
        (("A", "v1", "a\n"), "malformed"),
        (("Cafe\u0301", "v1", "a"), "malformed"),
        (None, "malformed"),
    ],
)
def test_statuses(named: object, status: str) -> None:
    """R1, A3.2, A3.3a: three non-empty texts, whatever a string of length 3 looks like."""
    assert store(V1, V2).resolve(named).status == status


def test_offsets_are_code_points_of_the_exact_text() -> None:
    """DS5, R18: half-open, without the line's end, of the Chinese original; the digest is over exact bytes."""
    lines = [
        "\u865a\u6784\u5317\u4eac\u5dee\u65c5\u4f4f\u5bbf\u5236\u5ea6\uff1b\u91d1\u989d\u5355\u4f4d\u4e3a\u5143/\u95f4\u591c\u3002",
        "\u81ea 2026-01-01 \u8d77\u751f\u6548\uff0c\u66ff\u4ee3 travel-v1\u3002",
        "\u4f4f\u5bbf\u9650\u989d\u4e3a 750 \u5143\u3002",
    ]
    item = passage("travel-v2.v2.0", "\n".join(lines))
    starts = [item.text.index(line) for line in lines]
    assert [(start, start + len(line)) for start, line in zip(starts, lines, strict=True)] == [
        (0, 21),
        (22, 52),
        (53, 65),
    ]
    assert (len(item.text), sum(map(len, lines))) == (65, 63)
    assert item.sha256 == "71828935f952224279ddd5d60a0eb74e6bc2bfff0bfee8bd07287bf5c35938b9"


def test_display_form_is_no_identity() -> None:
    """R7, DS1: "A@v1#a" is for readers and is never parsed back."""
    assert not is_identity("A@v1#a") and is_identity(("A", "v1", "a"))


def test_d07_another_version_is_not_the_same_evidence() -> None:
    """D07, R1, F4: the same source and chunk in another version is unknown, and by its own name."""
    found = store(V1).resolve(("A", "v2", "a"))
    assert (found.status, found.evidence) == ("unknown_version", None)


def test_d23_hashes() -> None:
    """D23, DS2, F15: a digest recorded empty never passes; another revision elsewhere changes nothing."""
    corpus = store(V1, V2)
    assert corpus.resolve(V1.key, sha256=text_sha256(V1.text)).verified
    assert corpus.resolve(V1.key, sha256="sha256:" + text_sha256(V1.text)).resolved
    assert corpus.resolve(V1.key, sha256=V2.sha256).status == "hash_mismatch"
    assert corpus.resolve(V1.key, sha256="").status == "hash_missing"
    assert store(Evidence(V1, sha256="")).resolve(V1.key).status == "hash_missing"
    drifted = store(Evidence(V1, sha256=V2.sha256))
    assert drifted.resolve(V1.key).status == "hash_mismatch"
    assert store(V1, Passage("A", "v3", "a", "Travel", "new")).resolve(V1.key, sha256=V1.sha256).resolved


def test_a_digest_that_nobody_recorded_is_resolved_but_not_verified() -> None:
    found = store(Evidence(V1)).resolve(V1.key)
    assert (found.status, found.verified) == ("resolved", False)


def test_derived_text_leads_to_its_parent() -> None:
    """R17, F10, F30: an index card is no evidence; the parent's exact lines are."""
    card = Evidence(passage("card.v2.0", "beijing lodging lodging 750"), kind="derived", parent=V2.key)
    found = store(V2, card).resolve(card.key)
    assert found.status == "derived_only"
    assert found.original is not None and found.original.passage.text == V2.text


@pytest.mark.parametrize("parent", [None, key("card.v2.0"), key("gone.v1.0")], ids=["none", "itself", "absent"])
def test_derived_text_without_an_original(parent: PassageKey | None) -> None:
    card = Evidence(passage("card.v2.0"), kind="derived", parent=parent)
    assert store(card).resolve(card.key).original is None


def test_f11_withdrawn_text_does_not_open() -> None:
    """F11: the document was deleted; the old answer must not open it."""
    found = store(Evidence(V1, tombstone="2026-03-01")).resolve(V1.key)
    assert (found.status, found.original) == ("tombstoned", None)


def test_one_identity_for_two_passages_is_refused() -> None:
    with pytest.raises(RagxError, match=r"passages must differ .* got \('A', 'v1', 'a'\) twice"):
        EvidenceStore([V1, V1])


@pytest.mark.parametrize(
    ("as_of", "fields", "currency"),
    [
        (None, {"valid_to": "2025-12-31"}, "current"),
        ("2026-09-14", {"valid_to": "2025-12-31"}, "stale"),
        ("2025-12-31", {"valid_to": "2025-12-31"}, "current"),
        ("2025", {"valid_to": "2025-06"}, "current"),
        ("2024-12-31", {"valid_from": "2025-01-01"}, "not_yet_valid"),
        ("2025", {"valid_from": "2025-11"}, "current"),
    ],
)
def test_currency_is_decided_by_the_date_of_the_request(as_of: str, fields: dict[str, str], currency: str) -> None:
    """R19, F9, R12: by as_of alone, neither the clock nor the order in which versions came in."""
    item = Evidence(passage("A.v1.a", **fields))
    assert store(item).currency(item, as_of) == currency


def test_what_another_version_replaced_is_stale_from_then_on() -> None:
    """R12, DS6: travel-v2 replaces travel-v1 from 2026 on."""
    old = Evidence(passage("travel-v1.v1.0"))
    new = Evidence(passage("travel-v2.v2.0", valid_from="2026-01-01"), supersedes=("travel-v1", "v1"))
    for corpus in (store(old, new), store(new, old)):
        found = [corpus.currency(old, date) for date in ("2025-12-31", "2026-09-14", None)]
        assert found == ["current", "stale", "superseded"]


def test_d33_a_dump_is_stale_where_a_later_dump_says_something_else() -> None:
    """D33, E11: version is the dump's date; equal chunk numbers are different keys; what both say stays current."""
    before, same = passage("Peru.2016-12.0", "Humala leads."), passage("Peru.2016-12.1", "Lima is the capital.")
    after = passage("Peru.2018-12.0", "Vizcarra leads."), passage("Peru.2018-12.1", "Lima is the capital.")
    corpus = store(before, same, *after)
    assert len(corpus) == 4
    assert [corpus.currency(Evidence(p), "2018-12") for p in (before, same, *after)] == [
        "stale", "current", "current", "current",
    ]  # fmt: skip
    assert corpus.currency(Evidence(before), "2017-05") == "current"


def test_fields_of_a_corpus_line() -> None:
    """DS1, DS2, DS6: what an index record holds besides the text."""
    values: dict[str, Any] = {
        "kind": "derived", "parent": ["A", "v1", "a"], "supersedes": "v0", "uri": "book://a", "page": 18,
        "section": "4.2", "lineage": {"parser": "p1"}, "publisher": "office", "sha256": "sha256:00",
    }  # fmt: skip
    item = Evidence.from_row(Row(__file__, 1, values), V1)  # type: ignore[arg-type]
    assert (item.parent, item.supersedes, item.uri) == (V1.key, ("A", "v0"), "book://a")
    assert (item.place, item.lineage, item.sha256) == ({"page": 18, "section": "4.2"}, {"parser": "p1"}, "sha256:00")


@pytest.mark.parametrize(
    ("values", "field"),
    [({"kind": "copy"}, "kind"), ({"parent": ["A"]}, "parent"), ({"supersedes": 3}, "supersedes"), ({"uri": 1}, "uri")],
)
def test_a_bad_field_is_named(values: dict[str, Any], field: str) -> None:
    with pytest.raises(DataError, match=rf"corpus.jsonl:7: {field}: must"):
        Evidence.from_row(Row("corpus.jsonl", 7, values), V1)  # type: ignore[arg-type]


def test_acl() -> None:
    """F12: an empty list is for everybody."""
    item = Evidence(passage("A.v1.a", acl=("hr", "board")))
    assert [item.visible_to(names) for names in (["public"], ["hr"], [])] == [False, True, False]
    assert Evidence(V1).visible_to([])
