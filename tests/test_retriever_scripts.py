"""Every kind of retriever through the scripts, on a user's own files: index, train, generate, evaluate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from ragx.data.predictions import read_predictions
from ragx.generator.seq2seq import Seq2SeqGenerator
from ragx.retriever.manifest import Manifest
from ragx.retriever.tower import Tower
from ragx.training.checkpoint import read_record
from tests.scripts import metrics
from tests.user_files import ANSWER, COUNTRIES, TRAIN, leader

Run = Callable[..., int]


@pytest.fixture(scope="module")
def ranker(uncased_tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(uncased_tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=128, initializer_range=0.5, num_labels=1,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("ranker")
    BertForSequenceClassification(config).save_pretrained(folder)
    uncased_tokenizer.save_pretrained(folder)
    return folder


def test_bm25_is_trained_over_as_any_retriever(run: Run, folder: Path, bart: str) -> None:
    words = ["retriever=bm25", "index=bm25", "index.directory=words"]
    built = ["data.passages=2016.tsv", "+index.parameters.k1=0.9", "+index.parameters.b=0.4"]
    assert run("build_index", *words, *built, into="build-words") == 0
    assert Manifest.read(folder / "words").parameters == {"k1": 0.9, "b": 0.4, "word": r"(?u)\w+"}
    assert run("train", *words, *TRAIN, bart, into="train-words") == 0
    record = read_record(folder / "runs/train-words/checkpoints/last")
    assert list(record["parts"]) == ["generator"]
    assert record["index"]["fingerprint"] == Manifest.read(folder / "words").fingerprint
    trained = "model.checkpoint=runs/train-words/checkpoints/last"
    assert run("generate", *words, *ANSWER, trained, "output=words.jsonl", into="generate-words") == 0
    found = read_predictions(folder / "words.jsonl")
    assert [p.passages[0].key.source for p in found] == [country.lower() for country in COUNTRIES]
    # The prior is the softmax of the two BM25 scores, and they are not flat: one passage names the country.
    first = found[0].passages
    expected = torch.tensor([p.doc_score for p in first]).softmax(0)
    torch.testing.assert_close(torch.tensor([p.prior for p in first]), expected)
    assert first[0].doc_score > first[1].doc_score
    scored = ["predictions=words.jsonl", "data.questions=2016.jsonl", "data.passages=2016.tsv", "success_at=[1,2]"]
    assert run("evaluate", *scored, into="evaluate-words") == 0
    assert metrics(folder, "evaluate-words")["success_at"]["1"]["value"] == 1.0
    alone = ["data.questions=2016.jsonl", "data.passages=2016.tsv", "success_at=[1,3]"]
    assert run("evaluate_retrieval", *words, *alone, into="alone") == 0
    assert metrics(folder, "alone")["success_at"]["1"]["value"] == 1.0


def test_passages_that_are_given_are_read_in_place_of_a_search(run: Run, folder: Path, bart: str) -> None:
    """FAULTS B3, through the scripts: no retriever, no index, with scores and without."""
    rows = [
        {
            "query": f"Who leads {c}?",
            "passages": [f"Nobody leads {c}.", {"id": c, "title": c, "text": leader(c, 2016)}],
            **({"doc_scores": [0.0, 2.0]} if c == "Peru" else {}),
        }
        for c in COUNTRIES
    ]
    (folder / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["retriever=given", "retriever.given=given.jsonl", "index.directory=nowhere"]
    assert run("train", *given, *TRAIN, bart, into="train-given") == 0
    trained = "model.checkpoint=runs/train-given/checkpoints/last"
    assert run("generate", *given, *ANSWER, trained, "output=given-answers.jsonl", into="generate-given") == 0
    found = {p.query: p.passages for p in read_predictions(folder / "given-answers.jsonl")}
    peru, chile = found["Who leads Peru?"], found["Who leads Chile?"]
    assert [p.title for p in peru] == ["Peru", ""] and peru[0].prior == pytest.approx(0.880797)  # e^2 / (e^2 + 1)
    assert [p.title for p in chile] == ["", "Chile"] and [p.prior for p in chile] == pytest.approx([0.5, 0.5])


def test_a_model_trained_over_an_index_reads_given_passages(
    run: Run, folder: Path, encoders: list[str], bart: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("build_index", *encoders, "data.passages=2016.tsv", "index.directory=dense", into="build-dense") == 0
    assert run("train", *encoders, *TRAIN, bart, "index.directory=dense", into="train-dense") == 0
    (folder / "one.jsonl").write_text(
        "".join(json.dumps({"query": f"Who leads {c}?", "passages": ["a", "b"]}) + "\n" for c in COUNTRIES)
    )
    given = ["retriever=given", "retriever.given=one.jsonl", *ANSWER]
    trained = "model.checkpoint=runs/train-dense/checkpoints/last"
    assert run("generate", *given, trained, "output=one-answers.jsonl", into="generate-one") == 0
    assert {p.passages[0].text for p in read_predictions(folder / "one-answers.jsonl")} == {"a"}
    assert run("generate", *given, trained, "model.n_docs=3", "output=x.jsonl", into="too-many") == 2
    assert "n_docs must be at most 2, the passages given for 'Who leads Peru?', got 3" in capsys.readouterr().err
    (folder / "bad.jsonl").write_text('{"query": "Who leads Peru?", "passages": [{"text": 3}]}\n')
    assert run("generate", *given, trained, "retriever.given=bad.jsonl", into="bad-given") == 2
    assert "bad.jsonl:1: passages[0].text: must be text, got 3" in capsys.readouterr().err


def test_a_hybrid_is_built_trained_and_scored(run: Run, folder: Path, encoders: list[str], bart: str) -> None:
    searched = ["retriever=hybrid", encoders[1], "index.directory=both"]
    hybrid = [*searched, encoders[0]]
    assert run("build_index", *hybrid, "data.passages=2016.tsv", into="build-both") == 0
    assert (
        Manifest.read(folder / "both").passages_fingerprint == Manifest.read(folder / "both-bm25").passages_fingerprint
    )
    assert run("train", *hybrid, *TRAIN, bart, into="train-both") == 0
    trained = "model.checkpoint=runs/train-both/checkpoints/last"
    assert run("generate", *searched, *ANSWER, trained, "output=both.jsonl", into="generate-both") == 0
    assert len(read_predictions(folder / "both.jsonl")) == len(COUNTRIES)
    before = folder / "runs/train-both/checkpoints/last/query_encoder/model.safetensors"
    ranks = ["retriever.fusion.method=reciprocal_rank", "training.steps=1"]
    assert run("train", *hybrid, *TRAIN, bart, *ranks, into="train-ranks") == 0
    assert read_record(folder / "runs/train-ranks/checkpoints/last")["freeze_query_encoder"] is True
    assert read_record(folder / "runs/train-both/checkpoints/last")["freeze_query_encoder"] is False
    start = Path(encoders[0].partition("=")[2]) / "model.safetensors"
    assert before.read_bytes() != start.read_bytes()  # q(x) was trained through the weighted scores


def test_a_reranker_shows_its_lift(
    run: Run, folder: Path, encoders: list[str], bart: str, ranker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["data.questions=2016.jsonl", "data.passages=2016.tsv", "success_at=[1,2]", "index.directory=dense"]
    reranked = [*encoders, f"retriever.reranker.checkpoint={ranker}", "retriever.reranker.device=cpu"]
    assert run("build_index", *encoders, "data.passages=2016.tsv", "index.directory=dense", into="again") == 0
    assert run("evaluate_retrieval", *asked, *reranked, into="lift") == 0
    found = metrics(folder, "lift")
    for k in ("1", "2"):
        after, before = (table["success_at"][k]["value"] for table in (found, found["before"]))
        assert found["lift"][f"success_at.{k}"]["value"] == pytest.approx(after - before)
    assert "success_at.1 before" in capsys.readouterr().out
    small = ["model.kind=rag_sequence", "model.n_docs=2", bart, "index.directory=dense", "output=ranked.jsonl"]
    assert run("generate", *ANSWER, *small, *reranked, into="generate-ranked") == 0
    assert run("evaluate_retrieval", *asked, *encoders, into="plain") == 0
    assert found["before"]["success_at"] == metrics(folder, "plain")["success_at"]
    ranked = [[p.key.source for p in q.passages] for q in read_predictions(folder / "ranked.jsonl")]
    hits = sum(country.lower() == row[0] for country, row in zip(COUNTRIES, ranked, strict=True))
    assert found["success_at"]["1"]["value"] == pytest.approx(hits / len(COUNTRIES))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["retriever=given"], "retriever.given must be set with retriever.kind given and null without, got None"),
        (["retriever.given=2016.jsonl"], "retriever.given must be set with retriever.kind given and null without"),
        (
            ["retriever.kind=hybrid"],
            "retriever.fusion must be set with retriever.kind hybrid and null without, got None",
        ),
        (
            ["retriever=hybrid", "retriever.shards=2"],
            "retriever.shards must be 0 where retriever.kind is not dense, got 2",
        ),
        (["retriever=hybrid", "retriever.fusion.weight=2"], "retriever.fusion.weight must be between 0 and 1, got 2.0"),
        (["retriever.reranker.logits=x"], "retriever.reranker.logits must be one of reranker, retriever, got 'x'"),
        (
            ["retriever=bm25", "index=bm25", "+index.parameters.k=1"],
            "index.parameters of bm25 must be among: k1, b, got 'k'",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_opened(
    run: Run, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "data.train=2016.jsonl", *words, into="refused") == 2
    assert message in capsys.readouterr().err


def test_an_index_is_not_built_of_given_passages(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "some.jsonl").write_text('{"query": "a", "passages": ["b"]}\n')
    assert run("build_index", "retriever=given", "retriever.given=some.jsonl", into="no-index") == 2
    assert "retriever.kind must be one that searches to build an index, got given" in capsys.readouterr().err


def test_what_is_missing_is_told_before_any_weights_are_read(
    run: Run, encoders: list[str], bart: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FAULTS C3: no index, or no library for what was asked; each in one line, with the command."""
    assert run("build_index", *encoders, "data.passages=2016.tsv", "index.directory=dense", into="for-missing") == 0
    capsys.readouterr()
    for part in (Tower, Seq2SeqGenerator):
        monkeypatch.setattr(part, "from_pretrained", lambda *_, **__: pytest.fail("weights were read"))
    small = ["model.kind=rag_sequence", "model.n_docs=2", bart, *encoders, *ANSWER]
    for words in (["index.directory=nowhere"], ["retriever=hybrid", "index.directory=nowhere", *encoders]):
        assert run("generate", *small, *words, into="no-index") == 2
        told = capsys.readouterr().err
        assert "index must be a folder with manifest.json, got " in told and told.count("\n") == 1
        assert "Build it: python scripts/build_index.py" in told
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run("generate", *small, "index.directory=dense", "retriever.shards=2", into="no-ray") == 2
    told = capsys.readouterr().err
    assert "got none. Run: pip install 'ragx[ray]'" in told and told.count("\n") == 1


def test_shards_without_ray_are_one_line_with_the_command(
    run: Run, encoders: list[str], bart: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FAULTS C3: what is missing is named with what installs it, and shards=0 needs none of it (D2)."""
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run("build_index", *encoders, "data.passages=2016.tsv", "index.directory=dense", into="for-shards") == 0
    small = ["model.kind=rag_sequence", "model.n_docs=2", bart, "index.directory=dense", *encoders, *ANSWER]
    assert run("generate", *small, "retriever.shards=2", into="shards") == 2
    assert "ray must be installed to use actors, got none. Run: pip install 'ragx[ray]'" in capsys.readouterr().err
    assert run("generate", *small, "retriever.shards=0", "output=unsharded.jsonl", into="no-shards") == 0
