"""A chat endpoint as generator: same passages, trace and audit; nothing is asked twice, no key is written down."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragx.chat.endpoint import ChatEndpoint, ChatSettings
from ragx.chat.prompt import UNKNOWN, PromptSettings
from ragx.chat.replies import Replies, Reply
from ragx.chat.zero_shot import answer, candidates, outcome
from ragx.citations.trace_file import read_traces, write_traces
from ragx.citations.trace_records import Trace
from ragx.errors import ConfigError, DataError, RagxError
from ragx.records import Example
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.query_encoder import QueryEncoder
from tests.chat.conftest import StandIn, completion
from tests.scripts import run_script

EXAMPLES = [Example("q1", "What is the capital of Peru?", ("Lima",)), Example("q2", "Who led Ghana?", ("John Mahama",))]


def settings(stand_in: StandIn, **changes: Any) -> ChatSettings:
    return replace(ChatSettings(base_url=stand_in.url, model="stand-in", max_retries=1, timeout=5.0), **changes)


def run(
    stand_in: StandIn, folder: Path, *, retriever: DenseRetriever | None, encoder: QueryEncoder, **changes: Any
) -> list[Trace]:
    found = candidates(retriever, EXAMPLES, 3, query_encoder=encoder if retriever else None)
    endpoint = ChatEndpoint(settings(stand_in, **changes))
    replies = Replies(folder / "replies.jsonl")
    return list(answer(endpoint, EXAMPLES, found, prompt=PromptSettings(), replies=replies, concurrency=2))


@pytest.fixture
def ask(stand_in: StandIn, tmp_path: Path, retriever: DenseRetriever, query_encoder: QueryEncoder) -> Any:
    return lambda **changes: run(stand_in, tmp_path, retriever=retriever, encoder=query_encoder, **changes)


def test_what_the_retriever_found_is_what_the_model_reads_and_the_trace_holds(
    ask: Any, stand_in: StandIn, retriever: DenseRetriever, query_encoder: QueryEncoder, tmp_path: Path
) -> None:
    traces = ask(extra={"top_k": 1})
    expected = candidates(retriever, EXAMPLES, 3, query_encoder=query_encoder)
    for trace, found, example in zip(traces, expected, EXAMPLES, strict=True):
        assert [(row.key, row.score) for row in trace.retrieved] == [(p.key, s) for p, s in found]
        shown = "".join(f"[{i}] {p.title}\n{p.text}\n\n" for i, (p, _) in enumerate(found, start=1))
        assert f"{shown}Question: {example.query}" in stand_in.prompts()
        assert [row.sha256 for row in trace.packed] == [p.sha256 for p, _ in found]
    sent = stand_in.requests[0]
    assert (sent["path"], sent["model"], sent["temperature"], sent["top_k"]) == (
        "/v1/chat/completions", "stand-in", 0.0, 1,
    )  # fmt: skip
    assert traces[0].model["answered_by"] == "stand-in-1b"
    write_traces(tmp_path / "traces.jsonl", traces)
    assert list(read_traces(tmp_path / "traces.jsonl")) == traces


def test_a_short_reply_is_one_claim_without_its_markers_and_a_long_one_a_claim_a_sentence(
    ask: Any, stand_in: StandIn
) -> None:
    said = {"Peru": "Lima [2][9]", "Ghana": "Accra is there [1]. John Mahama led it [2]."}
    stand_in.reply = lambda request: completion(
        next(text for name, text in said.items() if f"of {name}?" in str(request) or f"led {name}?" in str(request))
    )
    short, long = ask()
    assert (short.answer.text, short.task) == ("Lima", "qa_short")
    assert [(c.text, c.span) for c in short.claims] == [("Lima", (0, 4))]
    assert [(c.ref, c.origin, c.note) for c in short.citations] == [(2, "inline", None), (9, "inline", "out_of_range")]
    assert (long.answer.text, long.task) == (said["Ghana"], "qa_long")
    assert [(c.claim_id, c.text) for c in long.claims] == [
        ("q2.c1", "Accra is there."), ("q2.c2", "John Mahama led it."),
    ]  # fmt: skip
    assert [(c.claim_id, c.ref) for c in long.citations] == [("q2.c1", 1), ("q2.c2", 2)]
    assert long.citations[0].posterior is None


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        (completion(f"{UNKNOWN.lower()}."), "abstained", "insufficient_evidence"),
        (completion(None, finish="content_filter"), "refused", "content_filter"),
        (completion("  "), "error", "empty_reply"),
    ],
)
def test_no_answer_has_three_forms(
    ask: Any, stand_in: StandIn, reply: tuple[int, dict[str, Any]], status: str, reason: str
) -> None:
    stand_in.reply = lambda request: reply
    for trace in ask():
        assert (trace.answer.status, trace.answer.text, trace.answer.reason_code) == (status, "", reason)
        assert trace.claims == () and trace.citations == ()


def test_an_answer_that_mentions_the_passages_is_an_answer() -> None:
    assert outcome(Reply("It is not in the passages of Lima [1]", "stop", "m")).status == "answered"


def test_without_a_retriever_it_is_closed_book(stand_in: StandIn, query_encoder: QueryEncoder, tmp_path: Path) -> None:
    traces = run(stand_in, tmp_path, retriever=None, encoder=query_encoder)
    assert sorted(stand_in.prompts()) == sorted(f"Question: {example.query}" for example in EXAMPLES)
    assert all(trace.retrieved == () and trace.packed == () for trace in traces)
    assert [c.note for t in traces for c in t.citations] == ["out_of_range"] * 2  # [1] of nothing


def test_a_reply_is_asked_for_once_and_a_changed_request_anew(ask: Any, stand_in: StandIn, tmp_path: Path) -> None:
    first = ask()
    assert len(stand_in.requests) == 2
    assert ask() == first and len(stand_in.requests) == 2
    ask(temperature=0.5)
    assert len(stand_in.requests) == 4
    lines = (tmp_path / "replies.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "replies.jsonl").write_bytes(b"".join([lines[0], lines[1], lines[2][: len(lines[2]) // 2]]))
    assert ask() == first and len(stand_in.requests) == 4
    ask(temperature=0.5)  # one reply was torn by a kill, one lost
    assert len(stand_in.requests) == 6
    assert len(Replies(tmp_path / "replies.jsonl")) == 4  # nothing was glued to the torn line


def test_what_came_before_a_failure_is_kept(ask: Any, stand_in: StandIn) -> None:
    stand_in.reply = lambda request: (
        completion("Lima [1]") if "Peru?" in str(request) else (404, {"error": {"message": "no such model"}})
    )
    with pytest.raises(RagxError, match=r"must answer a request for 'stand-in', got NotFoundError.*no such model"):
        ask()
    stand_in.reply = lambda request: completion("Mahama [1]")
    assert [trace.answer.text for trace in ask()] == ["Lima", "Mahama"]


def test_a_failure_that_passes_is_tried_again(ask: Any, stand_in: StandIn) -> None:
    failed: list[int] = []

    def once(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        failed.append(1)
        return (503, {"error": {"message": "busy"}}) if len(failed) == 1 else completion("Lima [1]")

    stand_in.reply = once
    assert len(ask()) == 2 and len(failed) == 3


def test_the_key_comes_from_the_environment_and_is_written_nowhere(
    ask: Any, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-123")
    traces = ask(api_key_env="MY_KEY")
    assert stand_in.keys == ["Bearer secret-123"] * 2
    write_traces(tmp_path / "traces.jsonl", traces)
    written = "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    assert "Lima" in written and "secret-123" not in written


def test_a_line_of_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "replies.jsonl").write_text('{"request": "x", "reply": "Lima"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"replies.jsonl:1: reply: must hold text, finish, model and usage, got 'Lima'"):
        Replies(tmp_path / "replies.jsonl")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=r"openai must be installed.*pip install 'ragx\[api\]'"):
        ChatEndpoint(ChatSettings("http://127.0.0.1:9/v1", "m"))


def test_the_script_writes_traces_that_the_audit_scores(
    stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BM25 over three passages; the stand-in quotes the first passage's capital, so one of two answers is right."""
    texts = {"Peru": "Capital Lima.", "Chile": "Capital Santiago.", "Ghana": "Capital Accra."}
    passages = [{"id": title, "title": title, "text": text} for title, text in texts.items()]
    asked = [{"id": "a", "question": "Peru?", "answers": ["Lima"]}, {"id": "b", "question": "Chile?", "answers": ["X"]}]
    for name, rows in (("passages", passages), ("questions", asked)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    stand_in.reply = lambda request: completion(request["messages"][-1]["content"].split()[3].rstrip(".") + " [1]")
    here = ["index.directory=index", "retriever=bm25", "index=bm25", "data.passages=passages.jsonl"]
    endpoint = [f"endpoint.base_url={stand_in.url}", "endpoint.model=stand-in"]
    assert run_script("build_index", *here, folder=tmp_path) == 0
    asking = [*here, *endpoint, "data.questions=questions.jsonl", "n_docs=2", "output=traces.jsonl"]
    assert run_script("chat", *asking, folder=tmp_path) == 0
    assert "{'answered': 2}" in capsys.readouterr().out
    audit = ["predictions=traces.jsonl", "corpus=[passages.jsonl]", "gold=questions.jsonl", "output=audit"]
    assert run_script("audit_citations", *audit, folder=tmp_path) == 0
    metrics = json.loads((tmp_path / "audit" / "summary.json").read_text(encoding="utf-8"))["metrics"]
    found = {name: figure["value"] for section in metrics.values() for name, figure in section.items()}
    assert (found["exact_match"], found["resolvable_rate"], found["coverage_any"]) == (0.5, 1.0, 1.0)


def test_the_script_names_an_endpoint_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openai", reason="needs the extra `api`")
    (tmp_path / "q.jsonl").write_text('{"question": "Who?"}\n', encoding="utf-8")
    asking = ["endpoint.base_url=http://127.0.0.1:9/v1", "endpoint.model=m", "endpoint.max_retries=0", "n_docs=0",
              "data.questions=q.jsonl"]  # fmt: skip
    assert run_script("chat", *asking, folder=tmp_path) == 2
    error = capsys.readouterr().err
    assert "http://127.0.0.1:9/v1 must answer a request for 'm', got APIConnectionError" in error
    assert "Check endpoint.base_url" in error and "Traceback" not in error
