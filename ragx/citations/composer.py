"""An answer without a generator: the exact lines of what applies, or an abstention and why.

    find by card -> filter by matter, date, reader -> parallel versions -> pack whole -> quote

    unsupported_task         the matter is none of the library's, or the task is not to quote a rule
    insufficient_evidence    nothing found applies on the date asked about, or it names no amount where one is asked for
    incomplete_source        what was found lacks lines that belong to it: place, unit, date
    budget                   the documents needed do not fit the input together
    conflicting_evidence     documents in force at once state different amounts

One decision: nothing is settled by a score. The first hit that applies is quoted, and every other document in force on
the same matter is read beside it, also one the search did not find; where they disagree there is no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragx.citations.documents import Document, Library
from ragx.citations.packing import Selection, select_context, serialised_cost
from ragx.citations.trace_records import Answer, Candidate, Citation, Claim, Dropped, Trace
from ragx.records import PassageKey

TASK = "quote_rule"
MODEL = {"kind": "extractive", "id": "local-extractive-v1"}
REASONS = ("unsupported_task", "insufficient_evidence", "incomplete_source", "budget", "conflicting_evidence")
Found = Sequence[tuple[PassageKey, float]]


@dataclass(frozen=True, slots=True)
class Request:
    """A question with everything that decides what applies; nothing is guessed from its words.

    Attributes:
        qid, question: its name and wording.
        matters: what it needs a document on, each.
        as_of: ISO date it is asked about; the clock is never asked.
        wants_amount: whether an answer must state a sum of money.
        principal: who asks.
        task: anything but `quote_rule` is unsupported.
        category: for tables.
        window, reserve: code points of the input and, of them, for the output.
    """

    qid: str
    question: str
    matters: tuple[str, ...]
    as_of: str
    wants_amount: bool = True
    principal: tuple[str, ...] = ("public",)
    task: str = TASK
    category: str = ""
    window: int = 1400
    reserve: int = 200


def compose(request: Request, library: Library, *, n_candidates: int = 10) -> Trace:
    """Answers or abstains, and records every stage: retrieved, packed with what was dropped and why, cited."""
    found = library.rank(request.question, n=n_candidates)
    if request.task != TASK or not set(request.matters) <= library.matters:
        return _abstained(request, library, found, "unsupported_task")
    quoted: list[Document] = []
    beside: list[Document] = []
    for matter in request.matters:
        document, reason = _quotable(request, library, found, matter)
        if document is None:
            return _abstained(request, library, found, reason)
        quoted.append(document)
        in_force = library.in_force(matter, as_of=request.as_of, principal=request.principal)
        beside += [other for other in in_force if other.key != document.key]
    needed = {document.key: document for document in [*quoted, *beside]}
    selection = _pack(request, list(needed.values()))
    if selection is None or len(selection.packed) < len(needed):
        return _abstained(request, library, found, "budget", selection, needed)
    if any(_disagree(one, other) for one in quoted for other in beside if one.matter == other.matter):
        return _abstained(request, library, found, "conflicting_evidence", selection, needed)
    return _answered(_trace(request, library, found, selection, needed), quoted)


def _quotable(request: Request, library: Library, found: Found, matter: str) -> tuple[Document | None, str]:
    """The first hit on a matter that applies, whole; or why there is none."""
    hits = [library[key] for key, _ in found if library[key].matter == matter]
    hits = [hit for hit in hits if library.applies(hit, as_of=request.as_of, principal=request.principal)]
    if not hits:
        return None, "insufficient_evidence"
    document = library.get(hits[0].evidence.parent) or hits[0]
    if not document.complete:
        return None, "incomplete_source"
    if request.wants_amount and not document.amounts():
        return None, "insufficient_evidence"
    return document, ""


def _disagree(one: Document, other: Document) -> bool:
    """Whether two documents state different amounts; one that states none disagrees with nobody."""
    stated, others = one.amounts(), other.amounts()
    return bool(stated and others and stated != others)


def serialise(ref: int, document: Document) -> str:
    """A document as the input holds it: number, address, exact lines."""
    return f"[{ref}] {document.evidence.passage.title} ({address(document)})\n{document.text}\n"


def address(document: Document) -> str:
    """Where the lines stand, for people: source@version:first-last; identity is the key, never this."""
    first, last = document.lines
    return f"{document.key.source}@{document.key.version}:{first}-{last}"


def fixed_part(request: Request) -> str:
    """What every input holds beside the documents."""
    return f"Question: {request.question}\nAs of: {request.as_of}\n"


def _pack(request: Request, documents: Sequence[Document]) -> Selection | None:
    """Whole documents in order, in code points; None where the question alone fills the input."""
    fixed = len(fixed_part(request))
    if request.window - fixed - request.reserve < 0:
        return None
    chunks = serialised_cost(serialise, [(document.key, document) for document in documents])
    return select_context(chunks, window=request.window, fixed=fixed, reserve=request.reserve, unit="code_point")


def _trace(
    request: Request, library: Library, found: Found, selection: Selection | None, needed: dict[PassageKey, Document]
) -> Trace:
    """The record of the stages before an answer."""
    found_keys = [key for key, _ in found]
    packed = selection.packed if selection else ()
    dropped = selection.dropped if selection else tuple(Dropped(key, "pack", "over_budget") for key in needed)
    explained = {row.key for row in packed} | {row.key for row in dropped}
    left = [Dropped(key, "filter", _why(request, library, key)) for key in found_keys if key not in explained]
    return Trace(
        qid=request.qid,
        question=request.question,
        answer=Answer(),
        retrieved=tuple(Candidate(rank, key, score) for rank, (key, score) in enumerate(found, start=1)),
        packed=tuple(
            row._replace(visible=(0, len(library[row.key].text)), sha256=library[row.key].evidence.passage.sha256)
            for row in packed
        ),
        dropped=(*dropped, *left),
        budget=selection.budget if selection else None,
        extra_retrieval=tuple(key for key in needed if key not in found_keys),
        as_of=request.as_of,
        principal=request.principal,
        task=request.task,
        category=request.category,
        model=MODEL,
    )


def _why(request: Request, library: Library, key: PassageKey) -> str:
    """Why a document that was found is not packed."""
    document = library[key]
    if not document.evidence.visible_to(request.principal):
        return "acl"
    if document.matter not in request.matters:
        return "out_of_scope"
    currency = library.store.currency(document.evidence, request.as_of)
    if currency != "current":
        return "expired" if currency == "stale" else currency
    return "not_needed" if document.complete else "incomplete"


def _abstained(
    request: Request,
    library: Library,
    found: Found,
    reason: str,
    selection: Selection | None = None,
    needed: dict[PassageKey, Document] | None = None,
) -> Trace:
    trace = _trace(request, library, found, selection, needed or {})
    return replace(trace, answer=Answer("abstained", "", reason))


def _answered(trace: Trace, quoted: Sequence[Document]) -> Trace:
    """The quoted lines as one claim that stands or falls together, each document cited for it."""
    text = "\n".join(document.text for document in quoted)
    kind = "simple" if len(quoted) == 1 else "cross_document"
    claim = Claim(f"{trace.qid}.c1", text, (0, len(text)), type=kind)
    refs = {row.key: row.ref for row in trace.packed}
    citations = [
        Citation(
            claim.claim_id,
            document.key,
            ref=refs[document.key],
            origin="extractive",
            evidence_span=(0, len(document.text)),
            quote=document.text,
        )
        for document in quoted
    ]
    return replace(trace, answer=Answer("answered", text), claims=(claim,), citations=tuple(citations))
