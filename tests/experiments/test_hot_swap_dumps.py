"""The hot swap between two dumps: figures by hand from given answers, and the whole path with a tiny model."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ragx.data.corpus import write_passages
from ragx.data.predictions import read_predictions, write_predictions
from ragx.data.tasks import write_examples
from ragx.experiments.dumps.accuracy import accuracy, mean_scores
from ragx.experiments.dumps.groups import groups_of
from ragx.experiments.dumps.stale import stale_citations
from ragx.experiments.dumps.tables import render
from ragx.model import RagModel
from ragx.records import Citation, Example, Passage, Prediction, RetrievedPassage
from ragx.training.checkpoint import save_checkpoint
from tests.data.test_factbook import write_table
from tests.experiments.conftest import LEADERS
from tests.scripts import run_script

OLD, NEW = "2016-11", "2020-11"
SCRIPT = Path(__file__).parents[2] / "scripts" / "hot_swap_dumps.py"


def passage(edition: str, country: str, text: str) -> Passage:
    return Passage(f"{country}/Government", edition, "0", f"{country} (Government)", text)


PASSAGES = {
    OLD: [passage(OLD, "pe", "Old leads ."), passage(OLD, "gh", "Ada leads ."), passage(OLD, "np", "Bo leads .")],
    NEW: [passage(NEW, "pe", "New leads ."), passage(NEW, "gh", "Ada leads ."), passage(NEW, "np", "Bo leads on .")],
}
STATED = {OLD: (True, True, True), NEW: (True, True, False)}


def questions(edition: str) -> list[Example]:
    """One position that changed hands and two that did not; the later dump does not state the last."""
    holders = ("Old" if edition == OLD else "New", "Ada", "Bo")
    return [
        Example(f"q{row}", f"Who leads {row} ?", (holder,), "unchanged" if row else "changed", (found.key,) * stated,
                edition)
        for row, (holder, found, stated) in enumerate(zip(holders, PASSAGES[edition], STATED[edition], strict=True))
    ]  # fmt: skip


QUESTIONS = {edition: questions(edition) for edition in (OLD, NEW)}


def answered(asked: Example, answer: str, read: Sequence[Passage], cited: Passage) -> Prediction:
    share = 1 / len(read)
    return Prediction(
        asked.id, asked.query, answer, -1.0, ((answer, -1.0),),
        tuple(
            RetrievedPassage(p.key, p.title, p.text, p.sha256, 9.0 - z, share, share, (0, len(p.text)))
            for z, p in enumerate(read)
        ),
        (Citation(cited.key, share, 1.0, None, "not_judged"),), 0, {"kind": "rag_sequence"},
    )  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[tuple[str, str], list[Path]]:
    """Two checkpoints that answer the name that stands in the dump.

    The second never knows the first position; the first knows its old holder by heart, whatever it reads.
    """
    found: dict[tuple[str, str], list[Path]] = {}
    for edition in (OLD, NEW):
        write_passages(tmp_path / "passages" / f"{edition}.jsonl", PASSAGES[edition])
        write_examples(tmp_path / "questions" / f"{edition}.jsonl", QUESTIONS[edition])
    for index in (OLD, NEW):
        for asked in (OLD, NEW):
            for run in (0, 1):
                path = tmp_path / f"{run}.{index}.{asked}.jsonl"
                rows = []
                for row, example in enumerate(QUESTIONS[asked]):
                    own = PASSAGES[index][row]
                    answer = "nobody" if run and not row else own.text.split()[0]
                    if (index, asked, run, row) == (NEW, OLD, 0, 0):
                        answer = "Old"  # from memory
                    rows.append(answered(example, answer, [PASSAGES[index][row - 1], own], own))
                write_predictions(path, rows)
                found.setdefault((index, asked), []).append(path)
    return found


def test_groups_are_whole_or_of_what_every_dump_states() -> None:
    assert groups_of(QUESTIONS) == {
        "changed": {"q0"}, "changed, in both dumps": {"q0"},
        "unchanged": {"q1", "q2"}, "unchanged, in both dumps": {"q1"},
    }  # fmt: skip


def test_accuracy_by_dump_and_date(files: dict[tuple[str, str], list[Path]]) -> None:
    """Right on the own dump in one checkpoint of two, on the other from memory alone; who stayed is right from both."""
    found = accuracy(files, QUESTIONS, ks=(1, 2, 5), seed=0)
    matrix = found["changed"]["exact_match"]
    assert [[matrix[index][asked]["value"] for asked in (OLD, NEW)] for index in (OLD, NEW)] == [[0.5, 0], [0.5, 0.5]]
    assert {m["value"] for row in found["unchanged"]["exact_match"].values() for m in row.values()} == {1.0}
    assert found["unchanged"]["exact_match"][OLD][NEW]["n"] == 2
    assert [found["unchanged"]["success_at"][OLD][k]["value"] for k in ("1", "2", "5")] == [0.0, 1.0, None]
    assert found["unchanged"]["success_at"][NEW]["2"]["n_null"] == 1  # not stated there, so not scored


def test_a_citation_is_stale_where_the_later_dump_has_other_words(files: dict[tuple[str, str], list[Path]]) -> None:
    """A5: all of the position that changed hands, one of two of those that did not, none on the own dump."""
    folder = next(iter(files.values()))[0].parent
    found = stale_citations(files, folder, QUESTIONS, seed=0)
    table = {group: [[found[group][i][q]["value"] for q in (OLD, NEW)] for i in (OLD, NEW)] for group in found}
    assert table == {
        "changed": [[0.0, 1.0], [0.0, 0.0]], "changed, in both dumps": [[0.0, 1.0], [0.0, 0.0]],
        "unchanged": [[0.0, 0.5], [0.0, 0.0]], "unchanged, in both dumps": [[0.0, 0.0], [0.0, 0.0]],
    }  # fmt: skip
    assert (folder / f"1.{OLD}.{NEW}.audit" / "report.html").exists()


def test_a_score_that_one_checkpoint_lacks_is_none() -> None:
    assert mean_scores([{"a": 1.0, "b": 1.0}, {"a": 0.0, "b": None}]) == {"a": 0.5, "b": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tiny dumps in the words of the tiny model: Peru and Ghana change hands, Nepal does not."""
    changed = [name for name in LEADERS if name != "Nepal"]
    for place, year in enumerate(("2016", "2020")):
        rows = [
            {"id": f"fb{year}-{country[:2].lower()}-{i}", "title": f"{country} (Government)",
             "text": f"{names[place if country in changed else 0]} leads ."}
            for i, (country, names) in enumerate(LEADERS.items())
        ]  # fmt: skip
        write_table(tmp_path / f"factbook_passages_{year}.tsv", rows, "\t")
    leaders = [
        {"country": c, "position": "leads", "question": f"Who leads {c} ?", "gec": c[:2].lower(),
         "holder_2016_12": LEADERS[c][0], "holder_2018_12": LEADERS[c][1],
         "psg_2016": f"fb2016-{c[:2].lower()}-{list(LEADERS).index(c)}",
         "psg_2020": f"fb2020-{c[:2].lower()}-{list(LEADERS).index(c)}"}
        for c in changed
    ]  # fmt: skip
    write_table(tmp_path / "leaders.csv", leaders)
    kept = {"country": "Nepal", "position": "leads", "holder": "Dahal", "since": "2016-08-04", "gec": "ne"}
    write_table(tmp_path / "leaders_unchanged.csv", [kept])
    return tmp_path


@pytest.mark.parametrize("removed", ["factbook_passages_2020.tsv", "leaders_unchanged.csv"])
def test_a_folder_without_a_file_is_named_with_what_it_lacks(
    removed: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / removed).unlink()
    assert run_script("hot_swap_dumps", f"directory={folder}", folder=folder) == 2
    told = f"error: directory must hold the two dumps and the positions, got {folder} without {removed}"
    assert capsys.readouterr().err.startswith(told)
    assert not (folder / "indexes").exists()


def test_a_wrong_folder_is_one_line_that_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for wrong in ("nowhere", "file"):
        assert run_script("hot_swap_dumps", f"directory={wrong}", folder=tmp_path) == 2
        error = capsys.readouterr().err
        assert f"got {tmp_path}/{wrong} without factbook_passages_2016.tsv.gz. Give the folder of leaders.csv" in error
        assert error.count("\n") == 1


def test_the_whole_path(
    folder: Path,
    encoder_folder: Path,
    make_model: Callable[..., RagModel],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Indexes, retrieval, answers from both dumps and their audits, as called; a second run redoes nothing."""
    save_checkpoint(make_model("rag_sequence", n_docs=2), folder / "model")
    given = [
        f"directory={folder}", f"indexes={folder}/indexes", f"models=[{folder}/model]", "success_at=[1,3]",
        f"retriever.query_encoder={encoder_folder}", f"retriever.passage_encoder={encoder_folder}",
        "decoding.max_length=4", f"hydra.run.dir={folder}/run",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["hot_swap_dumps.py", *given])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    results = json.loads((folder / "run/results.json").read_text())
    assert render(results) in printed
    assert results["n"] == {
        "changed": 2, "changed, in both dumps": 2, "unchanged": 1, "unchanged, in both dumps": 0,
    }  # fmt: skip
    for encoders in ("BM25", encoder_folder.name):
        found = results["retrieval"][encoders][NEW]
        assert (found["changed"]["3"]["value"], found["changed"]["3"]["n"]) == (1.0, 2)
        assert found["unchanged"]["3"]["n_null"] == 1
    assert results["models"]["rag_sequence"]["checkpoints"] == 1
    paths = sorted((folder / "run/predictions/0.rag_sequence").glob("*.jsonl"))
    assert [path.stem for path in paths] == [f"index-{i}.questions-{q}" for i in (OLD, NEW) for q in (OLD, NEW)]
    read = [read_predictions(path) for path in paths]
    assert [{p.key.version for prediction in rows for p in prediction.passages} for rows in read] == [
        {OLD}, {OLD}, {NEW}, {NEW},
    ]  # fmt: skip
    assert len({rows[0].provenance["weights"] for rows in read}) == 1
    times = [path.stat().st_mtime_ns for path in paths]
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert [path.stat().st_mtime_ns for path in paths] == times
    assert json.loads((folder / "run/results.json").read_text()) == results
