"""Answers by quotation (CITATIONS DS3, DS4, D20, D22, E2-E4, R17-R25): what is quoted, and why sometimes nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragx.citations.answer_form import Checks, answer_object, check_answer, to_json, trace_of_answer
from ragx.citations.composer import Request, compose
from ragx.citations.documents import Document, Library
from ragx.errors import DataError
from ragx.jsonl import Row
from ragx.records import PassageKey

LINES = ["Port lodging on duty; sums in yuan a night.", "In force from 2026-01-01.", "At most 750 yuan are refunded."]
REQUEST = Request("q", "What is the lodging limit?", ("lodging",), "2026-09-14")
ABSTAINED = (
    '{"schema_version":"ka-answer-v1","status":"abstained","answer":null,"amount_yuan":null,"citations":[],'
    '"reason_code":"%s"}'
)


def document(source: str = "lodging", version: str = "v2", lines: list[str] | None = None, **given: Any) -> Document:
    text = lines or LINES
    values = {
        "source": source, "version": version, "chunk": "1-3", "title": "Lodging", "text": "\n".join(text),
        "start_line": 1, "end_line": len(text), "matter": "lodging", "card": "lodging limit", "publisher": "Finance",
        "valid_from": "2026-01-01", **given,
    }  # fmt: skip
    return Document.from_row(Row(Path("documents.jsonl"), 1, values))


V2 = document()
V1 = document(version="v1", lines=[LINES[0], "Until 2025-12-31.", "At most 600 yuan are refunded."],
              valid_from="2025-01-01", valid_to="2025-12-31")  # fmt: skip


def outcome(request: Request, *documents: Document) -> tuple[str, str | None]:
    trace = compose(request, Library(documents))
    return trace.answer.status, trace.answer.reason_code


def test_ds4_the_exact_lines_with_their_address() -> None:
    library = Library([V1, V2])
    trace = compose(REQUEST, library)
    answer = answer_object(trace, library)
    assert answer["answer"] == "\n".join(LINES) + " [lodging@v2:1-3]"
    assert (answer["status"], answer["amount_yuan"], answer["reason_code"]) == ("answered", 750, None)
    assert answer["citations"] == [
        {"source": "lodging", "version": "v2", "chunk": "1-3", "start_line": 1, "end_line": 3, "text": V2.text}
    ]
    assert trace.claims[0].text == trace.answer.text == V2.text
    assert [(c.key, c.ref, c.origin, c.quote) for c in trace.citations] == [(V2.key, 1, "extractive", V2.text)]


def test_d20_only_the_expired_version_is_an_abstention_letter_by_letter() -> None:
    library = Library([V1])
    trace = compose(REQUEST, library)
    assert to_json(answer_object(trace, library)) == ABSTAINED % "insufficient_evidence"
    assert [(row.key, row.reason) for row in trace.dropped] == [(V1.key, "expired")]


def test_r19_the_request_says_what_is_current() -> None:
    trace = compose(replace(REQUEST, as_of="2025-06-01"), Library([V1, V2]))
    assert [citation.key for citation in trace.citations] == [V1.key]
    assert [(row.key, row.reason) for row in trace.dropped] == [(V2.key, "not_yet_valid")]


def test_d20_versions_in_force_at_once_that_disagree() -> None:
    other = document("circular", "v3", [*LINES[:2], "At most 800 yuan are refunded."], card="lodging limit limit limit")
    trace = compose(REQUEST, Library([V2, other]))
    assert (trace.answer.status, trace.answer.reason_code) == ("abstained", "conflicting_evidence")
    assert {row.key for row in trace.packed} == {V2.key, other.key}
    assert trace.citations == ()


def test_r20_a_parallel_version_that_was_not_found_is_read_all_the_same() -> None:
    hidden = document("circular", "v3", [*LINES[:2], "At most 800 yuan are refunded."], card="something else")
    trace = compose(REQUEST, Library([V2, hidden]))
    assert trace.answer.reason_code == "conflicting_evidence"
    assert trace.extra_retrieval == (hidden.key,)
    agreeing = document("circular", "v3", ["出差住宿。", "2026-01-01 起。", "最多 750 元。"], card="something else")
    trace = compose(REQUEST, Library([V2, agreeing]))
    assert [citation.key for citation in trace.citations] == [V2.key] and len(trace.packed) == 2


def test_a_version_that_was_replaced_conflicts_with_nothing() -> None:
    old = document(version="v1", lines=[*LINES[:2], "At most 600 yuan are refunded."], valid_from="2025-01-01")
    assert outcome(REQUEST, old, V2) == ("abstained", "conflicting_evidence")
    assert outcome(REQUEST, old, document(supersedes="v1")) == ("answered", None)


def test_r17_a_line_leads_to_the_whole_it_belongs_to() -> None:
    line = document(chunk="3-3", lines=[LINES[2]], start_line=3, end_line=3, support_lines=[1, 3],
                    parent=list(V2.key), card="lodging limit refund")  # fmt: skip
    whole = document(card="nothing that is asked for")
    assert outcome(REQUEST, line) == ("abstained", "incomplete_source")
    trace = compose(REQUEST, Library([line, whole]))
    assert [citation.key for citation in trace.citations] == [whole.key]
    assert [(row.key, row.reason) for row in trace.dropped] == [(line.key, "incomplete")]


def test_e2_the_same_topic_without_the_number_is_no_evidence() -> None:
    silent = document(lines=[*LINES[:2], "Beds are refunded with a receipt."])
    assert outcome(REQUEST, silent) == ("abstained", "insufficient_evidence")
    assert outcome(replace(REQUEST, wants_amount=False), silent) == ("answered", None)


@pytest.mark.parametrize("changed", [{"matters": ("passport",)}, {"task": "order_status"}])
def test_f24_what_it_does_not_do(changed: dict[str, Any]) -> None:
    assert outcome(replace(REQUEST, **changed), V2) == ("abstained", "unsupported_task")


def test_f12_what_the_reader_may_not_see_is_not_quoted() -> None:
    secret = document(acl=["hr"])
    trace = compose(REQUEST, Library([secret]))
    assert trace.answer.reason_code == "insufficient_evidence"
    assert [row.reason for row in trace.dropped] == ["acl"]
    assert outcome(replace(REQUEST, principal=("hr",)), secret) == ("answered", None)


def test_f25_the_budget_is_checked_before_anything_is_composed() -> None:
    trace = compose(replace(REQUEST, window=250, reserve=200), Library([V2]))
    assert trace.answer.reason_code == "budget" and trace.packed == () and trace.budget is None
    assert [(row.key, row.reason) for row in trace.dropped] == [(V2.key, "over_budget")]
    fitting = compose(REQUEST, Library([V2])).budget
    assert fitting is not None and fitting.unit == "code_point"
    exact = fitting.window - fitting.remaining
    assert outcome(replace(REQUEST, window=exact), V2) == ("answered", None)
    assert outcome(replace(REQUEST, window=exact - 1), V2) == ("abstained", "budget")


def test_f2_two_are_found_and_one_fits() -> None:
    meals = document("meals", "v1", ["Meals at the port; sums in yuan.", "From 2026.", "At most 90 yuan."],
                     matter="meals", card="meals limit")  # fmt: skip
    both = replace(REQUEST, question="lodging limit and meals limit", matters=("lodging", "meals"))
    answered = compose(both, Library([V2, meals]))
    assert answered.claims[0].type == "cross_document"
    assert answered.answer.text == f"{V2.text}\n{meals.text}"
    assert {citation.key for citation in answered.citations} == {V2.key, meals.key}
    assert answered.budget is not None
    cut = compose(replace(both, window=answered.budget.window - answered.budget.remaining - 1), Library([V2, meals]))
    assert cut.answer.reason_code == "budget" and len(cut.packed) == 1
    assert [row.reason for row in cut.dropped] == ["over_budget"]


def proposal(text: str, amount: float, cited: Document) -> dict[str, Any]:
    citation = {**cited.key._asdict(), "start_line": 1, "end_line": 3, "text": cited.text}
    return {
        "schema_version": "ka-answer-v1", "status": "answered", "answer": text, "amount_yuan": amount,
        "citations": [citation], "reason_code": None,
    }  # fmt: skip


def test_d22_number_and_citation_are_checked_apart() -> None:
    library = Library([V1, V2])
    wrong_number = proposal("At most 600 yuan are refunded.", 600, V2)
    wrong_citation = proposal("At most 750 yuan are refunded.", 750, V1)
    right = proposal("At most 750 yuan are refunded. [lodging@v2:1-3]", 750, V2)
    assert check_answer(wrong_number, REQUEST, library) == Checks(True, exists=True, value=False, support=False)
    assert check_answer(wrong_citation, REQUEST, library) == Checks(True, exists=True, value=True, support=False)
    assert check_answer(right, REQUEST, library) == Checks(True, exists=True, value=True, support=True)
    paraphrase = proposal("You may spend 750 yuan.", 750, V2)
    assert check_answer(paraphrase, REQUEST, library) == Checks(True, exists=True, value=True, support=False)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"text": "At most 750 yuan"}, Checks(True, exists=False, value=True, support=False)),
        ({"end_line": 2}, Checks(True, exists=False, value=True, support=False)),
        ({"version": "v9"}, Checks(True, exists=False, value=True, support=False)),
    ],
)
def test_a_citation_must_give_the_lines_as_they_stand(change: dict[str, Any], expected: Checks) -> None:
    answer = proposal("At most 750 yuan are refunded.", 750, V2)
    answer["citations"][0].update(change)
    assert check_answer(answer, REQUEST, Library([V1, V2])) == expected


@pytest.mark.parametrize(
    "change",
    [{"schema_version": "v0"}, {"amount_yuan": True}, {"status": "abstained"}, {"reason_code": "budget"},
     {"answer": " "}, {"citations": [{}]}, {"citations": None}, {"extra": 1}],
)  # fmt: skip
def test_an_object_of_another_form_fails_every_check(change: dict[str, Any]) -> None:
    answer = {**proposal("At most 750 yuan are refunded.", 750, V2), **change}
    assert check_answer(answer, REQUEST, Library([V2])) == Checks(False, exists=False, value=False, support=False)


def test_abstaining_passes_the_gate_with_a_known_reason_only() -> None:
    library = Library([V2])
    assert check_answer(json.loads(ABSTAINED % "budget"), REQUEST, library).schema
    assert not check_answer(json.loads(ABSTAINED % "do not know"), REQUEST, library).schema


def test_a_proposed_answer_becomes_a_trace() -> None:
    trace = trace_of_answer(proposal("At most 750 yuan. [lodging@v1:1-3]", 750, V1), REQUEST)
    assert trace.answer.text == trace.claims[0].text == "At most 750 yuan."
    assert [citation.key for citation in trace.citations] == [PassageKey("lodging", "v1", "1-3")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"end_line": 2}, "documents.jsonl:1: end_line: must number the lines of text"),
        ({"matter": ""}, "documents.jsonl:1: matter: must be text that is not blank"),
        ({"support_lines": [1]}, r"documents.jsonl:1: support_lines: must be \[first, last\] line"),
    ],
)
def test_documents_that_cannot_be_read_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        document(**given)


def test_r21_scores_do_not_depend_on_what_applies() -> None:
    library = Library([V1, V2, document("meals", "v1", matter="meals", card="meals")])
    ranked = dict(library.rank("lodging", n=9))
    assert set(ranked) == {V1.key, V2.key} and ranked[V1.key] == ranked[V2.key]
    assert library.rank("nothing known", n=9) == []
