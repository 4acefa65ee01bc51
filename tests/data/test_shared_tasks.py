"""Every real question set, read whole: as many examples as its description says."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ragx.data.patterns import text_targets
from ragx.data.tasks import Reading, read_examples
from ragx.errors import DataError
from ragx.jsonl import read_rows

pytestmark = pytest.mark.shared
TWO = {"SUPPORTS": "true", "REFUTES": "false"}
THREE = {**TWO, "NOT_ENOUGH_INFO": "unknown"}
COUNTS = {
    "nq_open/NQ-open.dev.jsonl.gz": 3610,
    "nq_open/NQ-open.efficientqa.dev.1.1.jsonl.gz": 1800,
    "nq_open/NQ-open.efficientqa.test.1.1.jsonl.gz": 1769,
    "nq_qed/dev.jsonl.gz": 1355,
    "webquestions/trainmodel.json.gz": 2834,
    "webquestions/val.json.gz": 755,
    "webquestions/devtest.json": 189,
    "webquestions/test.json.gz": 2032,
    "wiki2015_openqa/webquestions.trainmodel.jsonl.gz": 2834,
    "wiki2015_openqa/webquestions.test.jsonl.gz": 2032,
    "wiki2015_openqa/nq_open.dev.jsonl.gz": 3610,
    "triviaqa_popqa_samples/triviaqa.json": 150,
}
PATTERNS = {
    "curatedtrec/curated-train.tsv": 430,
    "curatedtrec/curated-test.tsv": 430,
    "curatedtrec/large2470-train.tsv.gz": 1704,
    "curatedtrec/large2470-test.tsv.gz": 766,
    "curatedtrec/trecnew-raw-test.tsv": 447,
    "wiki2015_openqa/curatedtrec.train.jsonl.gz": 430,
    "wiki2015_openqa/curatedtrec.test.jsonl.gz": 430,
    "wiki2015_openqa/curatedtrec.large-extra.jsonl.gz": 1266,
}
CLAIMS = {
    "v0.1_fever_symmetric_generated": 717,
    "v0.1_fever_symmetric_full": 956,
    "v0.2_fever_symmetric_dev": 708,
    "v0.2_fever_symmetric_test": 712,
}


@pytest.mark.parametrize("name", COUNTS)
def test_questions_and_answers(shared: Path, name: str) -> None:
    examples = read_examples(shared / name)
    assert len(examples) == COUNTS[name] and all(example.answers for example in examples)


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(shared: Path, name: str) -> None:
    examples = read_examples(shared / name, reading=Reading(task="regex_qa"))
    assert len(examples) == PATTERNS[name]
    assert len(text_targets(examples)) > 0.96 * len(examples)  # some look behind or repeat what they matched


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_with_two_labels(shared: Path, name: str) -> None:
    path = shared / "fever_symmetric" / f"{name}.jsonl.gz"
    examples = read_examples(path, reading=Reading(task="fact_verification", labels=TWO))
    assert len(examples) == CLAIMS[name] and {e.answers for e in examples} == {("true",), ("false",)}


def test_the_pool_of_claims(shared: Path) -> None:
    path = shared / "fact_verification_pool" / "claims.jsonl.gz"
    every, two, three = (
        read_examples(path, reading=Reading(task="fact_verification", labels=labels, version="evidence"))
        for labels in ({}, TWO, THREE)
    )
    assert [len(found) for found in (every, two, three)] == [5040, 4412, 4886]
    assert sum(e.kind == "climate_fever" for e in every) == 1535
    with gzip.open(shared / "fact_verification_pool" / "evidence.tsv.gz", "rt", encoding="utf-8") as handle:
        ids = {line.split("\t", 1)[0] for line in handle}
    assert {key.source for e in every for key in e.gold} <= ids and all(e.gold for e in two)
    parts = [read_examples(f"{path}@{part}", reading=Reading(task="fact_verification")) for part in ("train", "test")]
    assert len(parts[0]) > 3800 and not {e.id for e in parts[0]} & {e.id for e in parts[1]}


def test_questions_with_their_passages(shared: Path) -> None:
    with pytest.raises(DataError, match=r"train.jsonl.gz:155: answers: must hold at least one answer, got \[\]"):
        read_examples(shared / "nq_qed" / "train.jsonl.gz")
    errors: list[DataError] = []
    reading = Reading(version="passages", on_bad_row="skip")
    examples = read_examples(shared / "nq_qed" / "train.jsonl.gz", reading=reading, errors=errors)
    assert (len(examples), len(errors)) == (7147, 20)
    with gzip.open(shared / "nq_qed" / "passages.tsv.gz", "rt", encoding="utf-8") as handle:
        ids = {line.split("\t", 1)[0] for line in handle}
    dev = read_examples(shared / "nq_qed" / "dev.jsonl.gz", reading=reading)
    assert all({(key.version, key.chunk) for key in e.gold} == {("passages", "0")} for e in dev)
    assert {key.source for e in [*examples, *dev] for key in e.gold} <= ids


def test_a_sample_with_an_id_used_twice(shared: Path) -> None:
    twice = r"got 'pop_fefcd02f' again as element 19 \(first on line 2 as element 1\)"
    message = f"popqa.json:164: id: must be unique, {twice}. Rename one, or skip"
    with pytest.raises(DataError, match=message):
        read_examples(shared / "triviaqa_popqa_samples" / "popqa.json")
    found = read_examples(shared / "triviaqa_popqa_samples" / "popqa.json", reading=Reading(on_bad_row="skip"))
    assert len(found) == 149


def test_clues(shared: Path) -> None:
    path = shared / "jeopardy" / "jeopardy.csv.gz"
    found = read_examples(path, reading=Reading(task="question_generation"))
    asked = read_examples(path)
    assert len(found) == len(asked) == 19_999
    assert all((f.query, f.answers) == (a.answers[0], (a.query,)) for f, a in zip(found, asked, strict=True))


def test_ms_marcos_references_score_as_sacrebleu_scores_them(shared: Path) -> None:
    import numpy as np
    from sacrebleu.metrics.bleu import BLEU

    from ragx.evaluation.generation import bleu_1, bleu_counts

    rows = list(read_rows(shared / "msmarco_nlg_eval_sample" / "refs_and_candidates.jsonl.gz"))
    assert len(rows) == 2000
    scored = [(row.values["candidate"], row.values["references"]) for row in rows if row.values["references"]]
    width = max(len(references) for _, references in scored)
    streams = [[r[i] if i < len(r) else None for _, r in scored] for i in range(width)]
    peer = BLEU(lowercase=True, max_ngram_order=1).corpus_score([c for c, _ in scored], streams)
    counts = np.sum([bleu_counts(prediction=c, references=r) for c, r in scored], axis=0)
    assert float(bleu_1(counts)) == pytest.approx(peer.score / 100, abs=1e-12)
