"""predictions.jsonl: one answer a line, keyed by id, with everything that metrics and audit need.

One decision: a file is checked when it is read, field by field, because scores are computed from it long after the
model is gone; a line cut by a kill, a NaN or a prior that does not sum to one is named, never scored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ragx import atomic
from ragx.errors import DataError, RagxError
from ragx.jsonl import Row, read_rows
from ragx.records import AnswerTokens, Citation, NullShare, Prediction, RetrievedPassage

SUPPORT = ("full", "partial", "none", "contradict", "not_judged")
PRIOR_TOLERANCE = 1e-4
_FIELDS = set(Prediction.__dataclass_fields__)


def read_predictions(path: str | Path, *, torn_end: bool = False) -> list[Prediction]:
    """The predictions of a file in its order; `torn_end` as in `read_rows`.

    Raises:
        DataError: naming file, line and field: a line that cannot be read, a field that is missing, unknown or of
            another type, a number that is not finite, priors that do not sum to 1, an id used twice.
    """
    predictions: list[Prediction] = []
    lines: dict[str, int] = {}
    for row in read_rows(path, torn_end=torn_end):
        prediction = prediction_of(row)
        if prediction.id in lines:
            row.fail(
                "id",
                f"must be unique, got {prediction.id!r} again (first on line {lines[prediction.id]}). "
                "Keep one of the two",
            )
        lines[prediction.id] = row.line
        predictions.append(prediction)
    return predictions


def write_predictions(path: str | Path, predictions: Iterable[Prediction]) -> None:
    """Writes predictions, whole or not at all; refuses an id used twice and numbers that are not finite."""
    seen: set[str] = set()
    with atomic.open_file(path) as handle:
        for prediction in predictions:
            if prediction.id in seen:
                raise DataError(
                    f"must be unique, got {prediction.id!r} again. Give each question its own id",
                    path=path,
                    line=len(seen) + 1,
                    field="id",
                )
            seen.add(prediction.id)
            handle.write(to_line(prediction))


def to_line(prediction: Prediction) -> str:
    """The line of one prediction, with its line feed.

    Raises:
        RagxError: a number in it is not finite.
    """
    try:
        return json.dumps(prediction.to_json(), ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError as error:
        raise RagxError(
            f"prediction {prediction.id!r} must hold finite numbers only, got {error}. "
            "Look for a NaN in the model's scores"
        ) from error


def prediction_of(row: Row) -> Prediction:
    """The prediction of one line.

    Raises:
        DataError: as `read_predictions`, of this line.
    """
    unknown = sorted(set(row.values) - _FIELDS)
    if unknown:
        row.fail(unknown[0], f"must be one of {sorted(_FIELDS)}, got an unknown field. Remove it")
    for field in sorted(_FIELDS - {"tokens", "null_document"}):
        row.require(field)
    value = row.values
    for field in ("id", "query"):
        row.text(field, value[field])
    row.string("answer", value["answer"])
    row.number("logprob", value["logprob"])
    for i, pair in enumerate(row.items("hypotheses", value["hypotheses"])):
        if not isinstance(pair, list) or len(pair) != 2:
            row.fail(f"hypotheses[{i}]", f"must be [text, logprob], got {pair!r}. Write both")
        row.string(f"hypotheses[{i}][0]", pair[0])
        row.number(f"hypotheses[{i}][1]", pair[1])
    for i, passage in enumerate(row.items("passages", value["passages"])):
        _check_passage(row, f"passages[{i}]", passage)
    for i, citation in enumerate(row.items("citations", value["citations"])):
        _check_citation(row, f"citations[{i}]", citation)
    _check_priors(row, value["passages"])
    cut = value["cut_tokens"]
    if isinstance(cut, bool) or not isinstance(cut, int) or cut < 0:
        row.fail("cut_tokens", f"must be a whole number >= 0, got {cut!r}. Count the tokens that did not fit")
    if not isinstance(value["provenance"], dict):
        row.fail("provenance", f"must be an object, got {value['provenance']!r}. Say which model answered")
    if value.get("tokens") is not None:
        _check_tokens(row, value["tokens"])
    if value.get("null_document") is not None:
        _check_fields(row, "null_document", value["null_document"], NullShare)
        for name in ("prior", "posterior"):
            _check_probability(row, f"null_document.{name}", value["null_document"][name])
    return Prediction.from_json(value)


def _check_fields(row: Row, field: str, value: Any, record: type) -> None:
    names = set(record.__dataclass_fields__)  # type: ignore[attr-defined]
    if not isinstance(value, dict) or set(value) != names:
        got = sorted(value) if isinstance(value, dict) else value
        row.fail(field, f"must be an object with exactly {sorted(names)}, got {got!r}. Mend this entry")


def _check_passage(row: Row, field: str, value: Any) -> None:
    _check_fields(row, field, value, RetrievedPassage)
    row.key(f"{field}.key", value["key"])
    for name in ("title", "text", "sha256"):
        row.string(f"{field}.{name}", value[name])
    row.number(f"{field}.doc_score", value["doc_score"])
    for name in ("prior", "posterior"):
        _check_probability(row, f"{field}.{name}", value[name])
    _check_span(row, f"{field}.visible", value["visible"], length=len(value["text"]))


def _check_probability(row: Row, field: str, value: Any) -> None:
    if not -PRIOR_TOLERANCE <= row.number(field, value) <= 1 + PRIOR_TOLERANCE:
        row.fail(field, f"must be a probability, got {value!r}. Write it between 0 and 1")


def _check_citation(row: Row, field: str, value: Any) -> None:
    _check_fields(row, field, value, Citation)
    row.key(f"{field}.key", value["key"])
    row.number(f"{field}.posterior", value["posterior"])
    if value["gain"] is not None:
        row.number(f"{field}.gain", value["gain"])
    if value["span"] is not None:
        _check_span(row, f"{field}.span", value["span"], length=None)
    if value["support"] not in SUPPORT:
        row.fail(f"{field}.support", f"must be one of {list(SUPPORT)}, got {value['support']!r}. Use one of them")


def _check_tokens(row: Row, value: Any) -> None:
    _check_fields(row, "tokens", value, AnswerTokens)
    spans = row.items("tokens.spans", value["spans"])
    for i, span in enumerate(spans):
        _check_span(row, f"tokens.spans[{i}]", span, length=len(row.values["answer"]))
    rows = row.items("tokens.logprobs", value["logprobs"])
    if len(rows) != len(row.values["passages"]):
        row.fail("tokens.logprobs", f"must have one row a passage, got {len(rows)}. Score the answer under each")
    for i, line in enumerate(rows):
        if len(row.items(f"tokens.logprobs[{i}]", line)) != len(spans):
            row.fail(
                f"tokens.logprobs[{i}]", f"must have {len(spans)} numbers, one a token, got {len(line)}. Align them"
            )
        for j, number in enumerate(line):
            row.number(f"tokens.logprobs[{i}][{j}]", number)
    if not isinstance(value["aligned"], bool):
        row.fail("tokens.aligned", f"must be true or false, got {value['aligned']!r}. Write it without quotation marks")


def _check_span(row: Row, field: str, value: Any, *, length: int | None) -> None:
    pair = isinstance(value, list) and len(value) == 2 and all(type(x) is int for x in value)
    if not pair or not 0 <= value[0] <= value[1] or (length is not None and value[1] > length):
        bound = "" if length is None else f" within {length} code points"
        row.fail(field, f"must be [start, end) with 0 <= start <= end{bound}, got {value!r}. Count code points")


def _check_priors(row: Row, passages: list[Any]) -> None:
    total = sum(passage["prior"] for passage in passages)
    if passages and abs(total - 1) > PRIOR_TOLERANCE:
        row.fail("passages", f"must have priors that sum to 1, got {total:.6g}. Normalize over the passages kept")
