"""How does a message leave if and only if its transaction commits: rows in the same transaction, drained in order."""

import asyncio
import random
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import asyncpg
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from plimsoll_streams import metrics, parcels
from plimsoll_streams.crashpoints import crash_at
from plimsoll_streams.failures import Backoff
from plimsoll_streams.kafka import REQUEST_MAX, batched, partition_of
from plimsoll_streams.observe import Trouble
from plimsoll_streams.records import Headers, OutboxMessage
from plimsoll_streams.statements import Statements
from plimsoll_streams.transactions import Connection, Transactions

SHARDS = 16
PAGE = 100
"""Rows of one round, each of up to `PARCEL_BYTES` or one message."""
ACK_SECONDS = 5.0
"""How long one round waits for acknowledgements: well below the database's patience with an idle transaction."""
POLL_SECONDS = 0.5
BUSY_SECONDS = 0.02
GATHER_SECONDS = 0.05
"""How long a round waits for company after one that published less than a page: at a low rate each batch would
else make a round of its own, which costs the database and the broker more than the batch does."""
GAUGE_SECONDS = 5.0

_INSERT = """
INSERT INTO outbox (shard, topic, messages, parcel)
SELECT * FROM unnest($1::smallint[], $2::text[], $3::int[], $4::bytea[])
"""
_LOCK = """
SELECT shard FROM generate_series(0, $1 - 1) AS shard
WHERE pg_try_advisory_xact_lock(hashtext(current_schema() || '.outbox'), shard)
"""
_READ = """
SELECT id, topic, messages, parcel FROM outbox
WHERE shard = ANY($1) ORDER BY id LIMIT $2
"""
_ELSEWHERE = "SELECT EXISTS (SELECT FROM outbox WHERE shard <> ALL($1))"
_DELETE = "DELETE FROM outbox WHERE id = ANY($1)"
_GAUGE = (
    "SELECT coalesce(sum(messages), 0), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM outbox"
)

log = structlog.get_logger("plimsoll.streams")


def shard_of(key: bytes | None) -> int:
    """Return the shard in which one key's messages keep their order."""
    return zlib.crc32(key or b"") % SHARDS


async def insert(connection: Connection, messages: Iterable[OutboxMessage]) -> None:
    """Write messages in the caller's own transaction; `Relay.wake` after its commit saves them half a second."""
    statements = Statements()
    add(statements, messages)
    await statements.run(connection)


def add(statements: Statements, messages: Iterable[OutboxMessage]) -> None:
    """Write messages together with what else is written."""
    groups: dict[tuple[int, str], list[OutboxMessage]] = {}
    for each in messages:
        groups.setdefault((shard_of(each.key), each.topic), []).append(each)
    rows = [(*address, *parcel) for address, group in groups.items() for parcel in parcels.parcels(group)]
    if rows:
        statements.add(_INSERT, *zip(*rows, strict=True))


def split_headers(headers: Headers) -> tuple[list[bytes], list[bytes | None]]:
    """Return names and values as the tables keep them."""
    return [name.encode() for name, _ in headers], [value for _, value in headers]


def join_headers(names: Sequence[bytes], values: Sequence[bytes | None]) -> Headers:
    """Put together what `split_headers` took apart."""
    return tuple((name.decode(), value) for name, value in zip(names, values, strict=True))


class _Place(NamedTuple):
    """One message that is to be sent, and where its future goes."""

    futures: list[asyncio.Future[Any] | None]
    place: int
    message: OutboxMessage


def _size(message: OutboxMessage) -> int:
    return len(message.key or b"") + len(message.value or b"")


class Relay:
    """Publishes the outbox of one schema. Of several processes each shard is drained by one at a time.

    A process that is frozen in the middle of a round and thawed later may publish old messages after newer
    ones, and a crash between acknowledgement and deletion publishes twice: consumers of state drop a lower
    `seq`.
    """

    def __init__(self, pool: asyncpg.Pool, make_producer: Callable[[], Awaitable[AIOKafkaProducer]]) -> None:
        self._transactions = Transactions(pool)
        self._make_producer = make_producer
        self._producer: AIOKafkaProducer | None = None
        self._sent: dict[int, list[asyncio.Future[Any] | None]] = {}
        """By row and place in it: what was sent. Until it fails it is never sent again; None is yet to be sent."""
        self._trouble = Trouble("outbox")
        self._wake = asyncio.Event()
        self._stopping = False
        self._gauged = 0.0

    def wake(self) -> None:
        """Look at the outbox now."""
        self._wake.set()

    async def run(self) -> None:
        """Drain until `stop`."""
        backoff = Backoff(random.Random())
        while not self._stopping:
            try:
                self._wake.clear()
                wait = await self.round()
                await self._gauge()
                backoff.reset()
                self._trouble.over()
            except Exception as error:  # noqa: BLE001 - trying again loses nothing, and the oldest row's age alerts
                wait = backoff.next()
                self._trouble.again(error, seconds=round(wait, 2))
                await asyncio.sleep(wait)
                continue
            if wait > GATHER_SECONDS:
                await self._sleep(wait)
            else:
                await asyncio.sleep(wait)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def round(self) -> float:
        """Publish one page; return how many seconds the next round may wait."""
        if self._producer is None:
            self._producer = await self._make_producer()
        async with self._transactions.open() as connection:
            shards = [row["shard"] for row in await connection.fetch(_LOCK, SHARDS)]
            rows = await connection.fetch(_READ, shards, PAGE)
            if rows:
                published, error = await self._publish(self._producer, rows)
                crash_at("relay_after_ack")
                await connection.execute(_DELETE, published)
            elif len(shards) < SHARDS and await connection.fetchval(_ELSEWHERE, shards):
                # Another process drains these and may just have missed what we were woken for.
                return BUSY_SECONDS
            else:
                return POLL_SECONDS
        crash_at("relay_after_delete")
        for row_id in published:
            self._sent.pop(row_id, None)
        metrics.outbox_published.inc(sum(row["messages"] for row in rows if row["id"] in published))
        if error is not None and not published:
            raise error
        return GATHER_SECONDS if len(rows) < PAGE else 0.0

    async def _publish(
        self, producer: AIOKafkaProducer, rows: Sequence[asyncpg.Record]
    ) -> tuple[list[int], Exception | None]:
        """Return the ids that were acknowledged, and what kept the others from it."""
        error: Exception | None = None
        try:
            async with asyncio.timeout(ACK_SECONDS):
                error = await self._send_all(producer, rows)
                if sent := {future for row in rows for future in self._sent[row["id"]] if future is not None}:
                    await asyncio.wait(sent)
        except (TimeoutError, KafkaError) as failed:
            # A send that raised or was cancelled enqueued nothing; what was sent before may still be acknowledged.
            error = failed
        published: list[int] = []
        for row in rows:
            futures = self._sent.get(row["id"], [None])
            for place, future in enumerate(futures):
                if future is not None and future.done() and (refused := future.exception()) is not None:
                    futures[place] = None
                    error = KafkaError(f"not acknowledged: {refused!r}")
                    metrics.outbox_failures.inc()
            if all(future is not None and future.done() for future in futures):
                published.append(row["id"])
        if error is not None and not self._has_pending():
            await self._renew()
        return published, error

    async def _send_all(self, producer: AIOKafkaProducer, rows: Sequence[asyncpg.Record]) -> Exception | None:
        """Send what was not sent before; return the error of a message that can never be sent, if there is one."""
        error: Exception | None = None
        topics: dict[str, list[_Place]] = {}
        for row in rows:
            futures = self._sent.setdefault(row["id"], [None] * row["messages"])
            for place, message in enumerate(parcels.unpack(row["topic"], row["parcel"])):
                if futures[place] is not None:
                    continue
                if _size(message) > REQUEST_MAX:
                    metrics.outbox_failures.inc()
                    error = MessageSizeTooLargeError(f"{_size(message)} bytes for {message.topic}")
                    continue  # it must not hold up the others
                topics.setdefault(message.topic, []).append(_Place(futures, place, message))
        # A topic that is not there is waited for, so those that are known go first.
        for topic in sorted(topics, key=lambda name: producer.client.cluster.partitions_for_topic(name) is None):
            await self._send_topic(producer, topic, topics[topic])
        return error

    @staticmethod
    async def _send_topic(producer: AIOKafkaProducer, topic: str, places: Iterable["_Place"]) -> None:
        count = len(await producer.partitions_for(topic))
        partitions: dict[int, list[_Place]] = {}
        for each in places:
            partitions.setdefault(partition_of(each.message.key, count), []).append(each)
        for partition, of_partition in partitions.items():
            left = iter(of_partition)
            for batch, held in batched(producer, [each.message for each in of_partition]):
                future = await producer.send_batch(batch, topic, partition=partition)
                for each in islice(left, len(held)):
                    each.futures[each.place] = future
                crash_at("relay_between_batches")

    def _has_pending(self) -> bool:
        return any(future is not None and not future.done() for futures in self._sent.values() for future in futures)

    async def _renew(self) -> None:
        """Take a new producer: after a fatal error aiokafka's stays closed, or out of sequence, for good."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)

    async def _gauge(self) -> None:
        now = time.monotonic()
        if now - self._gauged < GAUGE_SECONDS:
            return
        self._gauged = now
        async with self._transactions.open() as connection:
            for count, oldest in await connection.fetch(_GAUGE):
                metrics.outbox_rows.set(count)
                metrics.outbox_oldest.set(oldest)

    async def stop(self, task: "asyncio.Task[None]", *, seconds: float) -> None:
        """End `run`, publish what is there, bounded, and close."""
        self._stopping = True
        self._wake.set()
        try:
            async with asyncio.timeout(seconds):
                await task
                while await self.round() == 0.0:
                    pass
        except Exception as error:  # noqa: BLE001 - what is left is published after the next start
            log.warning("outbox not drained", error=repr(error))
        await self._transactions.close()
        await self._renew()


async def _stop(producer: AIOKafkaProducer) -> None:
    try:
        async with asyncio.timeout(ACK_SECONDS):
            await producer.stop()
    except (TimeoutError, KafkaError):
        pass
