"""What does a test of the engine hold in its hands? The toy service, a producer, and a look at the results."""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from plimsoll_devkit import sums
from plimsoll_devkit.stack.process import Launch, spawn, stop
from plimsoll_runtime import pool
from plimsoll_streams import kafka
from plimsoll_streams.engine import Engine

_numbers = itertools.count()

TYPE = ("ce_type", b"increment.v1")


async def eventually(check: Callable[[], Awaitable[object]], seconds: float = 20) -> None:
    """Wait until `check` holds, looking often."""
    deadline = time.monotonic() + seconds
    while not await check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s")
        await asyncio.sleep(0.05)


@dataclass
class Bench:
    """One test's topics, database and engines."""

    name: str
    bootstrap: str
    database: asyncpg.Pool
    dsn: str
    producer: AIOKafkaProducer
    cleanup: AsyncExitStack
    _seqs: dict[str, int] = field(default_factory=dict)
    _running: dict[Engine[sums.Unit], tuple[asyncio.Event, "asyncio.Task[None]"]] = field(default_factory=dict)

    @property
    def facts(self) -> str:
        """The topic of facts."""
        return f"{self.name}.facts"

    @property
    def requests(self) -> str:
        """The topic that is decided first."""
        return f"{self.name}.requests"

    async def start(self, **options: Any) -> Engine[sums.Unit]:
        """Run an engine in this process, as its application would; it is stopped with the bench at the latest."""
        # A failure is raised by `stop`; ending the process would end the tests.
        options = {"on_failure": lambda: None, **options}
        engine, app = sums.build(name=self.name, bootstrap=self.bootstrap, database=self.database, **options)
        running, stop = asyncio.Event(), asyncio.Event()

        async def live() -> None:
            # A task of its own: the application must end in the task that started it.
            async with app.start_lifespan_context():
                running.set()
                await stop.wait()

        task = asyncio.create_task(live())
        self._running[engine] = (stop, task)
        self.cleanup.push_async_callback(self.stop, engine)
        started = asyncio.create_task(running.wait())
        await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if task.done():
            del self._running[engine]
            await task
        return engine

    async def stop(self, engine: Engine[sums.Unit]) -> None:
        """End an engine as its application would."""
        if engine in self._running:
            stop, task = self._running.pop(engine)
            stop.set()
            await task
            if engine.failure is not None:
                raise engine.failure

    async def stop_all(self) -> None:
        """End every engine that runs in this process."""
        for engine in list(self._running):
            await self.stop(engine)

    async def add(self, key: str, count: int = 1, *, topic: str | None = None, **more: Any) -> None:
        """Produce the next increments of a key, acknowledged."""
        futures = []
        headers = [TYPE, *more.pop("headers", ())]
        for _ in range(count):
            self._seqs[key] = self._seqs.get(key, 0) + 1
            body = json.dumps({"key": key, "seq": self._seqs[key], **more}).encode()
            futures.append(await self.producer.send(topic or self.facts, body, key=key.encode(), headers=headers))
        await asyncio.gather(*futures)

    async def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = b"k",
        headers: Iterable[tuple[str, bytes | None]] = (TYPE,),
        topic: str = "",
    ) -> Any:
        """Produce one record as it is."""
        return await self.producer.send_and_wait(topic or self.facts, value, key=key, headers=list(headers))

    async def total(self, key: str) -> int:
        """The sum of one key."""
        return await self.database.fetchval("SELECT total FROM sums WHERE key = $1", key) or 0

    async def rows(self) -> dict[str, tuple[int, int, int]]:
        """Total, records and disorder by key."""
        found = await self.database.fetch("SELECT key, total, records, disorder FROM sums")
        return {row["key"]: (row["total"], row["records"], row["disorder"]) for row in found}

    async def sums_to(self, expected: int, seconds: float = 20) -> None:
        """Wait until all totals together are `expected`."""

        async def check() -> bool:
            try:
                found: int = await self.database.fetchval("SELECT coalesce(sum(total), 0) FROM sums")
            except (asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresConnectionError):
                return False  # a test ends connections of this pool, too
            return found == expected

        await eventually(check, seconds)

    async def letters(self) -> list[asyncpg.Record]:
        """All rows of the table of dead letters."""
        return list(await self.database.fetch("SELECT * FROM dead_letters ORDER BY id"))

    async def read(self, topic: str, count: int, seconds: float = 10) -> list[Any]:
        """Read the first `count` records of a topic."""
        async with self._reader(topic) as consumer, asyncio.timeout(seconds):
            found: list[Any] = []
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += records
            return found

    async def read_all(self, topic: str) -> list[Any]:
        """Read what a topic holds now."""
        async with self._reader(topic) as consumer:
            ends = await consumer.end_offsets(consumer.assignment())
            found: list[Any] = []
            while any([await consumer.position(partition) < end for partition, end in ends.items()]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += records
            return found

    async def make_topic(self, name: str) -> str:
        """Create a topic like the test's own ones."""
        problems = await kafka.create_topics(self.bootstrap, [replace(sums.topics(self.name)[0], name=name)])
        if problems:
            raise RuntimeError("; ".join(problems))
        return name

    async def published(self, topic: str) -> dict[str, int]:
        """Wait for an empty outbox; the last state of each key, as a consumer that drops a lower seq sees it."""

        async def drained() -> object:
            return await self.database.fetchval("SELECT count(*) = 0 FROM outbox")

        await eventually(drained)
        seen: dict[str, int] = {}
        for record in await self.read_all(topic):
            body = json.loads(record.value)
            seen[body["key"]] = max(seen.get(body["key"], 0), body["seq"])
        return seen

    @asynccontextmanager
    async def _reader(self, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, n) for n in await self.producer.partitions_for(topic)])
            await consumer.seek_to_beginning()
            yield consumer
        finally:
            await consumer.stop()


@asynccontextmanager
async def open_bench(bootstrap: str, dsn: str) -> AsyncIterator[Bench]:
    """Make fresh topics and the toy's schema, and take everything down again; `dsn` is the owner's."""
    name = f"t{os.getpid()}x{next(_numbers)}"
    await sums.migrate(dsn)
    problems = await kafka.create_topics(bootstrap, sums.with_dead_letters(*sums.topics(name)))
    if problems:
        raise RuntimeError("; ".join(problems))
    async with AsyncExitStack() as cleanup:
        made = await pool.create(dsn, application_name=name, schema=sums.SCHEMA, max_size=12)
        cleanup.push_async_callback(made.close)
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        cleanup.push_async_callback(producer.stop)
        yield Bench(name, bootstrap, made, dsn, producer, cleanup)


class Member:
    """The toy service as a process of its own, which may be killed, frozen, and started again."""

    def __init__(self, bench: Bench, instance: int, folder: Path, *, out: str | None = None) -> None:
        self.log = folder / f"{bench.name}-{instance}.log"
        self.starts = 0
        self._environment = {
            "SUMS_NAME": bench.name,
            "SUMS_INSTANCE": str(instance),
            "SUMS_KAFKA": bench.bootstrap,
            "SUMS_DSN": bench.dsn,
            "SUMS_RECORDS_MAX": "50",
            **({"SUMS_OUT": out} if out else {}),
        }
        self._process: asyncio.subprocess.Process | None = None
        bench.cleanup.push_async_callback(self.stop)

    @property
    def pid(self) -> int:
        """The process id of the latest start."""
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Say whether the latest process has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self, *, crash_at: str = "") -> None:
        """Start a process; with `crash_at` it dies at that named point."""
        self.starts += 1
        environment = {**self._environment, "PLIMSOLL_CRASH_AT": crash_at}
        self._process = await spawn(self._launch(environment), self.log)

    async def ended(self, seconds: float) -> int:
        """Wait for the process to end by itself."""
        if self._process is None:
            raise RuntimeError("not started")
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    async def stop(self) -> None:
        """End the process, cleanly where it can."""
        if self._process is not None:
            await stop(self._process, self._launch({}))

    def lines(self) -> list[str]:
        """What it has written, over all its starts."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    @staticmethod
    def _launch(environment: dict[str, str]) -> Launch:
        return Launch((sys.executable, "-m", "plimsoll_devkit.sums"), environment)
