"""How does a message leave if and only if its transaction commits: rows in the same transaction, drained in order."""

import asyncio
import random
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import asyncpg
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError, ProducerClosed

from plimsoll_streams import metrics
from plimsoll_streams.crashpoints import crash_at
from plimsoll_streams.failures import Backoff
from plimsoll_streams.observe import Trouble
from plimsoll_streams.records import Headers, OutboxMessage
from plimsoll_streams.transactions import Connection, Transactions

SHARDS = 16
PAGE = 1000
ACK_SECONDS = 5.0
"""How long one round waits for acknowledgements: well below the database's patience with an idle transaction."""
POLL_SECONDS = 0.5
BUSY_SECONDS = 0.02
GATHER_SECONDS = 0.05
"""How long a round waits for company after one that published less than a page: at a low rate each batch would
else make a round of its own, which costs the database and the broker more than the batch does."""
GAUGE_SECONDS = 5.0

_COLUMNS = ("shard", "topic", "key", "value", "header_names", "header_values")
_LOCK = """
SELECT shard FROM generate_series(0, $1 - 1) AS shard
WHERE pg_try_advisory_xact_lock(hashtext(current_schema() || '.outbox'), shard)
"""
_READ = """
SELECT id, topic, key, value, header_names, header_values FROM outbox
WHERE shard = ANY($1) ORDER BY id LIMIT $2
"""
_ELSEWHERE = "SELECT EXISTS (SELECT FROM outbox WHERE shard <> ALL($1))"
_DELETE = "DELETE FROM outbox WHERE id = ANY($1)"
_GAUGE = "SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM outbox"

log = structlog.get_logger("plimsoll.streams")


def shard_of(key: bytes | None) -> int:
    """Return the shard in which one key's messages keep their order."""
    return zlib.crc32(key or b"") % SHARDS


async def insert(connection: Connection, messages: Iterable[OutboxMessage]) -> None:
    """Write messages in the caller's own transaction; `Relay.wake` after its commit saves them half a second."""
    rows = [(shard_of(each.key), each.topic, each.key, each.value, *split_headers(each.headers)) for each in messages]
    if rows:
        await connection.copy_records_to_table("outbox", records=rows, columns=_COLUMNS)


def split_headers(headers: Headers) -> tuple[list[bytes], list[bytes | None]]:
    """Return names and values as the tables keep them."""
    return [name.encode() for name, _ in headers], [value for _, value in headers]


def join_headers(names: Sequence[bytes], values: Sequence[bytes | None]) -> Headers:
    """Put together what `split_headers` took apart."""
    return tuple((name.decode(), value) for name, value in zip(names, values, strict=True))


def is_away(error: Exception) -> bool:
    """Say whether sending failed for want of a broker, not for the message's own sake."""
    if isinstance(error, KafkaError):
        return error.retriable or isinstance(error, KafkaTimeoutError | ProducerClosed)
    return isinstance(error, TimeoutError | OSError)


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
        self._sent: dict[int, asyncio.Future[Any]] = {}
        """By row: what an earlier round sent and did not see acknowledged. It is awaited, never sent again."""
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
        metrics.outbox_published.inc(len(published))
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
                if sent := [self._sent[row["id"]] for row in rows if row["id"] in self._sent]:
                    await asyncio.wait(sent)
        except (TimeoutError, KafkaError) as failed:
            # A send that raised or was cancelled enqueued nothing; the rows before it may still be acknowledged.
            error = failed
        published: list[int] = []
        for row in rows:
            future = self._sent.get(row["id"])
            if future is None or not future.done():
                continue
            if future.exception() is None:
                published.append(row["id"])
            else:
                del self._sent[row["id"]]
                error = KafkaError(f"not acknowledged: {future.exception()!r}")
                metrics.outbox_failures.inc()
        if error is not None and not self._has_pending():
            await self._renew()
        return published, error

    async def _send_all(self, producer: AIOKafkaProducer, rows: Sequence[asyncpg.Record]) -> Exception | None:
        """Send what was not sent before; return the error of a message that can never be sent, if there is one."""
        error: Exception | None = None
        for row in rows:
            if row["id"] in self._sent:
                continue
            try:
                self._sent[row["id"]] = await self._send(producer, row)
            except Exception as failed:
                if is_away(failed):
                    raise
                # Too large, or neither key nor value: it must not hold up the others.
                metrics.outbox_failures.inc()
                error = failed
        return error

    @staticmethod
    async def _send(producer: AIOKafkaProducer, row: asyncpg.Record) -> asyncio.Future[Any]:
        headers = list(join_headers(row["header_names"], row["header_values"]))
        sent: asyncio.Future[Any] = await producer.send(
            row["topic"], value=row["value"], key=row["key"], headers=headers
        )
        return sent

    def _has_pending(self) -> bool:
        return any(not future.done() for future in self._sent.values())

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
