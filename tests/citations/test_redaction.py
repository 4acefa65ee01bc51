"""What the principal may not see reaches no row and no page (CITATIONS D25, F12, R29)."""

from __future__ import annotations

import json

import pytest

from ragx.citations.audit import Audited
from ragx.citations.evidence import Evidence, EvidenceStore
from ragx.citations.redaction import REDACTED, Redaction, salt_of
from ragx.citations.report_views import question_view
from ragx.citations.rows import citation_row, claim_row, stage_row, to_line
from ragx.citations.trace_records import Answer, Citation, Claim
from tests.citations.cases import audit, gold, key, passage, store, trace

SECRET = Evidence(
    passage("hr-pay.v1.7", "The board is paid 900.", title="Board salaries", acl=("hr",)), uri="https://intranet/pay"
)
OPEN = passage("news.v1.0", "Pay was 900, the paper says.", title="News")
CORPUS = store(SECRET, OPEN)
ANSWER = "They are paid 900. Lima is far."


def audited(*cited: Citation, principal: tuple[str, ...] = ("public",)) -> Audited:
    claims = (Claim("c", "They are paid 900.", (0, 18)), Claim("d", "Lima is far.", (19, 31)))
    asked = trace(
        {"c": cited},
        packed=["hr-pay.v1.7", "news.v1.0"],
        claims=claims,
        answer=Answer(text=ANSWER),
        principal=principal,
    )
    known = gold({("c", "hr-pay.v1.7"): "full", ("c", "news.v1.0"): "full"})
    return audit(asked, known, CORPUS)


def everything_written(result: Audited, corpus: EvidenceStore = CORPUS) -> str:
    redaction = Redaction(result, corpus, salt=b"salt")
    rows = [claim_row(result, claim, redaction) for claim in result.claims]
    rows += [citation_row(result, cited, redaction) for cited in result.citations]
    view = question_view(result, redaction, corpus, anchor="q1")
    return "".join(map(to_line, [*rows, stage_row(result, redaction)])) + json.dumps(view)


QUOTED = Citation("c", key("hr-pay.v1.7"), quote="paid 900", evidence_span=(13, 21))


def test_d25_nothing_of_it_is_written() -> None:
    """D25, F12: neither title nor address, text, quote or identity; that it happened is counted."""
    result = audited(QUOTED)
    written = everything_written(result)
    assert result.citations[0].status == "forbidden"
    for secret in ("hr-pay", "Board salaries", "intranet", "The board", "paid 900", "900."):
        assert secret not in written
    assert "restricted:" in written and "forbidden" in written and REDACTED in written


def test_d25_somebody_who_may_see_it_does() -> None:
    written = everything_written(audited(QUOTED, principal=("hr",)))
    assert "Board salaries" in written and "restricted:" not in written


def test_d25_another_source_makes_the_claim_speakable() -> None:
    """D25: strict invalid, covered by the permitted citation; the quote of the restricted one still is not shown."""
    result = audited(QUOTED, Citation("c", key("news.v1.0")))
    assert (result.claims[0].strict, result.claims[0].covered) == ("invalid_citation", True)
    redaction = Redaction(result, CORPUS, salt=b"salt")
    assert redaction.claim(result.claims[0]) == f"They are {REDACTED}."
    assert "Board" not in everything_written(result)


def test_the_rest_of_the_answer_stays() -> None:
    result = audited(QUOTED)
    assert Redaction(result, CORPUS, salt=b"salt").answer(result) == f"{REDACTED} Lima is far."


def test_a_card_made_from_restricted_text_is_restricted() -> None:
    card = Evidence(passage("card.v1.0", "pay 900"), kind="derived", parent=SECRET.key)
    corpus = store(SECRET, card)
    asked = trace({"c": ["card.v1.0"]}, packed=["card.v1.0"])
    assert "pay 900" not in everything_written(audit(asked, None, corpus), corpus)


@pytest.mark.parametrize("other", [b"other", salt_of(["x"])])
def test_digests_depend_on_the_salt(other: bytes) -> None:
    result = audited(QUOTED)
    shown = [Redaction(result, CORPUS, salt=salt).key(key("hr-pay.v1.7")) for salt in (b"salt", b"salt", other)]
    assert shown[0] == shown[1] != shown[2]


def test_the_salt_follows_from_the_restricted_texts_in_any_order() -> None:
    assert salt_of(["a", "b"]) == salt_of(["b", "a"]) != salt_of(["a"])
