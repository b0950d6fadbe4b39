"""Which parts run, in which order do they start, and what happens when one ends?"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from plimsoll_devkit.stack.health import NotReadyError, wait
from plimsoll_devkit.stack.process import Launch, descendants, spawn, start_time, stop, tail

Phase = Literal["waiting", "starting", "ready", "done", "stopped", "failed", "restarting"]
_FIRST_BACKOFF, _LONGEST_BACKOFF, _STEADY = 0.2, 10.0, 30.0


class Part(Protocol):
    """One thing to run. `once` marks a job, which is ready when it has ended well."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def after(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def once(self) -> bool: ...  # noqa: D102
    @property
    def seconds(self) -> float: ...  # noqa: D102
    async def prepare(self) -> None: ...  # noqa: D102
    def launch(self) -> Launch | None: ...  # noqa: D102
    async def healthy(self) -> bool: ...  # noqa: D102
    async def ready(self) -> None: ...  # noqa: D102


class PartFailedError(RuntimeError):
    """A part could not be brought up; `part` names it, the text ends with its last output."""

    def __init__(self, part: str, reason: str, log: Path) -> None:
        super().__init__(f"{part}: {reason}; its last output ({log}):\n{tail(log)}")
        self.part = part


@dataclass(slots=True)
class Running:
    """What the supervisor knows of one part."""

    part: Part
    phase: Phase = "waiting"
    process: asyncio.subprocess.Process | None = None
    launch: Launch | None = None
    restarts: int = 0
    began: float = 0.0
    seconds: float = 0.0
    up: asyncio.Event = field(default_factory=asyncio.Event)
    keeper: asyncio.Task[None] | None = None

    def alive(self) -> bool:
        """Whether it runs; a part without a process of ours counts as running."""
        return self.process is None or self.process.returncode is None


class Supervisor:
    """Runs parts in the order of their `after`, each once those are ready; restarts what ends by itself if asked to."""

    def __init__(
        self,
        parts: Sequence[Part],
        logs: Path,
        *,
        restart: bool = True,
        on_change: Callable[[Mapping[str, dict[str, object]]], None] | None = None,
    ) -> None:
        self._running = {part.name: Running(part) for part in parts}
        self._logs = logs
        self._restart = restart
        self._on_change = on_change

    async def start(self) -> None:
        """Bring every part up; returns when all are ready.

        Raises:
            PartFailedError: the first part that could not be; those that run are left to `stop`.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for running in self._running.values():
                    group.create_task(self._start_in_order(running), name=f"start {running.part.name}")
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def start_part(self, name: str) -> None:
        """Start one part again, ready when this returns."""
        await self._bring_up(self._running[name])

    async def stop_part(self, name: str) -> None:
        """Stop one part cleanly; it stays down."""
        running = self._running[name]
        self._forget_keeper(running)
        if running.process is not None and running.launch is not None:
            await stop(running.process, running.launch)
        if running.phase != "failed":
            self._turn(running, "stopped")

    async def kill_part(self, name: str) -> None:
        """End one part with SIGKILL, as a crash would; it stays down."""
        running = self._running[name]
        self._forget_keeper(running)
        if running.process is not None and running.process.returncode is None:
            offspring = descendants(running.process.pid)
            os.kill(running.process.pid, signal.SIGKILL)
            await running.process.wait()
            # A database's backends outlive its crashed parent by a moment, and it cannot start before they are gone.
            while any(start_time(pid) for pid in offspring):  # noqa: ASYNC110  nobody tells us of them
                await asyncio.sleep(_FIRST_BACKOFF / 10)
        self._turn(running, "stopped")

    async def stop(self) -> None:
        """Stop all, in the reverse of the order in which they were started."""
        for running in sorted(self._running.values(), key=lambda item: item.began, reverse=True):
            if running.process is not None:
                await self.stop_part(running.part.name)

    def pid(self, name: str) -> int:
        """The process id of a running part."""
        process = self._running[name].process
        if process is None or process.returncode is not None:
            raise LookupError(f"{name} does not run")
        return process.pid

    def state(self) -> dict[str, dict[str, object]]:
        """What is known of each part, for people and for the status command."""
        return {
            name: {
                "phase": running.phase,
                "pid": running.process.pid if running.process and running.alive() else None,
                "restarts": running.restarts,
                "seconds": round(running.seconds, 2),
            }
            for name, running in self._running.items()
        }

    async def _start_in_order(self, running: Running) -> None:
        for name in running.part.after:
            if name in self._running:
                await self._running[name].up.wait()
        await self._bring_up(running)

    async def _bring_up(self, running: Running) -> None:
        part, log = running.part, self._logs / f"{running.part.name}.log"
        running.began = time.monotonic()
        self._turn(running, "starting")
        try:
            await part.prepare()
            running.launch = part.launch()
            if running.launch is not None:
                running.process = await spawn(running.launch, log)
                self._turn(running, "starting")
            if part.once:
                await self._finish_job(running)
            else:
                await wait(part.healthy, part.seconds, running.alive)
                await part.ready()
        except (NotReadyError, RuntimeError, OSError) as error:
            self._turn(running, "failed")
            raise PartFailedError(part.name, str(error), log) from error
        running.seconds = time.monotonic() - running.began
        self._turn(running, "done" if part.once else "ready")
        running.up.set()
        if running.process is not None and not part.once and self._restart:
            running.keeper = asyncio.create_task(self._keep(running), name=f"keep {part.name}")

    async def _finish_job(self, running: Running) -> None:
        if running.process is None:
            return
        try:
            code = await asyncio.wait_for(running.process.wait(), running.part.seconds)
        except TimeoutError:
            raise NotReadyError(f"it did not end within {running.part.seconds:.0f} s") from None
        if code != 0:
            raise NotReadyError(f"it ended with code {code}")

    async def _keep(self, running: Running) -> None:
        """Start the part again whenever it ends by itself, waiting longer each time it does so soon."""
        backoff = _FIRST_BACKOFF
        while running.process is not None and running.launch is not None:
            since = time.monotonic()
            code = await running.process.wait()
            backoff = _FIRST_BACKOFF if time.monotonic() - since > _STEADY else min(backoff * 2, _LONGEST_BACKOFF)
            running.restarts += 1
            self._note(running, f"ended with code {code}; starting again in {backoff:.1f} s")
            self._turn(running, "restarting")
            await asyncio.sleep(backoff)
            running.process = await spawn(running.launch, self._logs / f"{running.part.name}.log")
            try:
                await wait(running.part.healthy, running.part.seconds, running.alive)
            except NotReadyError as error:
                self._note(running, str(error))
                await stop(running.process, running.launch)
                continue
            self._turn(running, "ready")

    def _forget_keeper(self, running: Running) -> None:
        if running.keeper is not None:
            running.keeper.cancel()
            running.keeper = None

    def _note(self, running: Running, text: str) -> None:
        with (self._logs / "supervisor.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {running.part.name}: {text}\n")

    def _turn(self, running: Running, phase: Phase) -> None:
        running.phase = phase
        if self._on_change is not None:
            self._on_change(self.state())
