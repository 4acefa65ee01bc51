"""What makes a ragx-trace-v1 line readable: refused here with its field, or audited.

One decision: only what would make figures wrong without a trace is refused: a field of the wrong kind, a number that is
not finite, priors that do not sum to 1, a claim outside the answer. Citations that are wrong are findings, not errors.
The place of a fault is put together on the way out, so that a line without faults pays nothing for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ragx.dates import is_date
from ragx.jsonl import Row

SCHEMA = "ragx-trace-v1"
STATUSES = ("answered", "abstained", "refused", "error")
ORIGINS = ("posterior", "inline", "posthoc", "extractive", "external")
PRIOR_TOLERANCE = 1e-4
REQUIRED = ("schema", "qid", "question", "C", "S", "answer", "claims", "citations")
TOKEN_STATUSES = ("complete", "incomplete", "offsets_unreliable")

Check = Callable[[Any], object]


class _Optional(NamedTuple):
    """A field that may be null, and the check of what it is otherwise."""

    check: Check


Fields = Mapping[str, Check | _Optional]


class Fault(Exception):
    """What is wrong, and where within the value that was checked."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.message, self.place = message, place

    def inside(self, name: str) -> Fault:
        """The same fault seen from the value around it."""
        separator = "." if self.place and not self.place.startswith("[") else ""
        return Fault(self.message, f"{name}{separator}{self.place}")


def check_trace(row: Row) -> None:
    """Refuses a line that is no trace.

    Raises:
        DataError: naming file, line and field.
    """
    try:
        _check(row.values)
    except Fault as fault:
        row.fail(fault.place, fault.message)


def _check(values: Mapping[str, Any]) -> None:
    if values.get("schema") != SCHEMA:
        got = values.get("schema")
        raise Fault(f"must be {SCHEMA!r}, got {got!r}. Write the file again with this version", "schema")
    _TRACE_CHECK(values)
    _check_priors(values["S"])
    length = len(values["answer"].get("text", ""))
    ids: set[str] = set()
    for i, claim in enumerate(values["claims"]):
        span = claim.get("span")
        if span is not None and span[1] > length:
            message = f"must lie within the {length} code points of the answer, got {span}"
            raise Fault(f"{message}. Count code points", f"claims[{i}].span")
        if claim["claim_id"] in ids:
            raise Fault(f"must be unique, got {claim['claim_id']!r} again. Rename one", f"claims[{i}].claim_id")
        ids.add(claim["claim_id"])
    for i, citation in enumerate(values["citations"]):
        if citation["claim_id"] not in ids:
            got = f"{citation['claim_id']!r}. Add the claim or mend the id"
            raise Fault(f"must be one of {sorted(ids)}, got {got}", f"citations[{i}].claim_id")
    _check_attribution(values)


def _check_priors(packed: list[dict[str, Any]]) -> None:
    given = [row["prior"] for row in packed if row.get("prior") is not None]
    if given and (len(given) < len(packed) or abs(math.fsum(given) - 1) > PRIOR_TOLERANCE):
        got = f"{len(given)} of {len(packed)} with sum {math.fsum(given):.6g}"
        raise Fault(f"must sum to 1 over all of S, got {got}. Normalize over the passages kept", "S.prior")


def _check_attribution(values: Mapping[str, Any]) -> None:
    scores = values.get("attribution")
    if scores is None or scores["status"] == "incomplete":
        return
    n_docs, n_tokens = len(values["S"]), len(scores["token_spans"])
    sizes = {len(line) for line in scores["logp"]}
    if len(scores["log_prior"]) != n_docs or len(scores["logp"]) != n_docs or not sizes <= {n_tokens}:
        got = f"{len(scores['log_prior'])} priors and {len(scores['logp'])} rows of lengths {sorted(sizes)}"
        message = f"must have {n_docs} rows of {n_tokens} tokens, as S and token_spans, got {got}. Score every pair"
        raise Fault(message, "attribution")


def _object(fields: Fields, *required: str) -> Check:
    checks = {name: field.check if isinstance(field, _Optional) else field for name, field in fields.items()}
    optional = frozenset(name for name, field in fields.items() if isinstance(field, _Optional))

    def checked(value: Any) -> None:
        if not isinstance(value, dict):
            raise Fault(f"must be an object, got {value!r}. Write {{...}}")
        for name in required:
            if name not in value:
                raise Fault(f"must be given, got the fields {sorted(value)}. Add it to this line", name)
        for name, item in value.items():
            check = checks.get(name)
            if check is None:
                raise Fault(f"must be one of {sorted(checks)}, got an unknown field. Remove it", name)
            if item is None and name in optional:
                continue
            try:
                check(item)
            except Fault as fault:
                raise fault.inside(name) from None

    return checked


def _list_of(check: Check) -> Check:
    def checked(value: Any) -> None:
        if not isinstance(value, list):
            raise Fault(f"must be a list, got {value!r}. Put it in brackets")
        for i, item in enumerate(value):
            try:
                check(item)
            except Fault as fault:
                raise fault.inside(f"[{i}]") from None

    return checked


def _one_of(*names: str) -> Check:
    def checked(value: Any) -> None:
        if value not in names:
            raise Fault(f"must be one of {list(names)}, got {value!r}. Use one of them")

    return checked


def _whole(lowest: int) -> Check:
    def checked(value: Any) -> None:
        if type(value) is not int or value < lowest:
            raise Fault(f"must be a whole number >= {lowest}, got {value!r}. Count again")

    return checked


def _key(value: Any) -> None:
    if isinstance(value, list) and len(value) == 3:
        source, version, chunk = value
        if isinstance(source, str) and isinstance(version, str) and isinstance(chunk, str):
            if source and version and chunk:
                return
    raise Fault(f"must be [source, version, chunk], three texts, got {value!r}. Give all three")


def _span(value: Any) -> None:
    if isinstance(value, list) and len(value) == 2:
        start, end = value
        if type(start) is int and type(end) is int and 0 <= start <= end:
            return
    raise Fault(f"must be [start, end) with 0 <= start <= end, got {value!r}. Count code points")


def _number(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Fault(f"must be a finite number, got {value!r}. Look for a NaN in the model's scores")


def _probability(value: Any) -> None:
    _number(value)
    if not -PRIOR_TOLERANCE <= value <= 1 + PRIOR_TOLERANCE:
        raise Fault(f"must be a probability, got {value!r}. Write it between 0 and 1")


def _logprob(value: Any) -> None:
    _number(value)
    if value > PRIOR_TOLERANCE:
        raise Fault(f"must be a log-probability, got {value!r}. Write it as a natural log, <= 0")


def _string(value: Any) -> None:
    if not isinstance(value, str):
        raise Fault(f"must be text, got {value!r}. Write a JSON string")


def _text(value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise Fault(f"must be text that is not blank, got {value!r}. Write a JSON string")


def _date(value: Any) -> None:
    if not isinstance(value, str) or not is_date(value):
        raise Fault(f"must be a date as 2016-12-31, 2016-12 or 2016, got {value!r}. Write it so")


def _flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise Fault(f"must be true or false, got {value!r}. Write it without quotation marks")


def _mapping(value: Any) -> None:
    if not isinstance(value, dict):
        raise Fault(f"must be an object, got {value!r}. Write {{...}}")


def _anything(value: Any) -> None:
    """Kept as it is; the audit says what it thinks of it."""


_CANDIDATE: Fields = {"rank": _whole(1), "key": _key, "score": _number}
_PACKED: Fields = {
    "pos": _whole(1),
    "ref": _whole(1),
    "key": _key,
    "prior": _Optional(_probability),
    "tokens": _Optional(_whole(0)),
    "visible": _Optional(_span),
    "truncated": _flag,
    "sha256": _Optional(_string),
}
_CLAIM: Fields = {
    "claim_id": _text, "text": _string, "span": _Optional(_span), "type": _string, "worthy": _flag,
}  # fmt: skip
_CITATION: Fields = {
    "claim_id": _text,
    "key": _anything,
    "ref": _Optional(_whole(0)),
    "origin": _one_of(*ORIGINS),
    "posterior": _Optional(_probability),
    "delta": _Optional(_number),
    "prior": _Optional(_probability),
    "evidence_span": _Optional(_span),
    "quote": _Optional(_string),
    "note": _Optional(_string),
}
_SCORES: Fields = {
    "status": _one_of(*TOKEN_STATUSES),
    "log_prior": _list_of(_logprob),
    "logp": _list_of(_list_of(_logprob)),
    "token_spans": _list_of(_span),
}
_BUDGET: Fields = {
    "unit": _text, **dict.fromkeys(("window", "fixed", "reserve", "budget", "remaining"), _whole(0)),
}  # fmt: skip
_DROPPED: Fields = {"key": _key, "stage": _string, "reason": _text, "tokens": _Optional(_whole(0))}
_ANSWER: Fields = {"status": _one_of(*STATUSES), "text": _string, "reason_code": _Optional(_text)}
_TRACE: Fields = {
    "schema": _string,
    "qid": _text,
    "question": _text,
    "as_of": _Optional(_date),
    "principal": _list_of(_text),
    "task": _text,
    "category": _string,
    "model": _mapping,
    "decode": _mapping,
    "C": _list_of(_object(_CANDIDATE, *_CANDIDATE)),
    "S": _list_of(_object(_PACKED, "pos", "ref", "key")),
    "dropped": _list_of(_object(_DROPPED, "key", "stage", "reason")),
    "budget": _Optional(_object(_BUDGET, *_BUDGET)),
    "extra_retrieval": _list_of(_key),
    "answer": _object(_ANSWER, "status"),
    "claims": _list_of(_object(_CLAIM, "claim_id", "text")),
    "citations": _list_of(_object(_CITATION, "claim_id", "key")),
    "attribution": _Optional(_object(_SCORES, *_SCORES)),
}
_TRACE_CHECK = _object(_TRACE, *REQUIRED)
