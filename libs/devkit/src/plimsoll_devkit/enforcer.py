"""How does a test run enforcer processes of its own, wait for them, and break them?"""

import asyncio
import signal
import socket
import ssl
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from plimsoll_contracts.topics import CATALOGUE
from plimsoll_devkit import faults
from plimsoll_devkit.stack.credentials import Credentials
from plimsoll_devkit.stack.process import Launch, spawn, stop

CONSUMED = tuple(topic for topic in CATALOGUE if "quota-enforcer" in topic.consumers)
PARTITIONS = sum(topic.partitions for topic in CONSUMED)
READY_SECONDS = 40.0
UNUSED_TLS = ssl.create_default_context()
"""Given to each HTTP client, because making one of its own is most of what a short-lived client costs."""


class EnforcerEndedError(RuntimeError):
    """The process ended while somebody waited for it; the text has the last of its log."""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Enforcer:
    """One replica: a process of its own that keeps its port and its log file over restarts."""

    kafka: str
    dsn: str
    folder: Path
    credentials: Credentials
    instance: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: Process | None = None
    _seen: int = 0

    @property
    def log(self) -> Path:
        """Everything it printed, over all its starts."""
        return self.folder / f"enforcer-{self.instance}.log"

    def said(self) -> str:
        """What it printed since its last start."""
        return self.log.read_bytes()[self._seen :].decode(errors="replace")

    @property
    def url(self) -> str:
        """Where it answers HTTP."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        """Whether there is a process now."""
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        """Of the running process."""
        if self.process is None or not self.runs:
            raise LookupError(f"enforcer {self.instance} does not run")
        return self.process.pid

    async def start(self, **environment: str) -> None:
        """Start the process; ``environment`` is for this start only."""
        self._seen = self.log.stat().st_size if self.log.exists() else 0
        self.process = await spawn(Launch(self.command, {**self._settings(), **environment}), self.log)

    @property
    def command(self) -> tuple[str, ...]:
        """What is run."""
        return (sys.executable, "-m", "plimsoll_quota_enforcer")

    def _settings(self) -> dict[str, str]:
        return {
            "PLIMSOLL_KAFKA_BOOTSTRAP": self.kafka,
            "PLIMSOLL_POSTGRES_DSN": self.dsn,
            "PLIMSOLL_HTTP_PORT": str(self.port),
            "PLIMSOLL_INSTANCE": str(self.instance),
            "PLIMSOLL_LOG_FORMAT": "json",
            **self.credentials.settings(),
            **self.environment,
        }

    async def ready(self, partitions: int = 1, seconds: float = READY_SECONDS) -> None:
        """Wait until it owns at least so many partitions, and nothing it was assigned is still being claimed.

        Raises:
            EnforcerEndedError: it ended instead.
            TimeoutError: it did not get there.
        """
        deadline = time.monotonic() + seconds
        while len(await self.owned()) < partitions or not await self._answers("/internal/ready"):
            if not self.runs:
                raise EnforcerEndedError(self.said()[-3000:])
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready within {seconds:g} s, owns {await self.owned()}")
            await asyncio.sleep(0.05)

    async def owned(self) -> set[str]:
        """Name the partitions it owns, as ``topic/number``."""
        try:
            found = (await self._get("/internal/status")).json()["partitions"]
        except httpx.TransportError:
            return set()
        return {name for name, standing in found.items() if standing["phase"] == "owned"}

    async def metrics(self) -> dict[str, float]:
        """Scrape it: values by series, written as in ``name{label="value"}`` with labels sorted."""
        text = (await self._get("/metrics")).text
        return {
            series(sample.name, **sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def _get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, timeout=5, verify=UNUSED_TLS) as http:
            return await http.get(path)

    async def _answers(self, path: str) -> bool:
        try:
            return (await self._get(path)).is_success
        except httpx.TransportError:
            return False

    async def ended(self, seconds: float = 30) -> int:
        """Wait for the process to end by itself, and return its code."""
        if self.process is None:
            raise LookupError("it was never started")
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def kill(self) -> None:
        """End it as a crash would; returns when it has ended."""
        if self.process is not None and self.runs:
            faults.kill(self.process.pid)
            await self.process.wait()

    async def stop(self) -> None:
        """End it in order: the batch in flight, replies and outbox first."""
        if self.process is not None:
            await stop(self.process, Launch(self.command, stop_signal=signal.SIGTERM, grace=40))

    def freeze(self) -> None:
        """Pause it, as a long pause of its machine would."""
        faults.freeze(self.pid)

    def thaw(self) -> None:
        """Let it go on."""
        faults.thaw(self.pid)


def series(name: str, **labels: Any) -> str:
    """Name one series."""
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name
