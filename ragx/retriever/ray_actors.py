"""Ray actors that do a share of the work each (extra `ray`): started, asked, and started again where one dies.

What an actor returns must depend on its arguments and the call alone. Then a call that an actor died over is asked of
its successor and nobody sees a difference. One decision: nothing waits for ever. An actor that cannot be placed, or
that does not answer within the timeout, is an error that says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from ragx.errors import ConfigError, RagxError

_RESTARTS = 3  # of one actor within one call; more is no accident
Result = TypeVar("Result")
_logger = logging.getLogger(__name__)


def import_ray() -> Any:
    """The `ray` package.

    Raises:
        ConfigError: it is not installed; the message has the command.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(["ray must be installed to use actors, got none. Run: pip install 'ragx[ray]'"]) from error
    return ray


def start_ray() -> Any:
    """The `ray` package, connected to its cluster, or to one of this machine alone where there is none.

    Ray ends what it started when the thread that started it ends, so this is no work for a thread with a timeout.

    Raises:
        ConfigError: as `import_ray`.
        RagxError: no cluster came up.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ray
    _logger.info("connecting to Ray; if this takes minutes, `ray stop` forgets a cluster that is gone")
    try:
        ray.init(logging_level=logging.WARNING, log_to_driver=False)
    except Exception as error:  # Ray raises no class of its own where a node does not come up
        advice = "Run `ray stop` and start a cluster with `ray start --head`, or set workers and shards to 0"
        got = (str(error).splitlines() or [type(error).__name__])[0]
        raise RagxError(f"ray must start here, got: {got} {advice}") from error
    return ray


def within(seconds: float, step: Callable[[], Result]) -> Result:
    """What `step` returns, or `TimeoutError`; then its thread is left to itself, for nothing can end it."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(step())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True, name="ray").start()
    return outcome.result(timeout=seconds)


def free_resources() -> str:
    """What to look at where nothing came in time."""
    free = import_ray().available_resources()
    return (
        f"Free in the cluster: {', '.join(f'{name} {free[name]:g}' for name in ('CPU', 'GPU') if name in free)}. "
        "Where a worker process cannot start, raylet.err in Ray's logs says why"
    )


class Actors:
    """Actors of one class, one for each tuple of constructor arguments. Safe to ask from many threads.

    Args:
        worker: a class of an importable module whose `ready()` does what takes time or may fail.
        arguments: of the constructors.
        name: of one of them, for messages.
        timeout_s: seconds to start in, and to answer in.
        options: of Ray for each actor, such as `num_gpus`; by default one takes no CPU slot, so that there is room.

    Raises:
        RagxError: Ray or an actor did not start in time, or what its `ready()` raised.
    """

    def __init__(
        self,
        worker: type,
        arguments: Sequence[tuple[Any, ...]],
        *,
        name: str,
        timeout_s: float,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._ray = start_ray()
        settled = {"num_cpus": 0, "scheduling_strategy": "SPREAD", "max_restarts": 0, **(options or {})}
        self._class = self._ray.remote(worker).options(**settled)
        self._arguments, self._name, self._timeout_s = list(arguments), name, timeout_s
        self._replacing = threading.Lock()
        self._actors = [self._class.remote(*given) for given in self._arguments]
        deadline = time.monotonic() + timeout_s
        for number, actor in enumerate(self._actors):
            self._get(actor.ready.remote(), number, deadline, what="start")

    def __len__(self) -> int:
        return len(self._actors)

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What `method` of each actor returns for its own arguments, in the order of the actors.

        Raises:
            RagxError: no answer in time, or what the method raised.
        """
        actors = list(self._actors)
        references = [getattr(actor, method).remote(*given) for actor, given in zip(actors, arguments, strict=True)]
        return [
            self._answer(number, actor, reference, method, given)
            for number, (actor, reference, given) in enumerate(zip(actors, references, arguments, strict=True))
        ]

    def _answer(self, number: int, actor: Any, reference: Any, method: str, given: tuple[Any, ...]) -> Any:
        """The result of one call, asked again of a successor where its actor died."""
        deadline = time.monotonic() + self._timeout_s
        for _ in range(_RESTARTS):
            try:
                return self._get(reference, number, deadline, what="answer")
            except self._ray.exceptions.RayActorError as error:
                _logger.warning("%s %d died and is started again: %s", self._name, number, str(error).splitlines()[0])
                actor = self._successor(number, actor)
                deadline = time.monotonic() + self._timeout_s
                reference = getattr(actor, method).remote(*given)
        raise RagxError(
            f"{self._name} {number} must live long enough to answer, got {_RESTARTS} deaths over one call. "
            "Look at Ray's logs: memory is the usual cause"
        )

    def _successor(self, number: int, dead: Any) -> Any:
        """The actor in the place of `dead`; of several threads that saw it die, one starts it."""
        with self._replacing:
            if self._actors[number] is dead:
                self._ray.kill(dead)  # one that is only unreachable must not come back beside its successor
                actor = self._class.remote(*self._arguments[number])
                self._get(actor.ready.remote(), number, time.monotonic() + self._timeout_s, what="start")
                self._actors[number] = actor
            return self._actors[number]

    def _get(self, reference: Any, number: int, deadline: float, *, what: str) -> Any:
        try:
            return self._ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
        except self._ray.exceptions.GetTimeoutError as error:
            raise RagxError(
                f"{self._name} {number} must {what} within {self._timeout_s:g} s, got nothing. {free_resources()}"
            ) from error
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
