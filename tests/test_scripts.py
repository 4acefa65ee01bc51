"""The five scripts on a user's own files, as they are called: index, train, generate, evaluate, hot swap, bad input."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ragx.data.predictions import read_predictions
from ragx.evaluation.answers import exact_match
from ragx.retriever.manifest import Manifest
from ragx.training.checkpoint import read_record
from tests.scripts import ROOT
from tests.user_files import COUNTRIES, leader

Run = Callable[..., int]


@pytest.fixture(scope="module")
def parts(encoders: list[str], bart: str) -> dict[str, list[str]]:
    """Overrides that put the tiny checkpoints in place of the embedded ones, by group; `trained` with a checkpoint."""
    return {"retriever": encoders, "generator": [bart], "trained": encoders[1:]}


@pytest.fixture(scope="module")
def indexes(run: Run, folder: Path, parts: dict[str, list[str]]) -> Path:
    for year in (2016, 2018):
        given = [f"data.passages={year}.tsv", f"index.directory=indexes/{year}", *parts["retriever"]]
        assert run("build_index", *given, into=f"build-{year}") == 0
    return folder / "indexes"


@pytest.fixture(scope="module")
def checkpoint(run: Run, folder: Path, indexes: Path, parts: dict[str, list[str]]) -> Path:
    given = ["data.train=2016.jsonl", "data.dev=2016.jsonl", "index.directory=indexes/2016", "model.kind=rag_token"]
    sizes = ["model.n_docs=2", "training.steps=2", "training.batch_size=2", "training.warmup_steps=0"]
    switches = ["training.progress=false", "training.device=cpu"]
    assert run("train", *given, *sizes, *switches, *parts["retriever"], *parts["generator"], into="train") == 0
    return folder / "runs/train/checkpoints/last"


@pytest.fixture(scope="module")
def predictions(run: Run, folder: Path, checkpoint: Path, parts: dict[str, list[str]]) -> Path:
    given = [f"model.checkpoint={checkpoint}", "data.questions=2016.jsonl", "index.directory=indexes/2016"]
    sizes = ["decoding.num_beams=2", "decoding.max_length=4", "decoding.batch_size=4", "decoding.device=cpu"]
    assert run("generate", *given, *sizes, *parts["trained"], into="generate") == 0
    return folder / "runs/generate/predictions.jsonl"


def test_build_index_writes_an_index_of_the_users_passages(indexes: Path) -> None:
    manifest = Manifest.read(indexes / "2018")
    assert (manifest.count, manifest.edition, manifest.kind, manifest.dimension) == (6, "2018", "flat", 16)


def test_build_index_again_reuses_it(run: Run, indexes: Path, parts: dict[str, list[str]]) -> None:
    before = (indexes / "2016" / "embeddings.npy").stat().st_mtime_ns
    given = ["data.passages=2016.tsv", "index.directory=indexes/2016", *parts["retriever"]]
    assert run("build_index", *given, into="again") == 0
    assert (indexes / "2016" / "embeddings.npy").stat().st_mtime_ns == before
    assert run("build_index", *given, "reuse=false", into="anew") == 0
    assert (indexes / "2016" / "embeddings.npy").stat().st_mtime_ns != before


def test_train_leaves_a_checkpoint_a_log_and_its_config(folder: Path, checkpoint: Path) -> None:
    record = read_record(checkpoint)
    assert (record["kind"], record["n_docs"]) == ("rag_token", 2)
    assert (folder / "runs/train/metrics.jsonl").read_text().count("\n") >= 2
    saved = (folder / "runs/train/config.yaml").read_text()
    assert f"train: {folder}/2016.jsonl" in saved and "kind: rag_token" in saved


def test_a_run_that_is_refused_keeps_the_config_of_the_one_that_is_there(
    run: Run, folder: Path, checkpoint: Path, parts: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "runs/train/config.yaml").read_text()
    given = ["data.train=2018.jsonl", "index.directory=indexes/2016", "model.kind=rag_token", "model.n_docs=2"]
    sizes = ["training.steps=2", "training.batch_size=2", "training.warmup_steps=0", "training.device=cpu"]
    assert run("train", *given, *sizes, *parts["retriever"], *parts["generator"], into="train") == 2
    assert "data.examples must equal" in capsys.readouterr().err
    assert (folder / "runs/train/config.yaml").read_text() == before


def test_generate_answers_every_question_with_its_passages(predictions: Path) -> None:
    found = read_predictions(predictions)
    assert [prediction.id for prediction in found] == [f"q-{country}" for country in COUNTRIES]
    for prediction in found:
        assert len(prediction.passages) == 2
        assert sum(passage.prior for passage in prediction.passages) == pytest.approx(1)
        assert prediction.passages[0].key.version == "2016"
        assert (prediction.provenance["kind"], prediction.provenance["decoder"]) == ("rag_token", "token_beam")


def test_what_a_checkpoint_would_have_generate_do_is_shown_and_not_done(
    run: Run, folder: Path, tiny_bart: Path, tmp_path: Path
) -> None:
    """FAULTS B6: the defaults of the published BART stand in the config of the run, as not in force."""
    odd = Path(shutil.copytree(tiny_bart, tmp_path / "odd"))
    asked = {"bos_token_id": 0, "eos_token_id": 2, "min_length": 9, "no_repeat_ngram_size": 3, "forced_bos_token_id": 0}
    (odd / "generation_config.json").write_text(json.dumps(asked))
    given = ["model.kind=closed_book", "model.n_docs=1", "data.questions=2016.jsonl", "decoding.num_beams=2",
             "decoding.max_length=4", "decoding.device=cpu"]  # fmt: skip
    for name, checkpoint in (("odd", odd), ("plain", tiny_bart)):
        assert run("generate", *given, f"generator.checkpoint={checkpoint}", into=name) == 0
    shown = (folder / "runs/odd/config.yaml").read_text()
    assert shown.split("is:\n")[1].splitlines() == [
        "#   forced_bos_token_id: 0", "#   min_length: 9", "#   no_repeat_ngram_size: 3",
    ]  # fmt: skip
    assert yaml.safe_load(shown)["decoding"]["min_length"] == 0
    assert "not in force" not in (folder / "runs/plain/config.yaml").read_text()
    files = [folder / f"runs/{name}/predictions.jsonl" for name in ("odd", "plain")]
    odd_answers, plain_answers = map(read_predictions, files)
    assert [p.hypotheses for p in odd_answers] == [p.hypotheses for p in plain_answers]


def test_evaluate_scores_the_file_alone(
    run: Run, folder: Path, predictions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["predictions=runs/generate/predictions.jsonl", "data.questions=2016.jsonl", "success_at=[1,2]"]
    assert run("evaluate", *given, "output=scores/metrics.json", into="evaluate") == 0
    metrics = json.loads((folder / "scores/metrics.json").read_text())
    found = read_predictions(predictions)
    right = [exact_match(prediction=p.answer, answers=[leader(c, 2016)]) for p, c in zip(found, COUNTRIES, strict=True)]
    top = [float(p.passages[0].key.source == c.lower()) for p, c in zip(found, COUNTRIES, strict=True)]
    assert metrics["exact_match"]["value"] == pytest.approx(sum(right) / 6)
    assert metrics["success_at"]["1"]["value"] == pytest.approx(sum(top) / 6)
    assert metrics["exact_match"]["n"] == 6
    assert f"success_at.1               {sum(top) / 6:.3f}" in capsys.readouterr().out


def test_paths_start_where_the_script_was_started_even_with_chdir(run: Run, folder: Path, predictions: Path) -> None:
    given = ["predictions=runs/generate/predictions.jsonl", "data.questions=2016.jsonl", "output=scores/moved.json"]
    assert run("evaluate", *given, "hydra.job.chdir=true", into="moved") == 0
    assert (folder / "scores/moved.json").is_file()


def test_hot_swap_scores_both_editions(
    run: Run, folder: Path, indexes: Path, checkpoint: Path, parts: dict[str, list[str]]
) -> None:
    given = ["before.index=indexes/2016", "before.questions=2016.jsonl", "after.index=indexes/2018"]
    given += ["after.questions=2018.jsonl", f"model.checkpoint={checkpoint}", "decoding.max_length=4"]
    assert run("hot_swap", *given, "decoding.device=cpu", *parts["trained"], into="hot_swap") == 0
    results = json.loads((folder / "runs/hot_swap/results.json").read_text())
    assert results["n"] == {"2016": 6, "2018": 6}
    assert results["matched"].keys() == results["mismatched"].keys() == {"2016", "2018"}


def test_closed_book_trains_and_answers_without_an_index(run: Run, folder: Path, parts: dict[str, list[str]]) -> None:
    sizes = ["training.steps=1", "training.batch_size=2", "training.warmup_steps=0", "training.device=cpu"]
    given = ["model=closed_book", "data.train=2016.jsonl", "index.directory=nowhere", *sizes, *parts["generator"]]
    assert run("train", *given, into="closed") == 0
    asked = ["model.checkpoint=runs/closed/checkpoints/last", "data.questions=2016.jsonl", "index.directory=nowhere"]
    assert run("generate", *asked, "decoding.max_length=3", "decoding.device=cpu", into="closed-answers") == 0
    assert all(p.passages == () for p in read_predictions(folder / "runs/closed-answers/predictions.jsonl"))


def test_bm25_in_place_of_vectors(run: Run, folder: Path, parts: dict[str, list[str]]) -> None:
    words = ["retriever=bm25", "index=bm25", "index.directory=indexes/bm25"]
    assert run("build_index", *words, "data.passages=2016.tsv", into="build-bm25") == 0
    untrained = ["model.kind=rag_sequence", "model.n_docs=2", "data.questions=2016.jsonl", "decoding.max_length=3"]
    assert run("generate", *words, *untrained, "decoding.device=cpu", *parts["generator"], into="bm25") == 0
    found = read_predictions(folder / "runs/bm25/predictions.jsonl")
    assert [p.passages[0].key.source for p in found] == [country.lower() for country in COUNTRIES]


BAD = {
    "no answers": (
        "train",
        ["data.train=bad/no_answers.jsonl", "index.directory=indexes/2016"],
        "bad/no_answers.jsonl:2: answers: must hold at least one answer",
    ),
    "malformed line": ("train", ["data.train=bad/malformed.jsonl"], "bad/malformed.jsonl:2:"),
    "empty corpus": ("build_index", ["data.passages=bad/empty.tsv", "index.directory=indexes/bad"], "bad/empty.tsv"),
    "doubled identity": (
        "build_index",
        ["data.passages=bad/doubled.tsv", "index.directory=indexes/bad"],
        "bad/doubled.tsv:3: id: identity must be unique",
    ),
    "no such index": ("train", ["data.train=2016.jsonl", "index.directory=indexes/none"], "scripts/build_index.py"),
    "n_docs beyond the corpus": (
        "generate",
        ["model.kind=rag_token", "model.n_docs=7", "data.questions=2016.jsonl", "index.directory=indexes/2016"],
        "n_docs must lie between 1 and the 6 passages",
    ),
    "no such checkpoint": ("generate", ["model.checkpoint=nowhere", "index.directory=indexes/2016"], "nowhere"),
    "an index in place of other files": (
        "build_index",
        ["data.passages=2016.tsv", "index.directory=indexes"],
        "index.directory must be new, empty or an index, got ",
    ),
    "an index in place of the corpus": (
        "build_index",
        ["data.passages=2016.tsv", "index.directory=2016.tsv"],
        "index.directory must be new, empty or an index, got the file ",
    ),
    "no such weights": (
        "train",
        ["data.train=2016.jsonl", "generator.checkpoint=./none"],
        "generator.checkpoint must be a folder, dpr-nano, bart-nano or a name on the hub, got './none'",
    ),
    "one edition twice": (
        "hot_swap",
        ["before.index=indexes/2016", "after.index=indexes/2016", "model.checkpoint=nowhere"],
        "before.index and after.index must be of two editions, got '2016' twice",
    ),
    "output is a folder": (
        "evaluate",
        ["predictions=2016.jsonl", "data.questions=2016.jsonl", "output=indexes"],
        "output must be a file, not a folder",
    ),
    "no such file": ("build_index", ["data.passages=nowhere.tsv"], "data.passages must be a file or world_leaders:..."),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_exit_status_2(
    case: str,
    run: Run,
    folder: Path,
    indexes: Path,
    parts: dict[str, list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = folder / "bad"
    bad.mkdir(exist_ok=True)
    good = '{"question": "Who leads Peru?", "answers": ["Per6"]}\n'
    (bad / "no_answers.jsonl").write_text(good + '{"question": "Who leads Chile?"}\n')
    (bad / "malformed.jsonl").write_text(good + '{"question": \n')
    (bad / "empty.tsv").write_text("id\ttext\ttitle\n")
    (bad / "doubled.tsv").write_text("id\ttext\ttitle\n1\ta\tA\n1\tb\tB\n")
    name, overrides, message = BAD[case]
    groups: dict[str, list[str]] = {"evaluate": [], "build_index": ["retriever"], "hot_swap": ["trained"]}
    usual = ["trained"] if case == "no such checkpoint" else ["retriever", "generator"]
    given = [override for group in groups.get(name, usual) for override in parts[group]]
    assert run(name, *given, *overrides, into=f"bad-{name}") == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not (folder / "indexes/bad").exists()


def test_an_index_of_another_encoder_is_refused_and_what_differs_is_said(
    run: Run, indexes: Path, tiny_dpr: Path, parts: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    other = [f"retriever.query_encoder={tiny_dpr}/query_encoder", f"retriever.passage_encoder={tiny_dpr}/query_encoder"]
    given = ["data.train=2016.jsonl", "index.directory=indexes/2016", *other, *parts["generator"]]
    assert run("train", *given, into="other") == 2
    error = capsys.readouterr().err
    assert "encoder.architecture must agree with the index" in error
    assert "DPRQuestionEncoder" in error and "DPRContextEncoder" in error
    assert "python scripts/build_index.py" in error


def test_a_missing_half_of_a_checkpoint_is_named(
    run: Run, checkpoint: Path, parts: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    half, aside = checkpoint / "generator", checkpoint.parent / "generator-aside"
    half.rename(aside)
    try:
        given = [f"model.checkpoint={checkpoint}", "data.questions=2016.jsonl", "index.directory=indexes/2016"]
        assert run("generate", *given, *parts["trained"], into="half") == 2
    finally:
        aside.rename(half)
    assert "generator" in capsys.readouterr().err


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path) -> None:
    """In a process of its own: a misspelt key, a bad value, two runs that start together."""
    command = [sys.executable, str(ROOT / "scripts/evaluate.py")]
    misspelt = subprocess.run([*command, "sucess_at=[1]"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert misspelt.returncode == 1 and "Key 'sucess_at' not in 'Evaluate'" in misspelt.stderr
    both = [subprocess.Popen([*command, "seed=-1"], cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [2, 2]
    for error in errors:
        assert error == (
            "error: predictions must be given, got nothing. Add predictions=... to the command line.\n"
            "error: seed must be >= 0, got -1.\n"
        )
    assert len(list((tmp_path / "runs/evaluate").iterdir())) == 2
