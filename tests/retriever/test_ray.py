"""An index and an encoder that Ray actors share give what one process gives, bit for bit, whoever dies on the way.

A local cluster of three nodes serves all tests; they are skipped where Ray is not installed.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragx.errors import CheckpointError, ConfigError, IndexMismatchError, RagxError, ShapeError
from ragx.filters import PassageFilter
from ragx.records import Passage
from ragx.retriever import ray_encoding
from ragx.retriever.building import Encoding, build_index
from ragx.retriever.dense import DenseRetriever
from ragx.retriever.edition import Edition
from ragx.retriever.manifest import describe_files
from ragx.retriever.passage_encoder import PassageEncoder
from ragx.retriever.ray_actors import Actors
from ragx.retriever.ray_encoding import EncodingWorker, RayPassageEncoder
from ragx.retriever.ray_search import ShardedSearcher, open_sharded

ray = pytest.importorskip("ray", reason="needs the extra `ray`: pip install 'ragx[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
START, PATIENT = 120.0, 300.0  # seconds; the machine may be busy
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes on this machine; skips where the system does not let Ray start a process."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_worker_niceness"] = "0"  # 15 otherwise: beside other busy tests its actors would hardly run
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # where Ray itself may lie
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}}
    found = Cluster()
    try:
        for _ in range(3):
            found.add_node(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False)
        ray.init(address=found.address, log_to_driver=False, runtime_env=environment, logging_level=logging.ERROR)
        try:
            ray.get(ray.remote(lambda: 0).options(num_cpus=0).remote(), timeout=START)
        except ray.exceptions.RayError as error:
            pytest.skip(f"Ray cannot start a process on this machine: {error}")
        yield found
    finally:
        ray.shutdown()
        found.shutdown()


def corpus() -> list[Passage]:
    """Sixty passages, of which every text stands there three times: ties within and across shards."""
    texts = [f"{a} is the {b} of {c}" for a in ("lima", "paris") for b in ("city", "river") for c in
             ("peru", "france", "germany", "europe", "america")]  # fmt: skip
    groups: list[tuple[str, ...]] = [(), ("staff",)]
    return [Passage(f"p{n}", "1", "0", "Peru", texts[n % 20], acl=groups[n % 7 == 3]) for n in range(60)]


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("ray") / "index"
    encoder = PassageEncoder.from_pretrained(checkpoint("context"))
    build_index(corpus(), passage_encoder=encoder, directory=target, edition="1", progress=False)
    return target


@pytest.fixture(scope="module")
def sharded(cluster: Any, folder: Path) -> DenseRetriever:
    """Six shards of ten rows, spread over the nodes."""
    return DenseRetriever.open(folder, open_edition=partial(open_sharded, shards=6, timeout_s=PATIENT))


def queries() -> torch.Tensor:
    return torch.randn(9, 16, generator=torch.Generator().manual_seed(0))


def actors_of(retriever: DenseRetriever) -> Actors:
    searcher = retriever._edition.index._exact
    assert isinstance(searcher, ShardedSearcher)
    return searcher._actors


def assert_same(one: DenseRetriever, other: DenseRetriever, **options: Any) -> None:
    for n_docs in (1, 2, 7, 60):
        a, b = (r.retrieve([""] * 9, n_docs, query_embeds=queries(), **options) for r in (one, other))
        assert a.rows.tolist() == b.rows.tolist() and a.passages == b.passages
        assert a.doc_scores.tobytes() == b.doc_scores.tobytes() and a.index_fingerprint == b.index_fingerprint
        assert a.doc_embeds is not None and b.doc_embeds is not None
        assert a.doc_embeds.tobytes() == b.doc_embeds.tobytes()


def test_six_shards_on_three_nodes_give_what_one_index_gives(folder: Path, sharded: DenseRetriever) -> None:
    """FAULTS D4 and C1: shards are joined by row, never by name, so row r is passage r and ties go by row."""
    single = DenseRetriever.open(folder)
    assert_same(single, sharded)
    found = sharded.retrieve([""], 60, query_embeds=queries()[:1])
    assert (np.diff(found.doc_scores[0]) == 0).sum() >= 40  # three of each text
    assert sorted(found.rows[0].tolist()) == list(range(60))
    assert found.passages[0] == [corpus()[row] for row in found.rows[0].tolist()]
    nodes = {info["NodeID"] for info in map(dict, ray.nodes())}
    assert len(nodes) == 3 and len(actors_of(sharded)) == 6


def test_filters_and_deletions_reach_the_shards(folder: Path, sharded: DenseRetriever) -> None:
    single, everybody = DenseRetriever.open(folder), PassageFilter(acl=())
    for n_docs in (3, 60):
        a, b = (
            r.retrieve([""] * 9, n_docs, query_embeds=queries(), passage_filter=everybody) for r in (single, sharded)
        )
        assert a.rows.tolist() == b.rows.tolist() and a.doc_scores.tobytes() == b.doc_scores.tobytes()
        assert all(row % 7 != 3 for row in b.rows.ravel().tolist())
    assert b.rows.shape == (9, 51)
    own = DenseRetriever(sharded._edition, passage_filter=everybody)
    assert all(row % 7 != 3 for row in own.retrieve([""], 5, query_embeds=queries()[:1]).rows[0].tolist())


def test_an_actor_that_is_killed_is_replaced_and_nothing_changes(
    folder: Path, sharded: DenseRetriever, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS D2: one is told to die by Ray, another by the operating system, between two searches."""
    single, actors = DenseRetriever.open(folder), actors_of(sharded)
    before = list(actors._actors)
    ray.kill(before[1])
    os.kill(pid_of(before[4]), signal.SIGKILL)
    with caplog.at_level(logging.WARNING, "ragx.retriever.ray_actors"):
        assert_same(single, sharded)
    assert [n for n in range(6) if actors._actors[n] is not before[n]] == [1, 4]
    assert sum("died and is started again" in record.message for record in caplog.records) == 2


def pid_of(actor: Any) -> int:
    """The process that an actor runs in."""
    return int(ray.get(actor.__ray_call__.remote(lambda _: __import__("os").getpid()), timeout=PATIENT))


def test_what_an_actor_refuses_is_raised_as_it_is(folder: Path, sharded: DenseRetriever) -> None:
    with pytest.raises(ShapeError, match=r"query_embeds must be \(B, 16\) as the index's vectors are, got \(1, 4\)"):
        sharded.retrieve([""], 2, query_embeds=torch.zeros(1, 4))
    with pytest.raises(ConfigError, match="n_docs must lie between 1 and the 60 passages of the index, got 61"):
        sharded.retrieve([""], 61, query_embeds=queries()[:1])
    with pytest.raises(ConfigError, match="shards must be >= 1, got 0"):
        open_sharded(folder, shards=0)


def test_a_swap_replaces_all_shards_at_once_and_refuses_another_index(
    cluster: Any, folder: Path, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """FAULTS D4: after a swap every row is of the new edition; a shard of the old one never opens the new files."""
    target, opener = tmp_path / "next", partial(open_sharded, shards=2, timeout_s=PATIENT)
    encoder = PassageEncoder.from_pretrained(checkpoint("context"))
    build_index(corpus()[::-1], passage_encoder=encoder, directory=target, edition="2", progress=False)
    retriever = DenseRetriever.open(folder, open_edition=opener)
    retriever.swap(target)
    assert retriever.edition == "2" and isinstance(retriever._edition.index._exact, ShardedSearcher)
    assert_same(DenseRetriever.open(target), retriever)
    before, first = retriever._edition, actors_of(retriever)._actors[0]
    build_index(corpus()[:30], passage_encoder=encoder, directory=target, edition="3", progress=False)
    ray.kill(first)
    with pytest.raises(IndexMismatchError, match=r"fingerprint must agree with the index(.|\n)*next"):
        retriever.retrieve([""], 2, query_embeds=queries()[:1])
    other = tmp_path / "other"
    wrong = PassageEncoder.from_pretrained(checkpoint("context", 1))
    build_index(corpus(), passage_encoder=wrong, directory=other, edition="4", progress=False)
    with pytest.raises(IndexMismatchError, match="encoder_fingerprint must agree"):
        retriever.swap(other)
    assert retriever._edition is before


def test_nothing_waits_for_ever(cluster: Any, folder: Path) -> None:
    """FAULTS D2: actors that no node can take, and one that does not answer, are errors within the timeout."""
    began = time.monotonic()
    with pytest.raises(
        RagxError, match=r"shard 0 must start within 1 s, got nothing. Free in the cluster: CPU.*raylet"
    ):
        open_sharded(folder, shards=2, timeout_s=1.0, options={"resources": {"no_such_thing": 1}})
    assert time.monotonic() - began < 60
    retriever = DenseRetriever.open(folder, open_edition=partial(open_sharded, shards=1, timeout_s=PATIENT))
    actors = actors_of(retriever)
    pid = pid_of(actors._actors[0])
    actors._timeout_s = 1.0
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(RagxError, match="shard 0 must answer within 1 s, got nothing"):
            retriever.retrieve([""], 2, query_embeds=queries()[:1])
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_graph_is_not_searched_in_shards(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    encoder = PassageEncoder.from_pretrained(checkpoint("context"))
    build_index(corpus(), passage_encoder=encoder, directory=tmp_path / "g", edition="1", kind="hnsw", progress=False)
    with pytest.raises(ConfigError, match="index.kind must be flat to be searched in shards, got hnsw in"):
        ShardedSearcher(Edition.open(tmp_path / "g"), shards=2)


def test_ray_data_encodes_to_the_same_bytes_though_an_actor_is_killed(
    cluster: Any, checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS D2: the actor that gets the fourth window dies over it, the first time."""
    killed = tmp_path / "killed"

    class Mortal(EncodingWorker):
        def __call__(self, window: dict[str, np.ndarray], batch_size: int) -> dict[str, Any]:
            if window["start"][0] == 75 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(window, batch_size)

    monkeypatch.setattr(ray_encoding, "EncodingWorker", Mortal)
    local, name = PassageEncoder.from_pretrained(checkpoint("context")), str(checkpoint("context"))
    shared = RayPassageEncoder(local, checkpoint=name, workers=2, timeout_s=PATIENT)
    many = [Passage(f"{n}", "1", "0", p.title, p.text * (n % 3 + 1)) for n in range(5) for p in corpus()]
    many = [Passage(f"{n}", "1", "0", p.title, p.text) for n, p in enumerate(many)][:290]
    parts = [range(n, min(n + 25, 290)) for n in range(0, 290, 25)]
    alone = list(local.encode_windows(many, parts, batch_size=4))
    seen: list[int] = []
    found = list(shared.encode_windows(many, parts, batch_size=4, tell=seen.append))
    assert killed.exists()
    assert [rows for rows, _ in found] == parts and sum(seen) == 290
    assert all(a.tobytes() == b.tobytes() for (_, a), (_, b) in zip(found, alone, strict=True))


def test_ray_data_builds_the_index_that_one_process_builds(
    cluster: Any, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Manifest and files to the byte, with vectors of an older index taken over too."""
    local, name = PassageEncoder.from_pretrained(checkpoint("context")), str(checkpoint("context"))
    shared = RayPassageEncoder(local, checkpoint=name, workers=1, timeout_s=PATIENT)
    for first, encoder in (("one", local), ("many", shared)):
        older = build_index(
            corpus()[:25], passage_encoder=encoder, directory=tmp_path / first / "old", edition="1", progress=False
        )
        encoding = Encoding(vectors_from=tmp_path / first / "old", batch_size=1)
        options: dict[str, Any] = {"edition": "2", "progress": False, "encoding": encoding}
        build_index(corpus(), passage_encoder=encoder, directory=tmp_path / first / "new", **options)
        assert older.count == 25
    for edition in ("old", "new"):
        one, many = tmp_path / "one" / edition, tmp_path / "many" / edition
        assert describe_files(one) == describe_files(many)
        assert (one / "manifest.json").read_bytes() == (many / "manifest.json").read_bytes()


def test_what_a_worker_refuses_is_raised_as_it_is(cluster: Any, checkpoint: Callable[..., Path]) -> None:
    local, other = PassageEncoder.from_pretrained(checkpoint("context")), str(checkpoint("context", 1))
    shared = RayPassageEncoder(local, checkpoint=other, workers=1, timeout_s=PATIENT)
    with pytest.raises(CheckpointError, match=r"passage_encoder .*context-1 must be the same on every machine"):
        shared.encode(corpus())


class Elsewhere(list[Passage]):
    """Passages whose folder a worker does not see."""

    def __reduce__(self) -> Any:
        return open, ("/nowhere/passages",)


def test_workers_that_do_not_see_the_passages_are_one_line(cluster: Any, checkpoint: Callable[..., Path]) -> None:
    local, name = PassageEncoder.from_pretrained(checkpoint("context")), str(checkpoint("context"))
    shared = RayPassageEncoder(local, checkpoint=name, workers=1, timeout_s=PATIENT)
    with pytest.raises(RagxError, match=r"^ray_workers must start and see the folder .*/nowhere/passages'$"):
        shared.encode(Elsewhere(corpus()))


def test_workers_that_no_node_can_take_are_an_error_in_time(cluster: Any, checkpoint: Callable[..., Path]) -> None:
    name, began = checkpoint("context"), time.monotonic()
    shared = RayPassageEncoder(
        PassageEncoder.from_pretrained(name),
        checkpoint=str(name),
        workers=1,
        timeout_s=2.0,
        options={"resources": {"no_such_thing": 1}},
    )
    with pytest.raises(RagxError, match=r"ray_workers must start within 2 s and encode .* got nothing. Free in the"):
        shared.encode(corpus())
    assert time.monotonic() - began < 60
