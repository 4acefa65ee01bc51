"""The host's work of the next batch runs beside the step: same results, errors in their place, no thread left over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragx.model import RagModel
from ragx.records import Example, Retrieved
from ragx.retriever.bm25 import BM25Retriever
from ragx.training.ahead import Ahead
from ragx.training.loop import train
from ragx.training.metrics_log import TIMINGS, read_metrics
from tests.training.conftest import PASSAGES
from tests.training.test_loop import SETTINGS

MakeModel = Callable[..., RagModel]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_the_next_item_is_done_during_this_one_and_no_other() -> None:
    done = [threading.Event() for _ in range(4)]

    def work(number: int) -> int:
        done[number].set()
        return number * number

    with Ahead(iter(range(3)), work) as ahead:
        results = []
        for number, result in ahead:
            if number < 2:
                assert done[number + 1].wait(20)
            assert not done[min(number + 2, 3)].is_set()
            results.append((number, result))
    assert results == [(0, 0), (1, 1), (2, 4)]
    assert threads() == []


def test_items_are_read_in_the_callers_thread_and_work_is_not() -> None:
    seen: list[str] = []

    def items() -> Iterator[int]:
        for number in range(2):
            seen.append(threading.current_thread().name)
            yield number

    with Ahead(items(), lambda _: threading.current_thread().name) as ahead:
        workers = [name for _, name in ahead]
    assert set(seen) == {threading.current_thread().name}
    assert all(name.startswith("ahead") for name in workers)


@pytest.mark.parametrize("broken", ["work", "items"])
def test_an_error_comes_where_its_item_would_have(broken: str) -> None:
    def items() -> Iterator[int]:
        yield from (0, 1)
        if broken == "items":
            raise ZeroDivisionError("no third item")
        yield 2

    def work(number: int) -> float:
        return 1 / (2 - number) if broken == "work" else float(number)

    got = []
    with pytest.raises(ZeroDivisionError, match="division|third"), Ahead(items(), work) as ahead:
        for number, _ in ahead:
            got.append(number)
    assert got == ([0, 1] if broken == "work" else [0])  # an item is read while the one before it is worked on
    assert threads() == []


def test_leaving_early_ends_the_thread() -> None:
    release = threading.Event()
    with Ahead(iter(range(9)), lambda number: release.wait(20) if number == 1 else True) as ahead:
        next(ahead)
        release.set()
    assert threads() == []


def test_settled_means_that_nothing_is_under_way() -> None:
    release, finished = threading.Event(), threading.Event()

    def work(number: int) -> None:
        if number == 1:
            release.wait(20)
            finished.set()

    with Ahead(iter(range(2)), work) as ahead:
        next(ahead)
        assert not finished.is_set()
        release.set()
        ahead.settle()
        assert finished.is_set()
        next(ahead)
        ahead.settle()  # nothing left: returns at once


def rows_and_weights(model: RagModel, examples: Sequence[Example], run_dir: Path) -> tuple[Any, ...]:
    settings = replace(SETTINGS, steps=4, gradient_accumulation=2, eval_every=2)
    result = train(model, examples, settings=settings, run_dir=run_dir, dev_examples=examples[:2])
    rows = [{k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(result.metrics_path)]
    return rows, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.fixture
def make(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RagModel]:
    def build(retriever: str) -> RagModel:
        model = make_model("rag_token")
        if retriever == "bm25":
            folder = tmp_path_factory.mktemp("bm25") / "index"
            bm25 = BM25Retriever.build(PASSAGES, folder, edition="1")
            return RagModel(kind="rag_token", generator=model.generator, retriever=bm25, n_docs=3)
        model.freeze_query_encoder = retriever == "frozen"
        return model

    return build


@pytest.mark.parametrize(("retriever", "ahead"), [("trained", False), ("frozen", True), ("bm25", True)])
def test_a_search_that_need_not_wait_does_not_and_the_run_is_the_same_to_the_bit(
    retriever: str, ahead: bool, make: Callable[[str], RagModel], examples: list[Example], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    where: list[bool] = []

    def noted(model: RagModel) -> RagModel:
        assert model.retriever is not None
        search = model.retriever.retrieve

        def retrieve(*args: Any, **options: Any) -> Retrieved:
            if model.training:
                where.append(threading.current_thread().name.startswith("ahead"))
            return search(*args, **options)

        model.retriever.retrieve = retrieve  # type: ignore[method-assign]
        return model

    rows, weights = rows_and_weights(noted(make(retriever)), examples, tmp_path / "a")
    assert set(where) == {ahead}
    monkeypatch.setattr(RagModel, "searches_ahead", property(lambda self: False))
    monkeypatch.setattr("ragx.training.step.Stepper.prepare", lambda self, batch: [None, None])
    others, other_weights = rows_and_weights(make(retriever), examples, tmp_path / "b")
    assert rows == others
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(weights, other_weights, strict=True))


def test_an_error_in_preparation_ends_the_run_at_its_step(
    make_model: MakeModel, examples: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, calls = RagModel.prepare, iter(range(100))

    def broken(self: RagModel, *args: Any, **options: Any) -> Any:
        if next(calls) == 2:
            raise ValueError("the third batch cannot be read")
        return prepare(self, *args, **options)

    monkeypatch.setattr(RagModel, "prepare", broken)
    with pytest.raises(ValueError, match="the third batch cannot be read"):
        train(make_model(), examples, settings=replace(SETTINGS, steps=5), run_dir=tmp_path)
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]
    assert threads() == []
