"""A real sweep of tiny models: killed and gone on with, a job that fails alone, what is shared, what is refused."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from ragx import config
from ragx.data.predictions import read_predictions
from ragx.evaluation.answers import exact_match
from ragx.experiments.ablations_checks import check_baseline, check_metrics
from ragx.experiments.ablations_sweep import failing_alone, settings_of
from ragx.schema_ablation import Ablate
from ragx.training.metrics_log import read_metrics

ROOT = Path(__file__).parents[2]
PRESETS = sorted(path.stem for path in (ROOT / "configs" / "ablation").glob("*.yaml"))
COUNTRIES = ["Peru", "Chile", "France", "Japan", "Kenya", "Norway"]
# Run in a process of its own: killed in the second training, where it has done one step of two.
KILLED = """
import os, runpy, signal, sys
from ragx.training import run
append, seen = run.MetricsLog.append, []
def stop(self, row):
    append(self, row)
    seen.append(row["step"])
    if seen == [1, 2, 1]:
        os.kill(os.getpid(), signal.SIGKILL)
run.MetricsLog.append = stop
sys.argv = ["ablate.py", *sys.argv[2:]]
runpy.run_path(os.environ["SCRIPT"], run_name="__main__")
"""
Sweep = Callable[..., int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with a corpus and questions."""
    folder = tmp_path_factory.mktemp("user")
    rows = [f"{c.lower()}\tThe leader of {c} is {c[:3]}6 since June of the year before last.\t{c}" for c in COUNTRIES]
    (folder / "2016.tsv").write_text("\n".join(["id\ttext\ttitle", *rows]) + "\n")
    asked: list[dict[str, Any]] = [
        {"id": c, "question": f"Who leads {c}?", "answers": [f"{c[:3]}6"]} for c in COUNTRIES
    ]
    asked = [{**row, "gold": [[c.lower(), "2016", "0"]]} for row, c in zip(asked, COUNTRIES, strict=True)]
    (folder / "2016.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    return folder


@pytest.fixture(scope="module")
def given(tiny_bart: Path, tiny_dpr: Path) -> list[str]:
    """Overrides of every job: tiny checkpoints, two steps."""
    return [
        f"retriever.query_encoder={tiny_dpr}/query_encoder", f"retriever.passage_encoder={tiny_dpr}/passage_encoder",
        f"generator.checkpoint={tiny_bart}", "data.passages=2016.tsv", "data.train=2016.jsonl",
        "data.questions=2016.jsonl", "training.steps=2", "training.batch_size=2", "training.warmup_steps=0",
        "training.progress=false", "training.device=cpu", "decoding.num_beams=2", "decoding.max_length=4",
        "decoding.device=cpu", "model.n_docs=2", "ablation.metrics=[exact_match,answer_success_at.1]",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def sweep(folder: Path, given: list[str]) -> Sweep:
    """Runs scripts/ablate.py in the user's folder; returns its exit status. A checkpoint has its own towers."""
    of_checkpoint = ("retriever.query_encoder=", "generator.")

    def run(*overrides: str) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            trained = any(override.startswith("model.checkpoint=") for override in overrides)
            shared = [override for override in given if not (trained and override.startswith(of_checkpoint))]
            patch.setattr(sys, "argv", ["ablate.py", *shared, *overrides])
            with pytest.raises(SystemExit, match=r"\d") as leave:
                runpy.run_path(str(ROOT / "scripts" / "ablate.py"), run_name="__main__")
        return int(leave.value.code or 0)

    return run


def files(sweep_dir: Path) -> dict[str, int]:
    """When each result of the sweep was written."""
    kept = [
        *sweep_dir.glob("*/result.json"),
        *sweep_dir.glob("*/predictions.jsonl"),
        *sweep_dir.glob("models/*/*.jso*"),
    ]
    return {str(path.relative_to(sweep_dir)): path.stat().st_mtime_ns for path in kept}


def summary_of(sweep_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((sweep_dir / "summary.json").read_text())
    return found


AXES = ["ablation.name=pair", "model.null_document=null,bias", "experiment.seed=0,1",
        'ablation.baseline=["model.null_document=null"]']  # fmt: skip


@pytest.fixture(scope="module")
def killed(folder: Path, given: list[str]) -> dict[str, int]:
    """The files of a sweep of two by two jobs that was killed in its second one."""
    asked = [sys.executable, "-c", KILLED, "--", *given, *AXES]
    environment = {**os.environ, "SCRIPT": str(ROOT / "scripts" / "ablate.py"), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    found = files(folder / "runs/ablate/pair")
    assert len([name for name in found if name.endswith("result.json")]) == 1
    return found


@pytest.fixture(scope="module")
def finished(folder: Path, sweep: Sweep, killed: dict[str, int]) -> Path:
    """The folder of the same sweep after it was started again."""
    assert sweep(*AXES) == 0
    return folder / "runs/ablate/pair"


def test_a_killed_sweep_does_what_is_missing_and_keeps_what_is_done(finished: Path, killed: dict[str, int]) -> None:
    after = files(finished)
    done = {name for name in killed if not name.startswith("models") or name.split("/")[1] in _trained(finished)[:1]}
    assert {name: after[name] for name in done} == {name: killed[name] for name in done} and len(done) == 5
    assert len([name for name in after if name.endswith("result.json")]) == 4
    for model in (finished / "models").iterdir():
        assert [row["step"] for row in read_metrics(model / "metrics.jsonl")] == [1, 2]


def _trained(sweep_dir: Path) -> list[str]:
    """The models of the jobs in their order."""
    jobs = json.loads((sweep_dir / "sweep.json").read_text())["jobs"]
    results = [json.loads((sweep_dir / job["folder"] / "result.json").read_text()) for job in jobs]
    return [result["training"]["directory"].split("/")[1] for result in results]


def test_a_finished_sweep_started_again_runs_nothing(finished: Path, sweep: Sweep) -> None:
    before = files(finished)
    assert sweep(*AXES) == 0
    assert files(finished) == before


def test_the_table_holds_what_the_jobs_answered(finished: Path) -> None:
    summary = summary_of(finished)
    assert [(arm["arm"], arm["seeds"], arm["is_baseline"]) for arm in summary["arms"]] == [
        ("null_document=null", [0, 1], True),
        ("null_document=bias", [0, 1], False),
    ]
    for arm in summary["arms"]:
        for job, value in zip(arm["jobs"], arm["metrics"]["exact_match"]["values"], strict=True):
            found = read_predictions(finished / job / "predictions.jsonl")
            right = [exact_match(prediction=p.answer, answers=[f"{p.id[:3]}6"]) for p in found]
            assert value == pytest.approx(sum(right) / 6)
    bias = json.loads((finished / summary["arms"][1]["jobs"][0] / "result.json").read_text())
    shares = [p.null_document for p in read_predictions(finished / bias["folder"] / "predictions.jsonl")]
    assert bias["null_document"]["prior"] == pytest.approx(sum(s.prior for s in shares if s is not None) / 6)
    assert summary["arms"][1]["difference"]["n"] == 6 and (finished / "summary.md").read_text().startswith("### pair")


def test_a_changed_config_is_refused_with_its_key_and_spoils_no_other_job(finished: Path, sweep: Sweep) -> None:
    job = summary_of(finished)["arms"][0]["jobs"][1]
    path, text = finished / job / "config.yaml", (finished / job / "config.yaml").read_text()
    path.write_text(text.replace("batch_size: 2\n", "batch_size: 3\n", 1).replace("save_every: 100", "save_every: 7"))
    before = files(finished)
    assert sweep(*AXES) == 1
    (failed,) = summary_of(finished)["failed"]
    expected = "training.batch_size must be 3 as in the finished job of"
    assert failed["folder"] == job and expected in failed["error"] and "save_every" not in failed["error"]
    assert files(finished) == before
    path.write_text(text)
    assert sweep(*AXES) == 0 and summary_of(finished)["failed"] == []


def test_a_failing_job_is_told_in_a_line_and_the_others_go_on(
    folder: Path, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["ablation.name=broken", "model.n_docs=7,2", "decoding.decoder=fast,token_beam"]
    assert sweep(*asked) == 1
    summary = summary_of(folder / "runs/ablate/broken")
    assert [arm["arm"] for arm in summary["arms"]] == ["n_docs=2, decoder=fast"]
    errors = {job["overrides"]["model.n_docs"] + job["overrides"]["decoding.decoder"]: job for job in summary["failed"]}
    assert errors.keys() == {"7fast", "7token_beam", "2token_beam"}
    assert "n_docs must lie between 1 and the 6 passages" in errors["7fast"]["error"]
    assert errors["7fast"]["trace"].startswith("Traceback") and "in retrieve" in errors["7fast"]["trace"]
    assert "decoding.decoder must be null or one of thorough, fast" in errors["2token_beam"]["error"]
    shown = capsys.readouterr().out
    assert errors["7fast"]["error"].partition(": ")[2] in shown and "Traceback" not in shown


def test_a_bug_in_a_job_is_told_with_its_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with failing_alone(tmp_path / "job"):
        raise ValueError("no")
    failure = json.loads((tmp_path / "job" / "failure.json").read_text())
    assert failure["error"] == "ValueError: no" and failure["told"] == failure["trace"]
    assert failure["trace"].startswith("Traceback") and failure["trace"] in caplog.text


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ('ablation.baseline=["modell.n_docs=2"]', "ablation.baseline must name swept keys, got modell.n_docs=2. Swept: "
         "model.n_docs=2,3."),
        ('ablation.baseline=["model.n_docs=5"]', "ablation.baseline must give model.n_docs one of 2, 3, got 5."),
        ("ablation.metrics=[exact_mtch]", "ablation.metrics must be figures of data.task=open_qa with "
         "ablation.success_at=[1, 5, 10], got exact_mtch. Known: exact_match, f1, success_at.1, "),
        ("ablation.metrics=[answer_success_at.7]", "with ablation.success_at=[1, 5, 10], got answer_success_at.7."),
        ("data.task=open_qa,abstractive_qa", "ablation.metrics must be figures of data.task=abstractive_qa with "
         "ablation.success_at=[1, 5, 10], got exact_match, answer_success_at.1."),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_fill_its_table_is_refused_before_its_first_job(
    asked: str, message: str, folder: Path, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("ablation.name=refused", "model.n_docs=2,3", asked) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ablation.") and message in line
    assert not (folder / "runs/ablate/refused").exists()


def test_one_training_serves_all_values_of_the_test_and_pieces_of_passages_have_an_index_of_their_own(
    folder: Path, sweep: Sweep
) -> None:
    assert sweep("ablation.name=test_docs", "ablation.n_docs=1,2", "ablation.passage_words=null,5") == 0
    root = folder / "runs/ablate/test_docs"
    assert len(list((root / "models").iterdir())) == len(list((root / "indexes").iterdir())) == 2
    for arm in summary_of(root)["arms"]:
        found = read_predictions(root / arm["jobs"][0] / "predictions.jsonl")
        assert {len(p.passages) for p in found} == {int(arm["settings"]["ablation.n_docs"])}
        words = max(len(z.text.split()) for p in found for z in p.passages)
        assert words == (5 if arm["settings"]["ablation.passage_words"] == "5" else 13)


def test_the_four_sources_of_passages_run(folder: Path, sweep: Sweep) -> None:
    assert sweep("ablation.name=sources", "ablation/source=learned,frozen,bm25,none") == 0
    root = folder / "runs/ablate/sources"
    kinds = {}
    for arm in summary_of(root)["arms"]:
        result = json.loads((root / arm["jobs"][0] / "result.json").read_text())
        moved = read_metrics(root / result["training"]["directory"] / "metrics.jsonl")[0].keys()
        kinds[arm["arm"]] = ("grad_norm/query_encoder" in moved, "prior_entropy" in moved)
    assert kinds == {
        "source=learned": (True, True), "source=frozen": (False, True), "source=bm25": (False, True),
        "source=none": (False, False),
    }  # fmt: skip


def test_a_trained_checkpoint_is_answered_with_as_it_is(folder: Path, finished: Path, sweep: Sweep) -> None:
    checkpoint = finished / "models" / _trained(finished)[0] / "checkpoints" / "last"
    (folder / "seeds").mkdir()
    (folder / "seeds" / "0").symlink_to(checkpoint)
    asked = ["ablation.name=decoders", "ablation.train=false", "decoding.num_beams=1,2"]
    assert sweep(*asked, "model.checkpoint=seeds/${experiment.seed}", "model.kind=null") == 0
    root = folder / "runs/ablate/decoders"
    assert not (root / "models").exists() and len(summary_of(root)["arms"]) == 2
    assert sweep("ablation.name=nothing", "ablation.train=false") == 1
    (failed,) = summary_of(folder / "runs/ablate/nothing")["failed"]
    assert "model.checkpoint must be given where ablation.train is false, got null" in failed["error"]


@pytest.mark.parametrize(
    "scale", [[], ["experiment=paper", "index.directory=indexes/wikipedia"]], ids=["nano", "paper"]
)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_composes_at_both_scales_and_its_baseline_is_one_of_its_arms(
    preset: str, scale: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        composed = compose("ablate", overrides=[f"ablation={preset}", *scale], return_hydra_config=True)
        cfg = config.resolve(compose("ablate", overrides=[f"ablation={preset}", *scale]), Ablate)
    params = {key: str(value).split(",") for key, value in (composed.hydra.sweeper.params or {}).items()}
    marks = settings_of(cfg.ablation.baseline)
    assert marks.keys() <= params.keys() and bool(params) == (preset != "default")
    assert all(value in params[key] for key, value in marks.items())
    check_baseline(marks, [{key: value} for key, values in params.items() for value in values])
    check_metrics(cfg.ablation.metrics, task="open_qa", ks=cfg.ablation.success_at)
    if scale:
        assert cfg.generator.checkpoint == "facebook/bart-large"
        return
    axes = {key: values for key, values in params.items() if key != "experiment.seed"}
    for key, values in axes.items():
        for value in values:
            with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
                config.resolve(compose("ablate", overrides=[f"ablation={preset}", *scale, f"{key}={value}"]), Ablate)
