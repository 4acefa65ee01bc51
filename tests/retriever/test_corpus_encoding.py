"""A corpus is encoded to the same bytes whatever stopped it in between and however many processes took part."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragx.errors import ShapeError
from ragx.records import Passage
from ragx.retriever import corpus_encoding, passage_encoder
from ragx.retriever.corpus_encoding import encode_corpus
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.passages import passages_fingerprint
from ragx.retriever.storage import STORAGES, restored
from tests.retriever.conftest import WORDS

Encode = Callable[..., bytes]


def corpus(count: int = 23) -> list[Passage]:
    """Passages of 1 to 9 words."""
    return [
        Passage(str(row), "1", "0", WORDS[row % 20], " ".join(WORDS[(row * 7 + i) % 36] for i in range(row % 9 + 1)))
        for row in range(count)
    ]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_encoder, "BATCHES_PER_WINDOW", 2)  # 2 batches of 2 rows: six windows


def encode(encoder: PassageEncoder, work: Path, passages: list[Passage] | None = None, **options: Any) -> bytes:
    passages = passages or corpus()
    settings = {"batch_size": 2, "progress": False, **options}
    fingerprint = passages_fingerprint(passages)
    return encode_corpus(passages, work, passage_encoder=encoder, fingerprint=fingerprint, **settings).read_bytes()


class Killed(BaseException):
    """Stands for the end of the process."""


def test_vectors_are_those_of_the_encoder_in_their_rows(encoder: PassageEncoder, tmp_path: Path) -> None:
    expected = encoder.encode(corpus(), batch_size=1)
    for storage, tolerance in (("fp32", 1e-6), ("fp16", 2e-3), ("bf16", 2e-2)):
        encode(encoder, tmp_path / storage, storage=storage)
        array = np.load(tmp_path / storage / "embeddings.npy", allow_pickle=False)
        assert array.dtype == STORAGES[storage]
        np.testing.assert_allclose(restored(array, storage), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("moment", range(1, 7))
@pytest.mark.parametrize("place", ["before the vectors", "before the mark", "after the mark"])
def test_killed_anywhere_it_ends_with_the_same_bytes(
    encoder: PassageEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, moment: int
) -> None:
    whole = encode(encoder, tmp_path / "whole")
    calls = {"count": 0}

    def killing(function: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
        def killed(*arguments: Any, **options: Any) -> Any:
            calls["count"] += 1
            if calls["count"] == moment and not after:
                raise Killed
            result = function(*arguments, **options)
            if calls["count"] == moment:
                raise Killed
            return result

        return killed

    with monkeypatch.context() as patch:
        if place == "before the vectors":
            patch.setattr(corpus_encoding, "stored", killing(corpus_encoding.stored, after=False))
        else:
            journal = corpus_encoding._Journal
            patch.setattr(journal, "mark", killing(journal.mark, after=place == "after the mark"))
        with pytest.raises(Killed, match="^$"):
            encode(encoder, tmp_path / "killed")
    encoded: list[range] = []
    right = PassageEncoder._encode_window

    def counting(self: PassageEncoder, rows: range, *arguments: Any, **options: Any) -> Any:
        encoded.append(rows)
        return right(self, rows, *arguments, **options)

    monkeypatch.setattr(PassageEncoder, "_encode_window", counting)
    assert encode(encoder, tmp_path / "killed") == whole
    done = moment if place == "after the mark" else moment - 1
    assert encoded == [range(start, min(start + 4, 23)) for start in range(4 * done, 23, 4)]  # and nothing twice


def test_a_torn_window_is_written_again(encoder: PassageEncoder, tmp_path: Path) -> None:
    whole = encode(encoder, tmp_path / "work")
    file, done = tmp_path / "work" / "embeddings.npy", tmp_path / "work" / "done"
    torn = bytearray(whole)
    torn[-40:] = b"\x7f" * 40
    file.write_bytes(torn)
    done.write_bytes(b"\x01\x01\x01\x01\x01\x00")
    assert encode(encoder, tmp_path / "work") == whole


@pytest.mark.parametrize("change", ["passages", "order", "storage", "batch_size", "encoder"])
def test_another_encoding_in_the_folder_is_begun_anew(
    encoder: PassageEncoder, checkpoint: Callable[..., Path], tmp_path: Path, change: str
) -> None:
    encode(encoder, tmp_path / "work")
    passages, options, other = corpus(), {}, encoder
    if change == "passages":
        passages[3] = Passage("3", "1", "0", "peru", "berlin")
    elif change == "order":
        passages[3], passages[4] = passages[4], passages[3]
    elif change == "encoder":
        other = PassageEncoder.from_pretrained(checkpoint("context", seed=5))
    else:
        options = {"storage": "fp16"} if change == "storage" else {"batch_size": 3}
    found = encode(other, tmp_path / "work", passages, **options)
    assert found == encode(other, tmp_path / "fresh", passages, **options)


def test_an_encoding_that_ended_is_not_done_again(
    encoder: PassageEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = encode(encoder, tmp_path / "work")
    monkeypatch.setattr(PassageEncoder, "_encode_window", lambda *_, **__: pytest.fail("encoded again"))
    assert encode(encoder, tmp_path / "work") == whole


def test_it_says_how_fast_it_was(
    encoder: PassageEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, logger="ragx"):
        encode(encoder, tmp_path / "work", progress=True)
    assert "encoded 23 passages in" in caplog.text and "a second" in caplog.text
    shown = capsys.readouterr().err
    assert "23/23" in shown and "passage/s" in shown
    (tmp_path / "work" / "done").write_bytes(b"\x01\x01\x01\x01\x00\x00")
    encode(encoder, tmp_path / "work", progress=True)
    assert "16/23" in capsys.readouterr().err  # the bar begins where the run was stopped


def test_no_passage_and_an_unfit_vector_are_refused(encoder: PassageEncoder, tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="passages must hold at least one passage, got none"):
        encode_corpus([], tmp_path / "none", passage_encoder=encoder, fingerprint="")
    broken = encoder._tower.model.ctx_encoder.bert_model.embeddings.word_embeddings.weight
    broken.data[:] = float("nan")
    with pytest.raises(ShapeError, match=r"doc_embeds must be finite, got NaN or infinity for \('\d+', '1', '0'\)"):
        encode(encoder, tmp_path / "nan")


CHILD = """
import os, sys
from pathlib import Path
from accelerate import PartialState
from ragx.retriever import passage_encoder
from ragx.retriever.corpus_encoding import _Journal, encode_corpus
from ragx.retriever.passage_encoder import PassageEncoder
from tests.retriever.test_corpus_encoding import corpus, passages_fingerprint

passage_encoder.BATCHES_PER_WINDOW = 2
state, stop = PartialState(cpu=True), int(sys.argv[3])
marked, mark = [], _Journal.mark

def killing(self, rows):
    if state.process_index == 1 and len(marked) == stop:
        os.kill(os.getpid(), 9)
    mark(self, rows)
    marked.append(rows)

_Journal.mark = killing
encode_corpus(
    corpus(), Path(sys.argv[2]), passage_encoder=PassageEncoder.from_pretrained(sys.argv[1]),
    fingerprint=passages_fingerprint(corpus()), batch_size=2, processes=state,
)
os.write(1, f"{state.process_index} {len(marked)}\\n".encode())  # at once: two processes share the pipe
"""


@pytest.mark.slow
def test_two_processes_one_of_them_killed_write_the_bytes_of_one(
    encoder: PassageEncoder, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    whole = encode(encoder, tmp_path / "one")
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]

    def run(work: str, stop: int) -> subprocess.CompletedProcess[str]:
        command = [*launcher, str(checkpoint("context")), str(tmp_path / work), str(stop)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)

    done = run("two", 99)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")[:2]) == ["0 3", "1 3"]  # windows of each
    assert "23/23" in done.stderr  # the main process counts the other's passages in
    assert (tmp_path / "two" / "embeddings.npy").read_bytes() == whole
    assert run("killed", 1).returncode != 0  # an end, not a hang (FAULTS D2)
    marks = (tmp_path / "killed" / "done").read_bytes()
    assert 1 <= sum(marks) < 6
    assert run("killed", 99).returncode == 0
    assert (tmp_path / "killed" / "embeddings.npy").read_bytes() == whole
    note = json.loads((tmp_path / "killed" / "encoding.json").read_text())
    assert note["shape"] == [23, 16]
