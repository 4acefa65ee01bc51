"""Zero-shot RAG: the passages of our retriever, read by a chat model that was not trained for it; traces for the audit.

    retrieve  ->  pack under one budget  ->  ask (or find the reply of an earlier run)  ->  trace

One decision: what comes out is a trace of the same form as for our own models, so that `audit_citations.py` scores and
shows both alike. There is no log p(y|x): an endpoint does not say what it would give another answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import torch
from tqdm import tqdm

from ragx.chat.endpoint import ChatEndpoint
from ragx.chat.prompt import UNKNOWN, Message, PromptSettings, messages
from ragx.chat.replies import Replies, Reply
from ragx.citations.from_reply import trace_of_reply
from ragx.citations.trace_records import Answer, Trace
from ragx.protocols import Retriever
from ragx.records import Example, Passage
from ragx.retriever.query_encoder import QueryEncoder

Candidates = list[tuple[Passage, float]]


def candidates(
    retriever: Retriever | None,
    examples: Sequence[Example],
    n_docs: int,
    *,
    query_encoder: QueryEncoder | None = None,
    batch_size: int = 64,
) -> list[Candidates]:
    """The `n_docs` best passages of each question with their scores; none without a retriever."""
    if retriever is None:
        return [[] for _ in examples]
    found: list[Candidates] = []
    for start in tqdm(range(0, len(examples), batch_size), desc="retrieving", disable=None):
        queries = [example.query for example in examples[start : start + batch_size]]
        with torch.inference_mode():
            embeds = None if query_encoder is None else query_encoder.embed(queries)
        retrieved = retriever.retrieve(queries, n_docs, query_embeds=embeds)
        for passages, scores in zip(retrieved.passages, retrieved.doc_scores.tolist(), strict=True):
            found.append(list(zip(passages, scores, strict=True)))
    return found


def answer(
    endpoint: ChatEndpoint,
    examples: Sequence[Example],
    found: Sequence[Candidates],
    *,
    prompt: PromptSettings,
    replies: Replies,
    concurrency: int = 4,
    principal: tuple[str, ...] = ("public",),
    provenance: dict[str, Any] | None = None,
) -> Iterator[Trace]:
    """One trace a question, in order; requests run `concurrency` at a time and each reply is kept as it comes.

    Args:
        found: what `candidates` returned for `examples`.
        principal: who asks.
        provenance: what to record of the retriever, such as its fingerprint.

    Raises:
        RagxError: a question that the endpoint does not answer; replies that came are kept.
    """
    prompts = [messages(e.query, [p for p, _ in c], settings=prompt) for e, c in zip(examples, found, strict=True)]
    recorded = {"kind": "chat", "id": endpoint.settings.model, **(provenance or {})}
    settings = endpoint.settings
    decode = {"decoder": "chat", **settings.sampling, **settings.extra, "prompt": asdict(prompt)}
    pool = ThreadPoolExecutor(max_workers=concurrency)
    try:
        said = pool.map(lambda item: _reply(endpoint, item[0], replies), prompts)
        rows = zip(examples, found, prompts, said, strict=True)
        for example, retrieved, (_, selection), reply in tqdm(rows, total=len(examples), desc="asking", disable=None):
            yield trace_of_reply(
                example,
                outcome(reply),
                candidates=retrieved,
                selection=selection,
                principal=principal,
                model={**recorded, "answered_by": reply.model, "finish": reply.finish},
                decode=decode,
            )
    finally:
        pool.shutdown(cancel_futures=True)


def _reply(endpoint: ChatEndpoint, prompt: Sequence[Message], replies: Replies) -> Reply:
    request = endpoint.request(prompt)
    reply = replies.get(request)
    if reply is None:
        reply = endpoint.ask(prompt)
        replies.add(request, reply)
    return reply


def outcome(reply: Reply) -> Answer:
    """What a reply amounts to: an answer, no answer by the rule of the prompt, a refusal, or a technical failure."""
    text = reply.text.strip()
    if reply.finish == "content_filter":
        return Answer("refused", "", "content_filter")
    if not text:
        return Answer("error", "", "empty_reply")
    if text.upper().lstrip("\"'`*( ").startswith(UNKNOWN):
        return Answer("abstained", "", "insufficient_evidence")
    return Answer("answered", text)
