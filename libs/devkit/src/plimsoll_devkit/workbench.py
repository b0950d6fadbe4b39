"""What does a test of the engine hold in its hands? The toy service, a producer, and a look at the results."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from plimsoll_devkit import sums
from plimsoll_streams.engine import Engine

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
            found: int = await self.database.fetchval("SELECT coalesce(sum(total), 0) FROM sums")
            return found == expected

        await eventually(check, seconds)

    async def letters(self) -> list[asyncpg.Record]:
        """All rows of the table of dead letters."""
        return list(await self.database.fetch("SELECT * FROM dead_letters ORDER BY id"))

    async def read(self, topic: str, count: int, seconds: float = 10) -> list[Any]:
        """Read the first `count` records of a topic."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, n) for n in await self.producer.partitions_for(topic)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
            found: list[Any] = []
            async with asyncio.timeout(seconds):
                while len(found) < count:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += records
            return found
        finally:
            await consumer.stop()
