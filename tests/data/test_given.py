"""The file of given passages: read letter by letter, and whatever is wrong is named as file, line and field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ragx.data.given import read_given
from ragx.errors import DataError


def write(folder: Path, *rows: Any) -> Path:
    path = folder / "given.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_texts_and_objects_with_and_without_scores(tmp_path: Path) -> None:
    objects = [
        {"id": "peru", "title": "Peru", "text": 'He said "hi"\t\u00fc'},
        {"title": "NA", "text": "x", "acl": ["staff"]},
    ]
    found = read_given(
        write(
            tmp_path,
            {"id": "q1", "query": "Who leads Peru?", "passages": objects, "doc_scores": [1, -2.5]},
            {"question": "Who  leads \u00dcle? ", "passages": ["NA", "null"]},
        )
    )
    assert list(found) == ["Who leads Peru?", "Who  leads \u00dcle? "]
    first, second = found.values()
    assert first.doc_scores == (1.0, -2.5) and second.doc_scores is None
    assert [(p.key.source, p.title, p.text, p.acl) for p in first.passages] == [
        ("peru", "Peru", 'He said "hi"\t\u00fc', ()),
        ("NA", "NA", "x", ("staff",)),
    ]
    assert [(tuple(p.key), p.text) for p in second.passages] == [
        (("line 2", "1", "0"), "NA"),
        (("line 2", "1", "1"), "null"),
    ]


def test_a_passage_may_serve_several_questions(tmp_path: Path) -> None:
    shared = {"id": "peru", "text": "Lima"}
    found = read_given(write(tmp_path, {"query": "a", "passages": [shared]}, {"query": "b", "passages": [shared, "x"]}))
    assert found["a"].passages[0] == found["b"].passages[0]


P = {"id": "p", "text": "x"}
BAD = {
    "no query": ({"passages": [P]}, "query: must be given, got the fields ['passages']"),
    "blank query": ({"query": " ", "passages": [P]}, "query: must be text that is not blank"),
    "no passages": ({"query": "a"}, "passages: must be given, got the fields ['query']"),
    "empty list": ({"query": "a", "passages": []}, "passages: must hold at least one passage, got []"),
    "no list": ({"query": "a", "passages": "p"}, "passages: must be a list, got 'p'"),
    "a number": ({"query": "a", "passages": [P, 3]}, "passages[1]: must be a text or an object with text, got 3"),
    "blank text": ({"query": "a", "passages": [P, " "]}, "passages[1]: must be text that is not blank"),
    "no text": ({"query": "a", "passages": [{"id": "p"}]}, "passages[0].text: must be given"),
    "text is None": ({"query": "a", "passages": [{"id": "p", "text": None}]}, "passages[0].text: must be text"),
    "a misspelt field": ({"query": "a", "passages": [{**P, "titel": "T"}]}, "passages[0].titel: must be a known field"),
    "no date": ({"query": "a", "passages": [{**P, "valid_to": "May"}]}, "passages[0].valid_to: must be a date"),
    "twice": ({"query": "a", "passages": [P, {**P, "text": "y"}]}, "passages[1]: must be another passage, got ('p',"),
    "too few scores": ({"query": "a", "passages": [P, "x"], "doc_scores": [1]}, "doc_scores: must be one a passage"),
    "no scores": ({"query": "a", "passages": [P], "doc_scores": []}, "doc_scores: must be one a passage (1), got 0"),
    "a text score": ({"query": "a", "passages": [P], "doc_scores": ["1"]}, "doc_scores[0]: must be a finite number"),
    "a NaN": ('{"query": "a", "passages": ["x"], "doc_scores": [NaN]}', "doc_scores[0]: must be a finite number"),
    "a true": ({"query": "a", "passages": [P], "doc_scores": [True]}, "doc_scores[0]: must be a finite number"),
    "broken": ('{"query": "a", "passages": ["x"', "line must be one JSON object"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_named_with_its_field(tmp_path: Path, name: str) -> None:
    """FAULTS C6, for passages that are given."""
    row, message = BAD[name]
    path = write(tmp_path, {"query": "good", "passages": ["fine"]}, row)
    with pytest.raises(DataError, match=re.escape(f"{path}:2: {message}")):
        read_given(path)


def test_a_question_twice_and_one_identity_for_two_texts_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"query": "a", "passages": ["x"]}, "", {"query": "a", "passages": ["x"]})
    with pytest.raises(DataError, match=r"given.jsonl:3: query: must be asked once in the file, .*first on line 1"):
        read_given(path)
    path = write(tmp_path, {"query": "a", "passages": [P]}, {"query": "b", "passages": ["x", {**P, "text": "other"}]})
    with pytest.raises(DataError, match=r"given.jsonl:2: passages\[1\]: must have an identity of its own, .*on line 1"):
        read_given(path)
    with pytest.raises(DataError, match=r"given.jsonl: file must hold at least one question, got none"):
        read_given(write(tmp_path, ""))
