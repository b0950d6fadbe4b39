"""What happens between a process and a server? Requests and answers that come late, or never."""

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from plimsoll_devkit.simulation.virtual import PROCESS

T = TypeVar("T")

DATABASE, BROKER = "database", "broker"


@dataclass(slots=True)
class Weather:
    """How bad the network is now: chances per call, and latencies in seconds."""

    lose_request: float = 0.0
    lose_answer: float = 0.0
    delay: float = 0.0
    delay_max: float = 3.0
    latency: float = 0.004


class LostError(ConnectionError):
    """The connection broke; whether the server did what it was asked is unknown."""


class Network:
    """Calls from processes to servers. What is on its way goes on while the caller is frozen or dead."""

    def __init__(self, rng: random.Random) -> None:
        self.weather = Weather()
        self._rng = rng
        self._cut: set[tuple[str, str]] = set()
        self._outside = contextvars.copy_context()
        self._outside.run(PROCESS.set, "")
        self.is_over = False
        """Nothing new begins any more: the world is being taken down."""
        self._travelling: set[asyncio.Task[None]] = set()

    def cut(self, process: str, server: str) -> None:
        """Let nothing through between the two."""
        self._cut.add((process, server))

    def mend(self, process: str, server: str) -> None:
        """Let everything through again."""
        self._cut.discard((process, server))

    def is_cut(self, process: str, server: str) -> bool:
        """Say whether nothing gets through."""
        return (process, server) in self._cut

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that belongs to no process."""
        if self.is_over:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, context=self._outside.copy())
        self._travelling.add(task)
        task.add_done_callback(self._travelling.discard)

    async def call(self, process: str, server: str, serve: Callable[[], Awaitable[T]]) -> T:
        """Have a server do something.

        Raises:
            LostError: request or answer did not arrive.
            Exception: what the server raised.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.spawn(self._exchange(process, server, serve, answer))
        return await answer

    async def _exchange(
        self, process: str, server: str, serve: Callable[[], Awaitable[T]], answer: "asyncio.Future[T]"
    ) -> None:
        rng, weather = self._rng, self.weather
        await asyncio.sleep(self._latency())
        if self.is_cut(process, server) or rng.random() < weather.lose_request:
            await self._lose(answer)
            return
        try:
            result = await serve()
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            failure: Exception | None = error
        else:
            failure = None
        await asyncio.sleep(self._latency())
        if self.is_cut(process, server) or rng.random() < weather.lose_answer:
            await self._lose(answer)
        elif answer.done():
            return  # its process has died, or waits no longer
        elif failure is not None:
            answer.set_exception(failure)
        else:
            answer.set_result(result)

    async def _lose(self, answer: "asyncio.Future[T]") -> None:
        await asyncio.sleep(self._rng.uniform(0.05, 1.5))
        if not answer.done():
            answer.set_exception(LostError())

    def _latency(self) -> float:
        if self._rng.random() < self.weather.delay:
            return self._rng.uniform(0.1, self.weather.delay_max)
        return self._rng.expovariate(1 / self.weather.latency)
