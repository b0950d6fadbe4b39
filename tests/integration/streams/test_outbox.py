"""The relay against a producer that keeps its futures open, on the real database."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from plimsoll_devkit import sums
from plimsoll_devkit.stack.database import Database
from plimsoll_runtime import pool
from plimsoll_streams import outbox
from plimsoll_streams.outbox import GATHER_SECONDS, Relay
from plimsoll_streams.records import OutboxMessage


class Producer:
    """Acknowledges when it is told to; a broker cannot be asked to wait."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, asyncio.Future[None]]] = []
        self.stopped = False

    async def send(self, topic: str, *, value: bytes, key: bytes, headers: Any) -> "asyncio.Future[None]":  # noqa: ARG002
        self.sent.append((value, asyncio.get_running_loop().create_future()))
        return self.sent[-1][1]

    def acknowledge(self) -> None:
        for _, future in self.sent:
            if not future.done():
                future.set_result(None)

    async def stop(self) -> None:
        self.stopped = True

    @property
    def values(self) -> list[bytes]:
        return [value for value, _ in self.sent]


@pytest.fixture
async def database_pool(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncpg.Pool]:
    monkeypatch.setattr(outbox, "ACK_SECONDS", 0.2)
    await sums.migrate(database.owner_dsn)
    made = await pool.create(database.owner_dsn, application_name="relay", schema=sums.SCHEMA)
    async with made.acquire() as connection, connection.transaction():
        messages = [OutboxMessage("t", b"key", str(n).encode(), (("h", b"\xff"), ("h", None))) for n in range(5)]
        await outbox.insert(connection, messages)
    yield made
    made.terminate()  # the relays keep their connections


def relay_with(made: asyncpg.Pool, *producers: Producer) -> Relay:
    left = list(producers)

    async def make() -> Any:
        return left.pop(0)

    return Relay(made, make)


async def waiting(made: asyncpg.Pool) -> int:
    found: int = await made.fetchval("SELECT count(*) FROM outbox")
    return found


async def test_what_is_not_acknowledged_stays_and_is_not_sent_again(database_pool: asyncpg.Pool) -> None:
    producer = Producer()
    relay = relay_with(database_pool, producer)

    for _ in range(2):
        with pytest.raises(TimeoutError):
            await relay.round()
    assert await waiting(database_pool) == 5

    producer.acknowledge()
    assert await relay.round() == GATHER_SECONDS
    assert await waiting(database_pool) == 0
    assert producer.values == [b"0", b"1", b"2", b"3", b"4"]


async def test_what_failed_is_sent_again_by_a_new_producer(database_pool: asyncpg.Pool) -> None:
    first, second = Producer(), Producer()
    relay = relay_with(database_pool, first, second)

    with pytest.raises(TimeoutError):
        await relay.round()
    for value, future in first.sent:
        if value == b"3":
            future.set_exception(KafkaTimeoutError())
    first.acknowledge()
    assert await relay.round() == GATHER_SECONDS
    assert first.stopped
    assert await waiting(database_pool) == 1

    working = asyncio.create_task(relay.round())
    await asyncio.sleep(0.05)
    second.acknowledge()
    await working
    assert second.values == [b"3"]
    assert await waiting(database_pool) == 0


async def test_one_relay_at_a_time_drains_a_shard(database_pool: asyncpg.Pool) -> None:
    producers = [Producer(), Producer()]
    relays = [relay_with(database_pool, producer) for producer in producers]

    working = asyncio.create_task(relays[0].round())
    await asyncio.sleep(0.05)
    assert await relays[1].round() == outbox.BUSY_SECONDS
    producers[0].acknowledge()
    await working

    assert producers[1].values == []
    assert await relays[1].round() == outbox.POLL_SECONDS


async def test_a_message_that_can_never_be_sent_does_not_hold_up_the_others(
    database_pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, original = Producer(), Producer.send

    async def send(self: Producer, topic: str, *, value: bytes, **more: Any) -> "asyncio.Future[None]":
        if value == b"1":
            raise MessageSizeTooLargeError
        future = await original(self, topic, value=value, **more)
        future.set_result(None)
        return future

    monkeypatch.setattr(Producer, "send", send)
    relay = relay_with(database_pool, producer, producer)

    assert await relay.round() == GATHER_SECONDS
    assert producer.values == [b"0", b"2", b"3", b"4"]
    with pytest.raises(MessageSizeTooLargeError):
        await relay.round()
    assert await waiting(database_pool) == 1
