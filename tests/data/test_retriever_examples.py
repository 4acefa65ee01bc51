"""Questions with their passages: DPR's file as it is published, and files that name passages of a corpus."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ragx.data.retriever_examples import Context, RetrieverExample, from_examples, read_retriever_examples
from ragx.errors import DataError
from ragx.records import Example, Passage, PassageKey

DPR = {
    "dataset": "nq_train_psgs_w100",
    "question": "Who was  Müller at NASA?",
    "answers": ["a scientist"],
    "positive_ctxs": [
        {"title": "Müller", "text": 'He "worked"\tthere', "score": 1000, "title_score": 1, "passage_id": "12"},
        {"title": None, "text": "other", "psg_id": 13},
    ],
    "negative_ctxs": [{"title": "A", "text": "easy"}],
    "hard_negative_ctxs": [{"title": "B", "text": f"hard {n}", "passage_id": str(n)} for n in range(5)],
}
PASSAGES = [Passage(source, "v", chunk, source.upper(), f"text {source}{chunk}") for source in "abc" for chunk in "01"]


def write(path: Path, *rows: Any) -> Path:
    path.write_text(json.dumps(rows) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["biencoder-nq-dev.json", "a.jsonl"])
def test_dprs_file_letter_by_letter(tmp_path: Path, name: str) -> None:
    """FAULTS C4: case, accents, double blanks and quotation marks of a question stay."""
    (example,) = read_retriever_examples(write(tmp_path / name, DPR))
    assert example.query == "Who was  Müller at NASA?"
    assert example.positives == (Context("Müller", 'He "worked"\tthere', "12"), Context("", "other", "13"))
    assert example.negatives == (Context("A", "easy"),)
    assert [context.text for context in example.hard_negatives] == [f"hard {n}" for n in range(5)]


def test_golds_are_never_left_out_and_negatives_may_be(tmp_path: Path) -> None:
    (example,) = read_retriever_examples(write(tmp_path / "a.json", DPR), most_negatives=2)
    assert (len(example.positives), len(example.hard_negatives), len(example.negatives)) == (2, 2, 1)


def test_ids_and_keys_are_looked_up(tmp_path: Path) -> None:
    rows = [
        {"question": "q1", "positive_ctx_ids": ["b"], "hard_negative_ctx_ids": ["a", "c"]},
        {"question": "q2", "positive_ctx_id": "c", "id": 7},
        {"query": "q3", "gold": [["a", "v", "1"]]},
    ]
    found = read_retriever_examples(write(tmp_path / "a.jsonl", *rows), passages=iter(PASSAGES))
    first, second, third = found
    assert first == RetrieverExample(
        "1", "q1", (Context("B", "text b0", "b|v|0"),),
        (Context("A", "text a0", "a|v|0"), Context("C", "text c0", "c|v|0")),
    )  # fmt: skip
    assert (second.id, second.positives[0].text) == ("7", "text c0")
    assert third.positives == (Context("A", "text a1", "a|v|1"),)


def test_questions_without_a_passage_are_skipped_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "a.json", {**DPR, "positive_ctxs": []}, DPR)
    with caplog.at_level(logging.WARNING, logger="ragx"):
        assert len(read_retriever_examples(file)) == 1
    assert "skipped 1 of 2 questions without a passage" in caplog.text
    with pytest.raises(DataError, match="b.json: file must hold a question with a passage that answers it, got none"):
        read_retriever_examples(write(tmp_path / "b.json", {**DPR, "positive_ctxs": []}))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answers": []}, "a.jsonl:2: question: must be given, got the fields"),
        ({"question": " ", "gold": []}, "a.jsonl:2: question: must be text that is not blank, got ' '"),
        ({"question": "q"}, "a.jsonl:2: positive_ctxs: must be given, got the fields .* positive_ctx_ids or gold"),
        ({"question": "q", "positive_ctxs": {}}, None),
        ({"question": "q", "positive_ctxs": "x"}, "a.jsonl:2: positive_ctxs: must be a list, got 'x'"),
        (
            {"question": "q", "positive_ctxs": [{"title": "t"}]},
            r"a.jsonl:2: positive_ctxs\[0\]: must be an object with",
        ),
        ({"question": "q", "gold": [["a", "v"]]}, r"a.jsonl:2: gold\[0\]: must be \[source, version, chunk\]"),
        (
            {"question": "q", "positive_ctx_ids": ["z"]},
            r"a.jsonl:2: positive_ctx_ids\[0\]: must be in the passages, got 'z'",
        ),
        ({"question": "q", "gold": [["a", "w", "0"]]}, r"gold\[0\]: must be in the passages, got \('a', 'w', '0'\)"),
        ({"question": "q", "positive_ctx_ids": [None]}, r"positive_ctx_ids\[0\]: must be text that is not blank"),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, row: dict[str, object], message: str | None) -> None:
    file = write(tmp_path / "a.jsonl", DPR, row)
    if message is None:  # an empty object in place of an empty list says the same
        assert len(read_retriever_examples(file, passages=PASSAGES)) == 1
        return
    with pytest.raises(DataError, match=message):
        read_retriever_examples(file, passages=PASSAGES)


def test_ids_without_passages_are_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", {"question": "q", "positive_ctx_ids": ["a"]})
    with pytest.raises(DataError, match="must be in the passages, got 'a'. Give the file of passages it is from"):
        read_retriever_examples(file)


def test_examples_with_gold_keys() -> None:
    gold, missing = PassageKey("b", "v", "1"), PassageKey("b", "w", "1")
    examples = [Example("1", "q", ("y",), gold=(gold,)), Example("2", "q2", ("y",))]
    (found,) = from_examples(examples, PASSAGES)
    assert found == RetrieverExample("1", "q", (Context("B", "text b1", "b|v|1"),))
    with pytest.raises(DataError, match=r"gold must be in the passages, got \('b', 'w', '1'\)"):
        from_examples([Example("1", "q", ("y",), gold=(missing,))], PASSAGES)


@pytest.mark.shared
def test_shared_questions_find_their_passages(shared: Path) -> None:
    from ragx.data.corpus import read_passages

    folder = shared / "nq_qed"
    found = read_retriever_examples(folder / "dev.jsonl.gz", passages=read_passages(folder / "passages.tsv.gz"))
    assert len(found) == 1355 and all(len(example.positives) == 1 for example in found)
    assert "Nobel" in found[0].positives[0].text
