"""Right and wrong short answers made from a question file, and how the judges tell them apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ragx.citations.judges.composite import CompositeJudge
from ragx.citations.judges.exact_span import ExactSpanJudge
from ragx.citations.judges.lexical import LexicalJudge
from ragx.errors import DataError
from ragx.experiments.judge_agreement import judge_agreement, offline_judges, split
from ragx.experiments.wrong_answers import OTHER, SAME, read_short_answers

LETTERS = "abcdefgh"
PASSAGES = "id\ttext\ttitle\n" + "".join(
    f"p{i}\tThe elected mayor of this harbor town is Ann Lee{x}. Much later the old inn went to Bo Chi{x}.\tTown{x}\n"
    for i, x in enumerate(LETTERS)
)


def question(i: int, **given: object) -> dict[str, object]:
    return {
        "id": f"q{i}", "question": f"who is the elected mayor of the harbor town Town{LETTERS[i]}",
        "answers": [f"Ann Lee{LETTERS[i]}", "nobody"],
        "positive_ctx_id": f"p{i}", "hard_negative_ctx_ids": [f"p{(i + 1) % 8}"], **given,
    }  # fmt: skip


def files(tmp_path: Path, rows: list[dict[str, object]]) -> tuple[Path, Path]:
    (tmp_path / "passages.tsv").write_text(PASSAGES)
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "dev.jsonl", tmp_path / "passages.tsv"


def test_every_kind_of_wrong_answer_stands_in_its_passage_beside_a_right_one(tmp_path: Path) -> None:
    claims = read_short_answers(*files(tmp_path, [question(0)]))
    assert [(c.source, c.claim, c.passages[0].source, c.supported) for c in claims] == [
        (SAME, "Ann Leea", "p0", True),
        (SAME, "Bo Chia", "p0", False),
        (OTHER, "Ann Leea", "p0", True),
        (OTHER, claims[3].claim, "p1", False),
    ]
    assert claims[3].claim in ("Ann Leeb", "Bo Chib") and claims[3].claim in claims[3].passages[0].text
    assert all(c.short for c in claims) and len({c.id for c in claims}) == 4


@pytest.mark.parametrize(
    ("given", "n"),
    [
        ({"answers": ["not in the passage"]}, 0),
        ({"answers": ["Ann Leea", "Bo Chia"], "hard_negative_ctx_ids": []}, 0),
        ({"hard_negative_ctx_ids": []}, 2),
    ],
)
def test_a_question_without_a_name_to_mistake_gives_nothing(tmp_path: Path, given: dict[str, object], n: int) -> None:
    assert len(read_short_answers(*files(tmp_path, [question(0, **given)]))) == n


def test_a_passage_that_is_not_there_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dev.jsonl:2: positive_ctx_id: must be the id of a passage, got 'p9'"):
        read_short_answers(*files(tmp_path, [question(0), question(1, positive_ctx_id="p9")]))


def test_the_composite_judge_tells_names_by_their_sentence_and_the_exact_span_does_not(tmp_path: Path) -> None:
    claims = read_short_answers(*files(tmp_path, [question(i) for i in range(8)]))
    tune, report = split(claims, tune_sets=[])
    judges = [ExactSpanJudge(), CompositeJudge(lexical=LexicalJudge())]
    found = judge_agreement(tune, report, judges)["judges"]
    assert found["exact_span"]["by_source"][SAME]["recall_unsupported"] == 0.0
    assert found["composite(lexical)"]["by_source"][SAME]["recall_unsupported"] == 1.0
    assert found["composite(lexical)"]["by_source"][SAME]["recall"] == 1.0


@pytest.mark.shared
@pytest.mark.slow
def test_on_real_questions_words_find_most_names_of_other_passages(shared: Path, tmp_path: Path) -> None:
    """Natural Questions with the passages of QED, the dev part, halves by question."""
    folder = shared / "nq_qed"
    with gzip.open(folder / "passages.tsv.gz", "rt", encoding="utf-8", newline="\n") as handle:
        rows = [line.rstrip("\n").split("\t") for line in handle]  # without any quoting
    names, *texts = rows
    lines = (json.dumps(dict(zip(names, text, strict=True))) + "\n" for text in texts)
    (tmp_path / "passages.jsonl").write_text("".join(lines))
    claims = read_short_answers(folder / "dev.jsonl.gz", tmp_path / "passages.jsonl")
    tune, report = split(claims, tune_sets=[])
    judges = [judge for judge in offline_judges(tune) if judge.id in ("exact_span", "composite(lexical)")]
    found = judge_agreement(tune, report, judges)["judges"]
    assert found["exact_span"]["report"]["precision"] == pytest.approx(0.5)
    assert found["composite(lexical)"]["by_source"][OTHER]["auc"] > 0.65
    assert found["composite(lexical)"]["by_source"][OTHER]["recall_unsupported"] > 0.45
