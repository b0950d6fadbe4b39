"""How does a day pass in a second? An event loop whose time jumps, and in which a process can stand still."""

# ruff: noqa: SLF001 - an event loop reaches into its handles

import asyncio
import heapq
from collections import deque
from contextvars import ContextVar
from typing import Any

PROCESS: ContextVar[str] = ContextVar("process", default="")
"""Which simulated process a callback belongs to; the empty one is the world, which never stands still."""


class DeadlockError(RuntimeError):
    """Nothing is left that could ever happen."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready in order, then jumps to the next timer. No threads, no sockets, no real time."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._parked: dict[str, deque[asyncio.Handle]] = {}

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self._now

    def freeze(self, process: str) -> None:
        """Run nothing of a process any more, as SIGSTOP does; its timers go on falling due."""
        self._parked.setdefault(process, deque())

    def thaw(self, process: str) -> None:
        """Run what a frozen process has missed."""
        self._ready.extend(self._parked.pop(process, ()))

    def thaw_all(self) -> None:
        """Let every process go on."""
        for process in list(self._parked):
            self.thaw(process)

    def is_frozen(self, process: str) -> bool:
        """Say whether a process stands still."""
        return process in self._parked

    # The base class calls these; its own versions need a selector.

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
        if not self._ready:
            if not self._scheduled:
                raise DeadlockError
            self._now = max(self._now, self._scheduled[0]._when)
        while self._scheduled and self._scheduled[0]._when <= self._now:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            self._ready.append(timer)
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            parked = self._parked.get(handle._context.get(PROCESS, "")) if self._parked else None  # type: ignore[attr-defined]
            if parked is not None:
                parked.append(handle)
            else:
                handle._run()

    def _process_events(self, event_list: Any) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""
