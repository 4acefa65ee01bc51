"""What may happen to an index after it was built, through the scripts: edits, filters by question, live refresh."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ragx.data.predictions import read_predictions
from ragx.retriever.manifest import Manifest
from ragx.retriever.passages import PassageStore
from tests.scripts import metrics
from tests.user_files import ANSWER, COUNTRIES, TRAIN

Run = Callable[..., int]


def test_an_index_is_edited_as_a_user_does(
    run: Run, folder: Path, encoders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Deleted, replaced and added through the script, vectors and words; what cannot be is one line."""
    built = ["data.passages=2016.tsv", "data.edition=2016"]
    assert run("build_index", *encoders, *built, "index.directory=edited", "index=hnsw", into="for-edit") == 0
    assert (
        run("build_index", "retriever=bm25", "index=bm25", *built, "index.directory=edited-bm25", into="for-words") == 0
    )
    (folder / "gone.txt").write_text(f"{COUNTRIES[0].lower()}\n\n")
    changed = {"id": COUNTRIES[1].lower(), "title": COUNTRIES[1], "text": "Nobody leads it."}
    (folder / "changed.jsonl").write_text(json.dumps(changed) + "\n")
    (folder / "new.jsonl").write_text(json.dumps({"id": "ghana", "title": "Ghana", "text": "Ama leads Ghana."}) + "\n")
    encoder = encoders[1].replace("retriever.", "")
    for index in ("edited", "edited-bm25"):
        where = f"index.directory={index}"
        third = f'delete=["{COUNTRIES[2].lower()}@2016#0"]'
        assert run("edit_index", where, "delete_from=gone.txt", third, into="go") == 0
        edits = ["replace=changed.jsonl", "add=new.jsonl", "edition=2018"]
        if index == "edited":
            assert run("edit_index", where, *edits, into="no-encoder") == 2
            assert "passage_encoder must be given to add text to an index of vectors" in capsys.readouterr().err
        assert run("edit_index", where, *edits, encoder, into="edit") == 0
        kept = [key.lower() for key in COUNTRIES[3:]]
        found = PassageStore.open(folder / index / "passages")
        assert [(p.source, p.version) for p in found] == [
            *((key, "2016") for key in kept), (COUNTRIES[1].lower(), "2018"), ("ghana", "2018"),
        ]  # fmt: skip
        assert Manifest.read(folder / index).edition == "2018"
    assert run("edit_index", "index.directory=edited", into="nothing") == 2
    assert "delete, replace or add must be given, got none of them" in capsys.readouterr().err
    assert run("edit_index", "index.directory=edited", "delete=[atlantis]", into="unknown") == 2
    assert "delete must name passages of the index, got 'atlantis'" in capsys.readouterr().err


def test_each_question_sees_what_its_row_allows(run: Run, folder: Path, encoders: list[str], bart: str) -> None:
    """`by_question`, through training, answering and scoring; a row without groups sees what is everybody's."""
    rows = [
        {"id": "now", "title": "Peru", "text": "B leads Peru.", "valid_from": "2018"},
        {"id": "then", "title": "Peru", "text": "A leads Peru.", "valid_to": "2017"},
        {"id": "secret", "title": "Peru", "text": "C leads Peru.", "acl": ["staff"]},
        {"id": "always", "title": "Peru", "text": "Peru is led."},
        {"id": "too", "title": "Peru", "text": "Peru has leaders."},
    ]
    (folder / "dated.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [
        {"id": "1", "question": "Who leads Peru?", "answers": ["A"], "as_of": "2016-12", "gold": [["then", "1", "0"]]},
        {"id": "2", "question": "Who leads Peru?", "answers": ["B"], "as_of": "2019", "acl": ["staff"]},
        {"id": "3", "question": "Who leads Peru?", "answers": ["B"]},
    ]
    (folder / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    index = ["index.directory=dated", "data.passages=dated.jsonl", "data.edition=1", encoders[1]]
    assert run("build_index", *index, into="for-dated") == 0
    mine = ["retriever.filter.by_question=[acl,as_of]", *index]
    small = ["data.train=asked.jsonl", "training.batch_size=3"]
    assert run("train", *mine, *TRAIN, *small, encoders[0], bart, into="train-dated") == 0
    trained = "model.checkpoint=runs/train-dated/checkpoints/last"
    given = [trained, *ANSWER, "data.questions=asked.jsonl", "model.n_docs=5", "output=dated-answers.jsonl"]
    assert run("generate", *mine, *given, into="generate-dated") == 0
    found = {p.id: p for p in read_predictions(folder / "dated-answers.jsonl")}
    seen = {name: {passage.key.source for passage in p.passages} for name, p in found.items()}
    assert seen == {
        "1": {"then", "always", "too"},
        "2": {"now", "secret", "always", "too"},
        "3": {"now", "then", "always", "too"},
    }
    assert all(sum(p.prior for p in one.passages) == pytest.approx(1, abs=1e-5) for one in found.values())
    assert found["1"].provenance["filtered_by"] == ["acl", "as_of"]
    scored = ["data.questions=asked.jsonl", "success_at=[3]"]
    assert run("evaluate_retrieval", *mine, *scored, encoders[0], into="score-dated") == 0
    assert metrics(folder, "score-dated")["success_at"]["3"]["value"] == 1.0  # all three that it may see


def test_the_passage_encoder_learns_and_its_old_index_is_refused(
    run: Run, folder: Path, encoders: list[str], bart: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`training.live_refresh`, as a user runs it: train, answer over the refreshed index, and the refusals."""
    old = ["index.directory=old", encoders[1]]
    assert run("build_index", *old, "data.passages=2016.tsv", into="for-live") == 0
    live = ["training.live_refresh=1", "training.query_encoder_lr=0.01", "training.steps=3"]
    assert run("train", *old, *TRAIN, *live, encoders[0], bart, into="live") == 0
    last = "runs/live/checkpoints/last"
    asked = [*ANSWER, f"model.checkpoint={last}", "output=live.jsonl"]
    new = ["index.directory=runs/live/index", f"retriever.passage_encoder={last}/passage_encoder"]
    assert run("generate", *asked, *new, into="live-generate") == 0
    assert len(read_predictions(folder / "live.jsonl")) == len(COUNTRIES)
    assert run("generate", *asked, *old, "output=x.jsonl", into="live-old") == 2
    assert (
        "It learned with the model: python scripts/build_index.py retriever.passage_encoder=" in capsys.readouterr().err
    )
    scored = ["data.questions=2016.jsonl", "data.passages=2016.tsv", "success_at=[1]"]
    learned = f"retriever.query_encoder={last}/query_encoder"
    assert run("evaluate_retrieval", *scored, *new, learned, into="live-score") == 0
    assert run("evaluate_retrieval", *scored, *old, learned, into="live-old-score") == 2
    assert "retriever must be over vectors of passage encoder" in capsys.readouterr().err
    assert run("train", "retriever=bm25", "index=bm25", *TRAIN, *live, bart, into="live-bm25") == 2
    assert "training.live_refresh must be 0 but with retriever.kind dense and no reranker" in capsys.readouterr().err
