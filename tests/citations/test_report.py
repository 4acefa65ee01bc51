"""The page for readers: escaped, static, spans and heat map in place (CITATIONS C6, E8)."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from ragx.citations.redaction import Redaction
from ragx.citations.report import opening, render_html, render_markdown, tone
from ragx.citations.report_views import question_view
from ragx.citations.trace_records import Answer, Citation, Claim, Packed, TokenScores, Trace
from tests.citations.cases import audit, gold, key, passage, store, trace

A, B = "A.v1.a", "B.v1.b"
EVIL = '<script>alert("x")</script> & <b>'
CORPUS = store(passage(A, f"Before {EVIL} after.", title=EVIL), passage(B, "Another text."))


def figure(value: float | None) -> dict[str, Any]:
    return {"value": value, "n": 1, "n_null": 0, "ci95": None if value is None else [value, value]}


SUMMARY: dict[str, Any] = {
    "n_questions": 2,
    "n_claims": 2,
    "n_citations": 3,
    "metrics": {"support": {"coverage_any": figure(0.5), "alce_recall": figure(None)}},
    "meaning": {"coverage_any": "claims with one valid citation that fully supports them, of those judged"},
    "counts": {"claim_status": {"supported": 1, "unsupported": 1}, "citation_status": {"full": 2, "stale": 1}},
    "posterior": {"auroc": None, "expected_calibration_error": None, "n": 0},
    "abstention": {"answerable_answered": 2, "f1_answered": 1.0, "f1_abstained": None},
    "by": {"model": {EVIL: {"n_questions": 2, "coverage_any": figure(0.5)}}},
    "warnings": ["One thing."],
    "gates": [{"name": "coverage_any", "kind": "at least", "bound": 0.8, "found": None, "passed": False}],
}


def asked(kind: str = "rag_token", **fields: Any) -> Trace:
    """Two tokens, the first of one passage, the second of the other."""
    rows = (Packed(1, 1, key(A), prior=0.6, visible=(0, 20), truncated=True), Packed(2, 2, key(B), prior=0.4))
    logs = tuple(tuple(map(math.log, row)) for row in ((0.9, 0.1), (0.2, 0.8)))
    fields.setdefault("claims", (Claim("c", "Sun rises", (0, 9)),))
    return trace(
        {"c": [Citation("c", key(A), evidence_span=(7, 15), posterior=0.9, delta=0.5, origin="posterior")]},
        packed=[A, B],
        packed_rows=rows,
        answer=Answer(text="Sun rises"),
        question=f"What {EVIL}?",
        model={"kind": kind},
        attribution=TokenScores("complete", (math.log(0.6), math.log(0.4)), logs, ((0, 3), (4, 9))),
        **fields,
    )


def page(question: Trace) -> str:
    result = audit(question, gold({("c", A): "full"}), CORPUS)
    view = question_view(result, Redaction(result, CORPUS, salt=b""), CORPUS, anchor="q1")
    return render_html(SUMMARY, [view], headline=["coverage_any"])


class Seen(HTMLParser):
    """Tags, ids and targets of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.marked = ""
        self._in_mark = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._in_mark = tag == "mark"
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.targets.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        self._in_mark = False

    def handle_data(self, data: str) -> None:
        if self._in_mark:
            self.marked += data


def test_the_page_is_static_and_everything_is_escaped() -> None:
    """F28, R30: what was retrieved is data; nothing runs and nothing is loaded."""
    text = page(asked())
    seen = Seen(text)
    assert not {"script", "img", "link", "iframe", "object", "b"} & set(seen.tags)
    assert "http" not in re.sub(r'http-equiv="Content-Security-Policy"', "", text)
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert 'name="viewport"' in text and "@media print" in text


def test_a_citation_opens_the_exact_span() -> None:
    """R29, DS1, A4.2: each number leads to its passage, where the cited code points are marked."""
    seen = Seen(page(asked()))
    assert "#q1-p1" in seen.targets and set(t[1:] for t in seen.targets) <= set(seen.ids)
    assert seen.marked == EVIL[:8]
    assert len(seen.ids) == len(set(seen.ids))


def test_what_was_not_read_is_shown_as_such() -> None:
    assert 'title="not read by the generator"' in page(asked())


@pytest.mark.parametrize(
    ("kind", "cells"),
    [("rag_token", [["87", "16"], ["13", "84"]]), ("rag_sequence", [["87", "46"], ["13", "54"]])],
)
def test_e8_heat_map(kind: str, cells: list[list[str]]) -> None:
    """E8, figure 2: token by token for RAG-Token, all tokens so far for RAG-Sequence; percent in the cell."""
    table = re.search(r'<table class="heat">.*?</table>', page(asked(kind)), re.DOTALL)
    assert table is not None
    rows = re.findall(r"<tr>.*?</tr>", table[0], re.DOTALL)[1:]
    assert [re.findall(r'rgba[^"]*">(\d+)<', row) for row in rows] == cells
    assert "<th>Sun</th><th>rises</th>" in table[0]


def test_the_answer_stands_with_its_claims_in_place() -> None:
    claims = (Claim("c", "Sun", (0, 3)), Claim("d", "rises", (4, 9)))
    result = audit(asked(claims=claims), None, CORPUS)
    view = question_view(result, Redaction(result, CORPUS, salt=b""), CORPUS, anchor="q1")
    assert [piece["text"] for piece in view["segments"]] == ["Sun", " ", "rises"]


def test_claims_without_a_place_leave_the_answer_whole() -> None:
    result = audit(asked(claims=(Claim("c", "Sun"),)), None, CORPUS)
    view = question_view(result, Redaction(result, CORPUS, salt=b""), CORPUS, anchor="q1")
    assert [(piece["text"], piece["claim"]) for piece in view["segments"]] == [("Sun rises", None)]


def test_the_result_in_two_sentences() -> None:
    assert opening(SUMMARY) == (
        "2 questions, 2 claims, 3 citations. Of 2 judged claims, 1 is supported by what they cite; 0 could not be "
        "judged; 1 citation cannot be used at all."
    )


def test_the_tables_as_text() -> None:
    text = render_markdown(SUMMARY)
    assert "| coverage_any | 0.500 | 0.500 to 0.500 | 1 | 0 |" in text
    assert "Gate coverage_any at least 0.8: none, FAILED" in text and "Note: One thing." in text
    assert "Without a value: alce_recall." in text


def test_a_figure_without_a_value_is_not_a_zero() -> None:
    """F19: none is not 0 and not 1."""
    summary = {**SUMMARY, "metrics": {"support": {"coverage_any": figure(None)}}}
    text = render_html(summary, [], headline=["coverage_any"])
    assert '<span class="soft">none</span>' in text


@pytest.mark.parametrize(("status", "color"), [("supported", "good"), ("not_judged", "open"), ("stale", "bad")])
def test_colors(status: str, color: str) -> None:
    assert tone(status) == color
