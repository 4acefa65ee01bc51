"""Every work of the benchmark with the tiny preset: whole rows, and no row where the sides differ."""

from __future__ import annotations

import gzip
import json
import math
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from transformers import AutoTokenizer

from ragx import config
from ragx.errors import ConfigError, DataError, RagxError
from ragx.experiments.benchmarks import ours, peer, run, texts
from ragx.experiments.benchmarks.agreement import TOLERANCE
from ragx.experiments.benchmarks.options import WORKS, Benchmark
from ragx.experiments.benchmarks.run import benchmark
from ragx.losses import rag_token

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = [
    "preset=tiny", "n_docs=[2]", "batch_sizes=[2]", "query_length=6", "context_length=12", "target_length=5",
    "num_beams=2", "max_answer_length=4", "max_input_length=64", "batches=2", "corpus_size=10", "sizes=[300x8]",
    "index_kinds=[flat]",
    "threads=1", "pairs=2", "least_seconds=0", "isolate=false",
]  # fmt: skip
COUNTRIES = ["Peru", "Chile", "Ghana", "Japan", "Kenya", "Norway", "Nepal", "Egypt", "Spain", "Cuba", "Iran", "Iraq"]
FIGURES = {"work", "ours_s", "peer_s", "ratio", "ratio_min", "ratio_max", "ours_mib", "peer_mib", "memory_ratio"}
OWN = {
    "loss": {"kind", "difference"},
    "train": {"kind", "difference"},
    "train_text": {"kind", "difference"},
    "decode": {"decoder", "same", "peer_mask", "num_beams"},
    "decode_text": {"decoder", "same", "peer_mask", "num_beams"},
    "encode": {"encoder", "passages", "difference", "ours_per_s", "peer_per_s"},
    "search": {
        "vectors",
        "dimension",
        "index",
        "recall",
        "build_s",
        "index_mib",
        "same",
        "difference",
        "ours_per_s",
        "peer_per_s",
    },
}
Options = Callable[..., Benchmark]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """Resolves configs/benchmark.yaml, shrunk, over a small corpus of real text."""
    folder = tmp_path_factory.mktemp("texts")
    passages = [
        {"id": c, "title": c, "text": f"The  capital of {c} is {c[:3]}ville, {'far ' * n}away."}
        for n, c in enumerate(COUNTRIES)
    ]
    questions = [{"question": f"What is the capital of {c}?", "answers": [f"{c[:3]}ville"]} for c in COUNTRIES]
    for name, rows in (("passages", passages), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def make(*overrides: str) -> Benchmark:
        files = [f"{name}={folder}/{name}.jsonl" for name in ("passages", "questions")]
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return config.resolve(compose("benchmark", overrides=[*SMALL, *files, *overrides]), Benchmark)

    return make


def measured(options: Benchmark, output: Path) -> list[dict[str, Any]]:
    return benchmark(options, output=output, tell=lambda line: None)


def test_every_work_has_a_function() -> None:
    assert tuple(run.WORKS) == WORKS


@pytest.mark.parametrize("work", OWN)
def test_rows_are_whole(work: str, options: Options, tmp_path: Path) -> None:
    rows = measured(options(f"work={work}"), tmp_path / "bench.json")
    written = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert written["rows"] == rows
    assert [row["work"] for row in rows] == [work] * {"encode": 1, "search": 1, "decode": 3, "decode_text": 3}.get(
        work, 2
    )
    for row in rows:
        assert FIGURES | OWN[work] <= row.keys()
        assert 0 < row["ratio_min"] <= row["ratio"] <= row["ratio_max"] < math.inf
        assert row["ours_s"] > 0 and row["peer_s"] > 0
        assert row.get("difference", 0.0) <= TOLERANCE and row.get("same", 1.0) == 1.0
        if "ours_per_s" in row:
            items = 10 if work == "encode" else 2
            assert row["ours_per_s"] * row["ours_s"] == pytest.approx(items) == row["peer_per_s"] * row["peer_s"]
    if work in ("decode", "decode_text"):  # a mask where inputs are padded, for the class that lacks it
        masked = {"decode": [False] * 3, "decode_text": [False, True, True]}[work]
        assert [row["peer_mask"] for row in rows] == masked
    assert written["settings"]["work"] == work
    assert written["machine"]["versions"]["torch"] == torch.__version__
    assert platform.node() not in json.dumps(written["machine"]).split('"')


def test_without_its_mask_the_peer_is_reported_and_not_believed(options: Options, tmp_path: Path) -> None:
    (row,) = measured(options("work=decode_text", "decoders=[thorough]", "peer_mask=false"), tmp_path / "bench.json")
    assert row["peer_mask"] is False and 0 <= row["same"] < 1  # padding changed its answers


def test_another_loss_gives_no_row(options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ours.MARGINALIZE["rag_token"]
    monkeypatch.setitem(ours.MARGINALIZE, "rag_token", lambda tokens, docs: right(tokens, docs) * 1.001)
    monkeypatch.setattr(rag_token, "marginalize", lambda tokens, docs: right(tokens, docs) * 1.001)
    for work in ("loss", "train"):
        message = r"(nll|gradient).* must agree with the peer to 0.0001, got a relative difference of 0.001"
        with pytest.raises(RagxError, match=message):
            measured(options(f"work={work}", "kinds=[rag_token]"), tmp_path / "bench.json")
    assert not (tmp_path / "bench.json").exists()


def test_another_gradient_gives_no_row(options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prior's gradient alone is turned off: losses are equal and the retriever learns nothing."""
    right = ours.prior.doc_logprobs
    monkeypatch.setattr(ours.prior, "doc_logprobs", lambda scores: right(scores).detach() + 0 * right(scores))
    with pytest.raises(RagxError, match="gradient of query_encoder/.* must agree with the peer"):
        measured(options("work=train", "kinds=[rag_sequence]"), tmp_path / "bench.json")


@pytest.mark.parametrize(("decoder", "message"), [("token_beam", "must agree"), ("thorough", "must agree")])
def test_other_answers_give_no_row(
    decoder: str, message: str, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_words(*arguments: Any, **options: Any) -> Any:
        return [[type(h)((7, 8, 9, 2), 0.0) for h in found[:1]] for found in right(*arguments, **options)]

    right = ours.DECODERS[decoder]
    monkeypatch.setitem(ours.DECODERS, decoder, first_words)
    with pytest.raises(RagxError, match=f"logprob {message}"):
        measured(options("work=decode", f"decoders=[{decoder}]"), tmp_path / "bench.json")


def test_rows_so_far_are_on_disk_when_a_later_cell_fails(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ours.MARGINALIZE["rag_token"]
    monkeypatch.setitem(ours.MARGINALIZE, "rag_token", lambda tokens, docs: right(tokens, docs) + 1)
    with pytest.raises(RagxError, match="nll must agree"):
        measured(options("work=loss"), tmp_path / "bench.json")
    rows = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))["rows"]
    assert [row["kind"] for row in rows] == ["rag_sequence"]


def test_a_profile_names_operations(options: Options, tmp_path: Path) -> None:
    told: list[str] = []
    benchmark(options("work=loss", "kinds=[rag_token]", "profile=true"), output=tmp_path / "b.json", tell=told.append)
    assert "Self CPU" in told[1] and "aten::mm" in told[1]


def test_a_class_that_transformers_lacks_is_named(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(peer.CLASSES, "rag_token", "RagTokenOfTomorrow")
    with pytest.raises(
        RagxError, match="transformers must offer RagTokenOfTomorrow, the peer of rag_token, got version"
    ):
        measured(options("work=decode"), tmp_path / "bench.json")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("work=trian", "work must be one of loss, train, train_text, .* got 'trian'"),
        ("preset=huge", "preset must be one of tiny, mid, bart-base, bart-large, got 'huge'"),
        ("kinds=[closed_book]", "kinds must be one or more of rag_sequence, rag_token, got"),
        ("decoders=[]", "decoders must be one or more of token_beam, thorough, fast, got"),
        ("pairs=0", "pairs must be >= 1, got 0"),
    ],
)
def test_bad_options_are_named(override: str, message: str, options: Options) -> None:
    with pytest.raises(ConfigError, match=message):
        options("work=loss", override)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["work=search", "sizes=[300by8]"], "sizes must be written as 100000x768, vectors x dimension, got '300by8'"),
        (["work=train_text", "batches=7"], r"questions must hold 14 with answers .* got 12"),
        (["work=encode", "corpus_size=100"], "corpus_size must be at most the 12 passages, got 100"),
    ],
)
def test_what_the_data_cannot_give_is_named(
    overrides: list[str], message: str, options: Options, tmp_path: Path
) -> None:
    with pytest.raises(RagxError, match=message):
        measured(options(*overrides), tmp_path / "bench.json")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there_is_named(options: Options, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device must be cpu where torch finds no GPU, got cuda"):
        measured(options("work=loss", "device=cuda"), tmp_path / "bench.json")


def test_passages_are_cut_cleaned_and_titled(options: Options, tmp_path: Path) -> None:
    (first, second) = texts.cut(texts.read_passages(options("work=encode"), tmp_path)[:1], words=5)
    assert (first.title, first.text, first.chunk) == ("Peru", "The capital of Peru is", "0.0")
    assert (second.text, second.chunk) == ("Perville, away.", "0.1")


def test_passages_that_would_be_cut_are_left_out(options: Options, tmp_path: Path) -> None:
    """The peer would cut the question there, ours the passage: the two would read different inputs."""
    whole = texts.Texts(options("work=encode"), tmp_path / "whole")
    tokenizer = AutoTokenizer.from_pretrained(Path(whole.tokenizers) / "generator")
    longest = max(map(len, tokenizer([f" // {e.query}" for e in whole.examples])["input_ids"]))
    lengths = sorted(map(len, tokenizer([f"{p.title} / {p.text}" for p in whole.passages])["input_ids"]))
    assert len(lengths) == 12 and lengths[0] < lengths[-1]
    room = longest + lengths[-1] - 1  # one token short for the longest
    fewer = texts.Texts(options("work=encode", f"max_input_length={room}"), tmp_path / "fewer").passages
    assert len(fewer) == sum(length < lengths[-1] for length in lengths) > 0


def test_a_plain_table_is_read_letter_by_letter(options: Options, tmp_path: Path) -> None:
    table = tmp_path / "plain.tsv.gz"
    rows = ["id\ttext\ttitle", '1\t"Flight" is an episode.\t"Flight"', '2\tNothing "odd".\tPlain']
    table.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    read = texts.read_passages(options("work=encode", f"passages={table}", "plain_tsv=true"), tmp_path)
    assert [(p.source, p.title, p.text) for p in read] == [
        ("1", '"Flight"', '"Flight" is an episode.'),
        ("2", "Plain", 'Nothing "odd".'),
    ]
    table.write_bytes(gzip.compress(b"id\ttext\ttitle\n1\tno title\n"))
    with pytest.raises(DataError, match=r"plain.tsv.gz:2: row must have 3 fields, got 2"):
        texts.read_passages(options("work=encode", f"passages={table}", "plain_tsv=true"), tmp_path)


@pytest.mark.slow
@pytest.mark.shared
def test_the_shared_questions_and_passages_are_read(options: Options, tmp_path: Path, shared: Path) -> None:
    folder = shared / "nq_qed"
    files = [f"questions={folder}/dev.jsonl.gz", f"passages={folder}/passages.tsv.gz", "plain_tsv=true"]
    found = texts.Texts(options("work=train_text", "max_input_length=1000", "n_docs=[5]", *files), tmp_path)
    assert len(found.passages) > 8_000
    (first, _) = found.batches(n_docs=5, batch_size=2)
    assert first.queries[0] == "who got the first nobel prize in physics"
    assert "Nobel" in first.passages[0][0].text and first.doc_embeds.shape == (2, 5, 32)
