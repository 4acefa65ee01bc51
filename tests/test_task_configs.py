"""One YAML a task: each says the task, and its sources are what `data` can read."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from ragx import build, config, schema
from ragx.data.hub import PREFIX, parse
from ragx.data.tasks import Reading, read_examples
from ragx.errors import ConfigError

CONFIGS = Path(__file__).parents[1] / "configs"
TASKS = {
    "natural_questions": "open_qa",
    "trivia_qa": "open_qa",
    "web_questions": "open_qa",
    "curated_trec": "regex_qa",
    "ms_marco_nlg": "abstractive_qa",
    "jeopardy": "question_generation",
    "fever_3way": "fact_verification",
    "fever_2way": "fact_verification",
}
# Those whose files lie in a folder that RAGX_DATA names: the task, and the questions to train on and to answer.
LOCAL = {
    "nq_qed": ("open_qa", 7147, 1355),
    "wiki2015_trec": ("regex_qa", 430, 430),
    "wiki2015_web": ("open_qa", 2834, 189),
    "claim_pool": ("fact_verification", 3901, 474),
    "jeopardy_sample": ("question_generation", 1593, 216),
}
FILES = ["data.train=hub:a/b:train", "data.questions=hub:a/b:test"]


def resolved(name: str, *overrides: str) -> schema.Evaluate:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        raw = compose("evaluate", overrides=[f"predictions={__file__}", f"data={name}", *overrides])
    return config.resolve(raw, schema.Evaluate)


@pytest.mark.parametrize("name", TASKS)
def test_each_task(name: str) -> None:
    data = resolved(name, *(FILES if name == "curated_trec" else [])).data
    assert data.task == TASKS[name]
    assert all(parse(source).split for source in (data.train, data.questions) if source.startswith(PREFIX))
    labels = {"fever_3way": 3, "fever_2way": 2}.get(name, 0)
    assert len(set(data.labels.values())) == labels
    assert build.reading(data) == Reading(task=data.task, labels=data.labels)


def test_sources_are_files_their_parts_and_names(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "x?", "answer": "a"}\n{"question": "", "answer": "a"}\n')
    given = [f"data.train={path}@train", f"data.questions={path}", "data.on_bad_row=skip", "data.edition=2018"]
    data = resolved("natural_questions", *given).data
    assert data.train == f"{path}@train"
    assert [example.query for example in build.examples(data.questions, data=data)] == ["x?"]
    assert build.reading(data).version == "2018"
    with pytest.raises(ConfigError, match=r"data.train must be a file, also with @train, .* got '.*nowhere@train'"):
        resolved("natural_questions", f"data.train={tmp_path / 'nowhere'}@train")


@pytest.mark.parametrize(("row", "version"), [({"id": "p1"}, "corpus"), ({"source": "p1", "version": "7"}, "7")])
def test_gold_ids_have_the_version_that_the_passages_have(row: dict[str, str], version: str, tmp_path: Path) -> None:
    passages, questions = tmp_path / "corpus.jsonl", tmp_path / "q.jsonl"
    passages.write_text(json.dumps({**row, "title": "t", "text": "x"}) + "\n")
    questions.write_text('{"question": "x?", "answers": ["a"], "positive_ctx_id": "p1"}\n')
    data = resolved("natural_questions", f"data.passages={passages}", f"data.questions={questions}").data
    (example,) = build.examples(data.questions, data=data)
    (passage,) = build.passages(data)
    assert example.gold == (passage.key,) and passage.key.version == version


def test_labels_can_be_other_words() -> None:
    data = resolved("fever_3way", "data.labels.NOT_ENOUGH_INFO=N", "data.labels.SUPPORTS=S").data
    assert data.labels == {"SUPPORTS": "S", "REFUTES": "false", "NOT_ENOUGH_INFO": "N"}


def test_training_on_patterns_spells_them_out(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("1\tfactoid\tWhen?\tSept?(ember)?|Feb\n2\tfactoid\tWho?\t(?<=x)y\n")
    data = resolved("curated_trec", f"data.train={path}", f"data.questions={path}").data
    assert [e.answers for e in build.examples(data.train, data=data, targets=True)] == [("Sep",)]
    assert build.examples(data.questions, data=data) == read_examples(path)


def test_an_index_needs_passages() -> None:
    data = resolved("natural_questions").data
    with pytest.raises(ConfigError, match="data.passages must be given, got null"):
        build.passages(data)


@pytest.mark.shared
@pytest.mark.parametrize("name", LOCAL)
def test_each_set_of_files(name: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("nq_qed", "wiki2015_openqa", "fact_verification_pool"):
        (tmp_path / part).symlink_to(shared / part)
    (tmp_path / "nq_qed_wiki.tsv.gz").symlink_to(shared / "wiki2015_openqa" / "psgs_core.tsv.gz")
    with gzip.open(shared / "jeopardy" / "jeopardy.csv.gz", "rt", encoding="utf-8") as handle:
        (tmp_path / "jeopardy_2000.csv").write_text("".join(islice(handle, 2001)), encoding="utf-8")
    monkeypatch.setenv("RAGX_DATA", str(tmp_path))
    data = resolved(name).data
    task, train, asked = LOCAL[name]
    assert data.task == task and data.passages is not None and data.passages.startswith(str(tmp_path))
    assert len(build.examples(data.train, data=data)) == train
    answered = build.examples(data.questions, data=data)
    assert len(answered) == asked
    assert {answer for e in answered for answer in e.answers} == set(data.labels.values()) or not data.labels
