"""The reply of a chat model as a trace: what was retrieved, shown, said and cited (CITATIONS C1, C3).

    S           whole passages under one budget (`ragx.citations.packing`, joint), numbered from 1
    citations   the markers of the reply, [1] being the first passage that was shown
    answer      a short reply without its markers, so that it can be compared with accepted answers; a long one as it is

One decision: a chat model says nothing about p(z|x,y), so no posterior is made up. A citation is what it wrote, and
whether the passage supports the claim is for a judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragx.citations.claims import SPLITTER, SPLITTER_VERSION, split_claims
from ragx.citations.from_predictions import inline_citations, is_long
from ragx.citations.packing import Selection
from ragx.citations.trace_records import Answer, Candidate, Claim, Trace
from ragx.records import Example, Passage


def trace_of_reply(
    example: Example,
    answer: Answer,
    *,
    candidates: Sequence[tuple[Passage, float]],
    selection: Selection,
    principal: tuple[str, ...] = ("public",),
    model: Mapping[str, Any],
    decode: Mapping[str, Any],
) -> Trace:
    """The trace of one question.

    Args:
        answer: the reply with its markers, or why there is none.
        candidates: what was retrieved, best first, with its scores; empty for closed book.
        selection: which of them the prompt holds.
        principal: who asks, see `Trace`.
        model, decode: what to record of both; the splitter is added to `decode`.
    """
    shown = {passage.key: passage for passage, _ in candidates}
    sentences = split_claims(answer.text, n_refs=len(selection.packed)) if answer.status == "answered" else []
    long = bool(sentences) and is_long(answer.text, sentences)
    said = answer if long or not sentences else replace(answer, text=sentences[0].text)
    claims = [
        Claim(f"{example.id}.c{i}", s.text, s.span if long else (0, len(s.text)), worthy=s.worthy)
        for i, s in enumerate(sentences, start=1)
    ]
    marked = [(claim, marker) for claim, s in zip(claims, sentences, strict=True) for marker in s.markers]
    found = [citation for claim, marker in marked for citation in inline_citations(claim, marker)]
    splitter = {"claims": "sentences" if long else "answer", "splitter": SPLITTER, "splitter_version": SPLITTER_VERSION}
    return Trace(
        qid=example.id,
        question=example.query,
        answer=said,
        retrieved=tuple(
            Candidate(rank, passage.key, score) for rank, (passage, score) in enumerate(candidates, start=1)
        ),
        packed=tuple(
            row._replace(visible=(0, len(shown[row.key].text)), sha256=shown[row.key].sha256)
            for row in selection.packed
        ),
        dropped=selection.dropped,
        budget=selection.budget,
        claims=tuple(claims),
        citations=tuple(found),
        as_of=example.as_of,
        principal=principal,
        task="qa_long" if long else "qa_short",
        model=dict(model),
        decode={**decode, **splitter},
    )
