"""The token scores of a prediction: back as they were, refused by field, absent in files of an earlier version."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragx.data.predictions import read_predictions, write_predictions
from ragx.errors import DataError
from ragx.records import AnswerTokens, PassageKey, Prediction, RetrievedPassage

PERU = RetrievedPassage(PassageKey("peru", "v1", "0"), "Peru", "Humala leads.", "", 2.0, 1.0, 1.0, (0, 13))
WHOLE = Prediction("1", "Who?", "Humala", -0.1, (), (PERU,), (), 0, {}, AnswerTokens(((0, 3), (3, 6)), ((-0.1, -0.2),)))


def test_tokens_come_back(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.jsonl", [WHOLE])
    assert read_predictions(tmp_path / "p.jsonl") == [WHOLE]


def test_a_file_without_them_is_read(tmp_path: Path) -> None:
    row = {name: value for name, value in WHOLE.to_json().items() if name != "tokens"}
    (tmp_path / "p.jsonl").write_text(json.dumps(row) + "\n")
    assert read_predictions(tmp_path / "p.jsonl") == [replace(WHOLE, tokens=None)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spans": [[0, 3], [3, 9]]}, r"tokens.spans\[1\]: must be \[start, end\)"),
        ({"logprobs": []}, "tokens.logprobs: must have one row a passage, got 0"),
        ({"logprobs": [[-0.1]]}, r"tokens.logprobs\[0\]: must have 2 numbers, one a token, got 1"),
        ({"logprobs": [[-0.1, "x"]]}, r"tokens.logprobs\[0\]\[1\]: must be a finite number"),
        ({"aligned": 1}, "tokens.aligned: must be true or false"),
        ({"more": 1}, "tokens: must be an object with exactly"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    row = json.loads(json.dumps(WHOLE.to_json()))
    row["tokens"].update(change)
    (tmp_path / "p.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=f"p.jsonl:1: {message}"):
        read_predictions(tmp_path / "p.jsonl")
