"""The relay against a producer that keeps its futures open, on the real database."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError

from plimsoll_devkit import sums
from plimsoll_devkit.stack.database import Database
from plimsoll_runtime import pool
from plimsoll_streams import outbox
from plimsoll_streams.kafka import partition_of
from plimsoll_streams.outbox import GATHER_SECONDS, Relay
from plimsoll_streams.records import OutboxMessage


class Batch:
    """Room for two; larger than that goes alone, as with the real one."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, *, value: bytes, **_: Any) -> object:
        if len(self.values) == 2:
            return None
        self.values.append(value)
        return self


class Producer:
    """Acknowledges when it is told to; a broker cannot be asked to wait."""

    def __init__(self, partitions: int = 1) -> None:
        self.sent: list[tuple[int, list[bytes], asyncio.Future[None]]] = []
        self.stopped = False
        self.client = self.cluster = self
        self._partitions = set(range(partitions))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions if topic == "t" else None

    async def partitions_for(self, topic: str) -> set[int]:
        if topic == "missing":
            await asyncio.sleep(10)
        return self._partitions

    def create_batch(self) -> Batch:
        return Batch()

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> "asyncio.Future[None]":  # noqa: ARG002
        self.sent.append((partition, batch.values, asyncio.get_running_loop().create_future()))
        return self.sent[-1][2]

    def acknowledge(self) -> None:
        for *_, future in self.sent:
            if not future.done():
                future.set_result(None)

    async def stop(self) -> None:
        self.stopped = True

    @property
    def values(self) -> list[bytes]:
        return [value for _, values, _ in self.sent for value in values]


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
    found: int = await made.fetchval("SELECT coalesce(sum(messages), 0) FROM outbox")
    return found


async def write(made: asyncpg.Pool, *messages: OutboxMessage) -> None:
    async with made.acquire() as connection, connection.transaction():
        await outbox.insert(connection, messages)


async def drained(relay: Relay, producer: Producer) -> None:
    """One round in which everything is acknowledged."""
    working = asyncio.create_task(relay.round())
    while not working.done():
        await asyncio.sleep(0.01)
        producer.acknowledge()
    await working


async def test_what_is_not_acknowledged_stays_and_is_not_sent_again(database_pool: asyncpg.Pool) -> None:
    producer = Producer()
    relay = relay_with(database_pool, producer)

    for _ in range(2):
        with pytest.raises(TimeoutError):
            await relay.round()
    assert await waiting(database_pool) == 5
    assert [values for _, values, _ in producer.sent] == [[b"0", b"1"], [b"2", b"3"], [b"4"]]

    producer.acknowledge()
    assert await relay.round() == GATHER_SECONDS
    assert await waiting(database_pool) == 0
    assert producer.values == [b"0", b"1", b"2", b"3", b"4"]


async def test_what_failed_is_sent_again_by_a_new_producer_and_nothing_else(database_pool: asyncpg.Pool) -> None:
    first, second = Producer(), Producer()
    relay = relay_with(database_pool, first, second)

    with pytest.raises(TimeoutError):
        await relay.round()
    first.sent[1][2].set_exception(KafkaTimeoutError())
    first.acknowledge()
    with pytest.raises(KafkaError, match="not acknowledged"):
        await relay.round()
    assert first.stopped
    assert await waiting(database_pool) == 5, "the row goes when all of it is acknowledged"

    await drained(relay, second)
    assert second.values == [b"2", b"3"]
    assert await waiting(database_pool) == 0


async def test_the_messages_of_a_key_keep_their_order_over_rows_and_batches(database_pool: asyncpg.Pool) -> None:
    producer = Producer(partitions=3)
    relay = relay_with(database_pool, producer)
    for row in range(4):
        keys = [b"a", b"b", b"c", None] * 5
        await write(database_pool, *(OutboxMessage("t", key, b"%s %d" % (key or b"", row)) for key in keys))

    await drained(relay, producer)

    assert await waiting(database_pool) == 0
    for key in (b"a", b"b", b"c"):
        mine = [(place, value) for place, values, _ in producer.sent for value in values if value.startswith(key)]
        assert [value for _, value in mine] == [b"%s %d" % (key, row) for row in range(4) for _ in range(5)]
        assert {place for place, _ in mine} == {partition_of(key, 3)}


async def test_a_topic_that_is_not_there_holds_up_no_other(database_pool: asyncpg.Pool) -> None:
    producer = Producer()
    relay = relay_with(database_pool, producer, producer)
    await write(database_pool, OutboxMessage("missing", b"key", b"lost"), OutboxMessage("t", b"key", b"5"))

    working = asyncio.create_task(relay.round())
    await asyncio.sleep(0.05)
    producer.acknowledge()
    assert await working == GATHER_SECONDS

    assert producer.values == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert await waiting(database_pool) == 1


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
    monkeypatch.setattr(outbox, "REQUEST_MAX", 10)
    producer = Producer()
    relay = relay_with(database_pool, producer, producer)
    await write(database_pool, *(OutboxMessage("t", b"other", value) for value in (b"5", b"too large", b"6")))

    await drained(relay, producer)
    assert producer.values == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
    assert await waiting(database_pool) == 3
    with pytest.raises(MessageSizeTooLargeError):
        await relay.round()
    assert len(producer.values) == 7
