"""Errors keep what they say on their way from one process to another."""

from __future__ import annotations

import pickle
from pathlib import Path

from ragx.errors import ConfigError, DataError


def test_a_config_error_arrives_with_its_problems() -> None:
    error = ConfigError(["n_docs must be >= 1, got 0.", "seed must be >= 0, got -1."])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ConfigError and again.problems == error.problems and str(again) == str(error)


def test_a_data_error_arrives_with_its_place() -> None:
    error = DataError("must be text, got 3. Quote it", path="questions.jsonl", line=7, field="answers")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "questions.jsonl:7: answers: must be text, got 3. Quote it"
    assert (again.message, again.path, again.line, again.field) == (
        "must be text, got 3. Quote it", Path("questions.jsonl"), 7, "answers",
    )  # fmt: skip
