"""Short ways to write a question down and audit it; keys read "A.v1.a"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragx.citations.audit import Audited, audit_trace
from ragx.citations.evidence import Evidence, EvidenceStore
from ragx.citations.gold import QUESTION, Gold
from ragx.citations.judging import Support
from ragx.citations.trace_records import Answer, Candidate, Citation, Claim, Packed, Trace
from ragx.records import Passage, PassageKey


def key(name: str) -> PassageKey:
    """The identity that "A.v1.a" stands for."""
    return PassageKey(*name.split("."))


def passage(name: str, text: str = "", **fields: Any) -> Passage:
    """A passage of that identity; its text is its name unless given."""
    return Passage(*name.split("."), title=fields.pop("title", f"Title of {name}"), text=text or name, **fields)


def store(*items: Passage | Evidence | str) -> EvidenceStore:
    """A corpus."""
    return EvidenceStore(passage(item) if isinstance(item, str) else item for item in items)


def trace(
    cited: Mapping[str, Sequence[Any]] | None = None,
    *,
    packed: Sequence[str] = (),
    retrieved: Sequence[str] | None = None,
    **fields: Any,
) -> Trace:
    """A question whose claims cite passages, given as {claim id: names, or citations}.

    Args:
        packed: S; the priors are equal.
        retrieved: C; as S by default.
    """
    cited = cited or {}
    found = packed if retrieved is None else retrieved
    claims = fields.pop("claims", None)
    if claims is None:
        claims = tuple(Claim(name, f"text of {name}") for name in cited)
    citations = [
        item if isinstance(item, Citation) else Citation(name, key(item)) for name in cited for item in cited[name]
    ]
    return Trace(
        qid=fields.pop("qid", "q"),
        question=fields.pop("question", "What is it?"),
        answer=fields.pop("answer", Answer(text="An answer.")),
        retrieved=tuple(Candidate(rank, key(name), 10.0 - rank) for rank, name in enumerate(found, 1)),
        packed=fields.pop("packed_rows", None)
        or tuple(Packed(pos, pos, key(name), prior=1 / len(packed)) for pos, name in enumerate(packed, 1)),
        claims=claims,
        citations=tuple(citations),
        **fields,
    )


def gold(
    labels: Mapping[tuple[str, str], str] | None = None, *, groups: Any = (), qid: str = "q", **fields: Any
) -> Gold:
    """Labels as {(claim id, name): label}; groups as names, for the question or {claim id: ...}."""
    by_claim = groups if isinstance(groups, Mapping) else {QUESTION: groups} if groups else {}
    return Gold(
        qid=qid,
        labels={(claim, key(name)): label for (claim, name), label in (labels or {}).items()},
        groups={claim: tuple(frozenset(map(key, names)) for names in sets) for claim, sets in by_claim.items()},
        **fields,
    )


def audit(
    asked: Trace, known: Gold | None = None, corpus: EvidenceStore | None = None, *, judge: Any = None, **options: Any
) -> Audited:
    """The audit of one question; by default the corpus holds what was retrieved and packed."""
    if corpus is None:
        names = dict.fromkeys([*(row.key for row in asked.retrieved), *(row.key for row in asked.packed)])
        corpus = EvidenceStore(Passage(*name, title="", text=".".join(name)) for name in names)
    correct = options.get("correct")
    support = Support(asked, known, corpus, judge=judge, correct=correct, cache={})
    return audit_trace(asked, known, corpus, support, **options)
