"""What becomes of a record that cannot be applied: kept byte for byte, published to its `.dlq`, replayed on demand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg

from plimsoll_contracts.codes import Code
from plimsoll_streams import outbox
from plimsoll_streams.records import Headers, OutboxMessage, Record
from plimsoll_streams.transactions import Connection

DETAIL_MAX = 2_000
PAGE_MAX = 500

_COLUMNS = (
    "consumer",
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "header_names",
    "header_values",
    "produced_at",
    "code",
    "detail",
)
_LIST = """
SELECT * FROM dead_letters
WHERE ($1::text IS NULL OR topic = $1) AND id > $2 AND (NOT $3 OR replayed_at IS NULL)
ORDER BY id LIMIT $4
"""
_TAKE = "SELECT * FROM dead_letters WHERE id = ANY($1) ORDER BY id FOR UPDATE"
_REPLAYED = "UPDATE dead_letters SET replayed_at = now() WHERE id = ANY($1)"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record and why it was stepped over."""

    record: Record
    code: Code
    detail: str

    def message(self, consumer: str, topic: str) -> OutboxMessage:
        """Return what is published to the dead letter topic: the original bytes, and the reason as headers."""
        record = self.record
        reason = {
            "dlq-code": self.code.code,
            "dlq-detail": self.detail,
            "dlq-topic": record.topic,
            "dlq-partition": str(record.partition),
            "dlq-offset": str(record.offset),
            "dlq-consumer": consumer,
        }
        value = record.value
        if record.key is None and value is None:
            # aiokafka does not send a record without key and value.
            value, reason["dlq-value"] = b"", "null"
        headers = (*record.headers, *((name, text.encode()) for name, text in reason.items()))
        return OutboxMessage(topic, record.key, value, headers)


@dataclass(frozen=True, slots=True)
class Kept:
    """One row of the table, as operators see it."""

    id: int
    consumer: str
    record: Record
    code: str
    detail: str
    created_at: datetime
    replayed_at: datetime | None


def make(record: Record, code: Code, detail: str) -> DeadLetter:
    """Set a record aside; the detail is cut to what a column and a header should hold."""
    return DeadLetter(record, code, detail.replace("\x00", "\\0").encode(errors="replace").decode()[:DETAIL_MAX])


async def insert(connection: Connection, consumer: str, letters: Sequence[DeadLetter]) -> None:
    """Write dead letters in the transaction that steps over their records."""
    rows = [
        (
            consumer,
            letter.record.topic,
            letter.record.partition,
            letter.record.offset,
            letter.record.key,
            letter.record.value,
            *outbox.split_headers(letter.record.headers),
            datetime.fromtimestamp(max(letter.record.timestamp_ms, 0) / 1000, UTC),
            letter.code.code,
            letter.detail,
        )
        for letter in letters
    ]
    await connection.copy_records_to_table("dead_letters", records=rows, columns=_COLUMNS)


async def find(
    connection: Connection | asyncpg.Pool,
    *,
    topic: str | None = None,
    after: int = 0,
    waiting_only: bool = True,
    limit: int = 50,
) -> list[Kept]:
    """List dead letters by id, from `after` on; by default those not replayed yet."""
    rows = await connection.fetch(_LIST, topic, after, waiting_only, min(limit, PAGE_MAX))
    return [_kept(row) for row in rows]


async def show(connection: Connection | asyncpg.Pool, letter_id: int) -> Kept | None:
    """Return one dead letter."""
    row = await connection.fetchrow("SELECT * FROM dead_letters WHERE id = $1", letter_id)
    return None if row is None else _kept(row)


async def replay(connection: Connection, ids: Sequence[int], *, dry_run: bool) -> list[Kept]:
    """Publish records to their source topic again, with their original bytes, and return them.

    Runs in the caller's transaction. A replayed record comes at a new offset and after whatever its key has
    seen since; the consumer's own idempotency decides what it still changes.

    Raises:
        LookupError: an id is unknown.
        ValueError: a record has neither key nor value and cannot be produced again.
    """
    rows = [_kept(row) for row in await connection.fetch(_TAKE, list(ids))]
    missing = set(ids) - {row.id for row in rows}
    if missing:
        raise LookupError(f"no dead letters {sorted(missing)}")
    for row in rows:
        if row.record.key is None and row.record.value is None:
            raise ValueError(f"dead letter {row.id} has neither key nor value")
    if not dry_run:
        await outbox.insert(
            connection,
            [OutboxMessage(r.record.topic, r.record.key, r.record.value, r.record.headers) for r in rows],
        )
        await connection.execute(_REPLAYED, [row.id for row in rows])
    return rows


def _kept(row: asyncpg.Record) -> Kept:
    headers: Headers = outbox.join_headers(row["header_names"], row["header_values"])
    produced_ms = round(row["produced_at"].timestamp() * 1000)
    record = Record(row["topic"], row["partition"], row["offset"], row["key"], row["value"], headers, produced_ms)
    return Kept(row["id"], row["consumer"], record, row["code"], row["detail"], row["created_at"], row["replayed_at"])
