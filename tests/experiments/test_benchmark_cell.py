"""What a row is computed from: times, memory, agreement, and the processes of the two sides."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ragx.errors import ConfigError, RagxError
from ragx.experiments.benchmarks import agreement, cell, report, train
from ragx.experiments.benchmarks.batches import FixedBatch, Lengths, fixed_batch
from ragx.experiments.benchmarks.meter import Meter, Seconds
from ragx.experiments.benchmarks.peer import Peer
from ragx.experiments.benchmarks.sizes import PRESETS, Setup
from ragx.experiments.benchmarks.worker import Elsewhere, Here, Machine, Side, Worker

MACHINE = Machine("cpu", "fp32", threads=1, least_seconds=0.0)
ROW = {
    "work": "loss", "kind": "rag_token", "ours_s": 0.5, "peer_s": 1.0, "ratio": 2.0, "ratio_min": 1.5,
    "ratio_max": 2.5, "ours_mib": 10.0, "peer_mib": 40.0, "memory_ratio": 0.25, "difference": 1e-6,
}  # fmt: skip


class Sleeper(Side):
    """A step of a known time that remembers which inputs it read."""

    def __init__(self, seconds: float = 0.0, *, fails: bool = False, dies: bool = False) -> None:
        self.n_batches, self.duration, self.fails, self.dies = 2, seconds, fails, dies
        self.read: list[int] = []

    def check(self) -> dict[str, Tensor]:
        return {"value": torch.ones(2)}

    def step(self, number: int) -> None:
        self.read.append(number)
        if self.dies:
            os._exit(3)
        if self.fails:
            raise ConfigError(["step must not fail, got a failure.", "It failed twice."])
        time.sleep(self.duration)


def test_ratios_come_from_pairs_and_seconds_from_sides() -> None:
    pairs = [
        (Seconds(1.0, 2.0), Seconds(3.0, 2.0)),
        (Seconds(2.0, 2.0), Seconds(2.0, 8.0)),
        (Seconds(4.0, 1.0), Seconds(8.0, 1.0)),
    ]
    wall = cell.summary(pairs, clock="wall")
    assert wall == {"ours_s": 2.0, "peer_s": 3.0, "ratio": 2.0, "ratio_min": 1.0, "ratio_max": 3.0}  # not 3/2
    assert cell.summary(pairs, clock="cpu")["ratio_max"] == 4.0


def test_memory_ratio_is_our_share_and_none_where_nothing_was_measured() -> None:
    assert cell.memory(10.0, 40.0) == {"ours_mib": 10.0, "peer_mib": 40.0, "memory_ratio": 0.25}
    assert cell.memory(None, None)["memory_ratio"] is None
    assert cell.memory(1.0, 0.0)["memory_ratio"] is None


def test_utilisation_is_operations_over_what_the_device_can_do() -> None:
    shares = cell.utilisation(int(4e12), 1e13, {"ours_s": 1.0, "peer_s": 2.0})
    assert shares == {"step_tflop": 4.0, "matmul_tflops": 10.0, "ours_mfu": 0.4, "peer_mfu": 0.2}


def test_a_cell_runs_both_sides_in_turn_over_all_inputs() -> None:
    order: list[str] = []

    class Noted(Sleeper):
        def __init__(self, name: str, seconds: float) -> None:
            super().__init__(seconds)
            self.name = name

        def step(self, number: int) -> None:
            super().step(number)
            order.append(f"{self.name}{number}")

    protocol = cell.Protocol(MACHINE, pairs=3, warmup=1, clock="wall", isolate=False, profile=False)
    made = cell.Cell({"n_docs": 1}, partial(Noted, "ours", 0.02), partial(Noted, "peer", 0.06), items=6)
    row, profile = cell.measure(made, protocol)
    assert order[:8] == ["ours0", "peer0", "ours0", "peer0", "ours1", "peer1", "ours2", "peer2"]
    assert row["n_docs"] == 1 and row["difference"] == 0.0 and profile == ""
    assert 1.5 < row["ratio"] < 4.5  # sleeps last a little longer on a busy machine
    assert row["ours_per_s"] == pytest.approx(6 / row["ours_s"])


def test_short_steps_are_repeated_until_a_run_is_long_enough() -> None:
    side = Sleeper(0.01)
    worker = Worker(lambda: side, Machine("cpu", "fp32", threads=1, least_seconds=0.05))
    worker.warm_up(1)
    assert 2 <= worker.repeats <= 5
    side.read.clear()
    assert worker.seconds(1).wall < 0.05  # of one step
    assert side.read == [1] * worker.repeats


def test_memory_is_the_peak_beyond_what_is_held() -> None:
    meter, held = Meter("cpu"), torch.ones(8 * 2**20)

    def work() -> None:
        torch.ones(16 * 2**20).sum()  # 64 MiB that are free again afterwards

    found = meter.extra_mib(work)
    if found is None:
        pytest.skip("needs /proc/self/clear_refs")
    assert 60 < found < 80
    nothing = meter.extra_mib(lambda: None)
    assert nothing is not None and nothing < 4 and held.numel()


def test_the_rate_of_a_product_is_what_a_timed_product_shows() -> None:
    meter, square = Meter("cpu"), torch.randn(1024, 1024)
    timed = 2 * 1024**3 / meter.seconds(lambda: square @ square, repeats=3).wall
    assert timed / 20 < meter.matmul_rate(torch.float32) < timed * 20  # a busy machine is slow now and then


def test_operations_of_a_step_are_counted() -> None:
    """Twice the batch, twice the operations, of which the LM head's are a part that is easily counted by hand."""

    def flops(batch_size: int) -> int:
        setup = Setup(PRESETS["tiny"], 0, "rag_token", n_docs=2, device="cpu", max_input_length=64)
        batch = fixed_batch(setup, batch_size=batch_size, lengths=Lengths(5, 9, 4))
        return train.TrainSide(Peer, setup, lambda: [batch], "fp32").flops()

    head = 2 * 3 * (2 * 2 * 4) * 32 * 400  # three products of (B*K*T, D) and (D, V)
    assert flops(4) == 2 * flops(2) > 2 * head


def test_values_may_differ_by_rounding_alone() -> None:
    peer = {
        "nll": torch.tensor([10.0, 20.0]),
        "gradient of a/w": torch.tensor([1.0]),
        "gradient of a/b": torch.tensor([1e-9]),
    }
    ours = {**peer, "nll": torch.tensor([10.0, 20.001]), "gradient of a/b": torch.tensor([-1e-7])}
    assert agreement.values(ours, peer)["difference"] == pytest.approx(5e-5, rel=0.01)
    for name, wrong in [("nll", [10.0, 20.01]), ("nll", [10.0, float("nan")]), ("gradient of a/b", [1e-4])]:
        with pytest.raises(RagxError, match=f"{name} must agree with the peer to 0.0001"):
            agreement.values({**ours, name: torch.tensor(wrong)}, peer)


def test_values_must_be_of_the_same_things() -> None:
    peer = {"nll": torch.ones(2), "gradient": torch.ones(3)}
    with pytest.raises(RagxError, match=r"both sides must compute the same things, got \['gradient'\] on one alone"):
        agreement.values({"nll": torch.ones(2)}, peer)
    with pytest.raises(RagxError, match=r"nll must have one shape on both sides, got \(3,\) beside \(2,\)"):
        agreement.values({**peer, "nll": torch.ones(3)}, peer)


def results(ids: list[list[int]], logprobs: list[float]) -> dict[str, Tensor]:
    return {"ids": torch.tensor(ids), "logprob": torch.tensor(logprobs)}


def test_answers_that_differ_must_be_equally_probable() -> None:
    peer = results([[5, 2, -1], [6, 7, 2]], [-3.0, -9.0])
    assert agreement.answers(results([[5, 2], [8, 2]], [-3.0, -9.0001]), peer)["same"] == 0.5
    for other in (-9.1, -8.9):
        with pytest.raises(RagxError, match="logprob must agree"):
            agreement.answers(results([[5, 2], [8, 2]], [-3.0, other]), peer)


def test_an_approximate_search_may_find_worse_answers_but_no_better_ones() -> None:
    peer = results([[5, 2], [6, 2]], [-3.0, -9.0])
    assert agreement.no_better_answers(results([[5, 2], [7, 2]], [-3.0, -11.0]), peer) == {"same": 0.5}
    with pytest.raises(RagxError, match="answers must be at most as probable as the best, got one that exceeds it"):
        agreement.no_better_answers(results([[5, 2], [7, 2]], [-3.0, -8.0]), peer)


def test_inputs_depend_on_the_seed_alone_and_have_their_lengths() -> None:
    def batch(seed: int) -> FixedBatch:
        setup = Setup(PRESETS["tiny"], seed, "rag_token", n_docs=3, device="cpu", max_input_length=64)
        return fixed_batch(setup, batch_size=2, lengths=Lengths(5, 9, 4))

    first, again, other = batch(0), batch(0), batch(1)
    assert [tuple(t.shape) for t in vars(first).values()] == [(2, 5), (6, 9), (2, 3), (2, 3, 32), (2, 3)]
    assert all(torch.equal(t, vars(again)[name]) for name, t in vars(first).items())
    assert not torch.equal(first.context_ids, other.context_ids)


def test_the_table_shows_settings_figures_and_what_they_mean() -> None:
    lines = report.table([ROW, {**ROW, "ratio": 10.0}]).splitlines()
    assert lines[1].split() == "kind ours s peer s ratio (min - max) ours MiB peer MiB memory".split()
    assert lines[2].split() == "rag_token 0.500 1.00 2.00 (1.50 - 2.50) 10.0 40.0 0.250".split()
    assert "attention mask" not in lines[-1]
    assert "attention mask" in report.table([{**ROW, "peer_mask": True}])
    assert report.table([{**ROW, "ours_mib": None, "memory_ratio": None}]).splitlines()[2].split()[-3:] == [
        "-",
        "40.0",
        "-",
    ]


def test_results_replace_older_ones_whole(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text("old")
    with pytest.raises(TypeError, match="not JSON serializable"):
        report.write(path, [{**ROW, "ratio": object()}], settings={"device": "cpu"})
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_a_side_in_a_process_of_its_own(tmp_path: Path) -> None:
    """It answers, its errors arrive as they were said, and its death is told from an error."""
    with closing(Elsewhere(partial(Sleeper, 0.0), MACHINE, name="ours")) as side:
        side.call("check", tmp_path / "checked.safetensors")
        assert (tmp_path / "checked.safetensors").exists() and side.call("seconds", 0).wall >= 0
    with closing(Elsewhere(partial(Sleeper, fails=True), MACHINE, name="peer")) as side:
        with pytest.raises(RagxError, match="step must not fail, got a failure.\nIt failed twice."):
            side.call("seconds", 0)
    with closing(Elsewhere(partial(Sleeper, dies=True), MACHINE, name="peer")) as side:
        with pytest.raises(RagxError, match="the process of peer must live to the end"):
            side.call("seconds", 0)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_side_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """The parent has no time to clean up; a worker that outlived it would hold its memory for ever."""
    script = (
        "import os, signal, sys\n"
        "from tests.experiments import test_benchmark_cell as cell\n"
        "if __name__ == '__main__':\n"
        "    side = cell.Elsewhere(cell.Sleeper, cell.MACHINE, name='ours')\n"
        "    print(side.call('process_id'), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "killed.py").write_text(script, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(tmp_path / "killed.py")]
    # The worker has our pipe as its own output: this waits for its end too.
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    status = Path(f"/proc/{int(ended.stdout)}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_threads_are_put_back_after_a_side_in_this_process() -> None:
    before = torch.get_num_threads()
    with closing(Here(Sleeper, Machine("cpu", "fp32", threads=before + 1, least_seconds=0.0), name="ours")):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
