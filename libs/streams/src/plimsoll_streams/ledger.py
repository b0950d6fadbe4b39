"""How far is each partition applied, and by whom: the offset rows in PostgreSQL, and the transactions around them."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from plimsoll_streams.ownership import Claim
from plimsoll_streams.records import Partition
from plimsoll_streams.transactions import Connection, Transactions

_OPEN = """
INSERT INTO consumer_offsets (consumer, topic, partition, next_offset, epoch, owner)
SELECT $1, topic, number, first, 0, $2
FROM unnest($3::text[], $4::int[], $5::bigint[]) AS x (topic, number, first)
ORDER BY topic, number
ON CONFLICT DO NOTHING
"""
# A row that is locked is passed over, not waited for: one frozen writer then holds up its own partitions only.
_CLAIM = """
UPDATE consumer_offsets o SET epoch = o.epoch + 1, owner = $2, claimed_at = now()
FROM (
    SELECT consumer, topic, partition FROM consumer_offsets
    WHERE consumer = $1 AND (topic, partition) IN (SELECT * FROM unnest($3::text[], $4::int[]))
    ORDER BY topic, partition FOR UPDATE SKIP LOCKED
) free
WHERE (o.consumer, o.topic, o.partition) = (free.consumer, free.topic, free.partition)
RETURNING o.topic, o.partition, o.next_offset, o.epoch
"""
# Rows are taken in (topic, partition) order everywhere, so that two members never wait for each other.
_LOCK = """
SELECT topic, partition, next_offset, epoch FROM consumer_offsets
WHERE consumer = $1 AND (topic, partition) IN (SELECT * FROM unnest($2::text[], $3::int[]))
ORDER BY topic, partition FOR UPDATE
"""
# The same for rows that are as expected, which are only counted: without parameters it goes along with BEGIN.
_BEGIN = """
BEGIN; SELECT FROM consumer_offsets o JOIN (VALUES {rows}) AS x (topic, number, next_offset, epoch)
ON (o.topic, o.partition, o.next_offset, o.epoch) = (x.topic, x.number, x.next_offset, x.epoch)
WHERE o.consumer = {consumer} ORDER BY o.topic, o.partition FOR UPDATE OF o
"""
# And this goes along with COMMIT.
_ADVANCE = """
UPDATE consumer_offsets o SET next_offset = x.next_offset, updated_at = now()
FROM (VALUES {rows}) AS x (topic, number, next_offset)
WHERE o.consumer = {consumer} AND (o.topic, o.partition) = (x.topic, x.number);
"""
_RESET = """
UPDATE consumer_offsets SET next_offset = $4, epoch = epoch + 1, updated_at = now()
WHERE consumer = $1 AND topic = $2 AND partition = $3 RETURNING next_offset
"""


@dataclass(slots=True)
class Session:
    """One transaction of one consumer; what the loop needs of it, and the connection for everybody else."""

    connection: Connection
    consumer: str
    owner: str
    last: str = ""
    """What goes to the server along with the COMMIT."""

    async def claim(self, first_offsets: Mapping[Partition, int]) -> dict[Partition, Claim]:
        """Raise the epoch of each row that nobody has locked, and return those rows.

        A partition never seen before begins at its first offset in the log.
        """
        await self.connection.execute("BEGIN")
        topics, numbers = _columns(first_offsets)
        firsts = list(first_offsets.values())
        await self.connection.execute(_OPEN, self.consumer, self.owner, topics, numbers, firsts)
        return _claims(await self.connection.fetch(_CLAIM, self.consumer, self.owner, topics, numbers))

    async def lock(self, expected: Mapping[Partition, Claim]) -> dict[Partition, Claim]:
        """Lock the rows of a batch until the transaction ends, and return what they hold."""
        rows = [(*partition, claim.next_offset, claim.epoch) for partition, claim in expected.items()]
        status = await self.connection.execute(_with(_BEGIN, self.consumer, rows))
        if status == f"SELECT {len(rows)}":
            return dict(expected)
        topics, numbers = _columns(expected)
        return _claims(await self.connection.fetch(_LOCK, self.consumer, topics, numbers))

    async def advance(self, targets: Mapping[Partition, int]) -> None:
        """Move locked and judged rows to their new next offset, as the last act of the transaction."""
        self.last = _with(_ADVANCE, self.consumer, [(*partition, target) for partition, target in targets.items()])


class Ledger:
    """Transactions for one consumer loop."""

    def __init__(self, pool: asyncpg.Pool, *, consumer: str, owner: str) -> None:
        self._transactions = Transactions(pool)
        self._consumer = consumer
        self._owner = owner

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Commit what the block did, or roll back where it raised; `Transient` when the connection was lost."""
        async with self._transactions.unbegun() as made:
            session = Session(made.connection, self._consumer, self._owner)
            yield session
            made.last = session.last

    async def close(self) -> None:
        """Give the connection back."""
        await self._transactions.close()


async def reset(connection: Connection, consumer: str, partition: Partition, next_offset: int) -> bool:
    """Set where a partition is read on from: an operator's answer to a refused one. False when it has no row."""
    row = await connection.fetchval(_RESET, consumer, partition.topic, partition.number, next_offset)
    return row is not None


def _with(statement: str, consumer: str, rows: Iterable[tuple[str | int, ...]]) -> str:
    """Return a statement with everything written out."""
    values = ", ".join(f"({_quoted(topic)}, {', '.join(f'{n}::bigint' for n in numbers)})" for topic, *numbers in rows)
    return statement.format(rows=values, consumer=_quoted(consumer))


def _quoted(text: str | int) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _columns(partitions: Iterable[Partition]) -> tuple[list[str], list[int]]:
    pairs = list(partitions)
    return [partition.topic for partition in pairs], [partition.number for partition in pairs]


def _claims(rows: Iterable[asyncpg.Record]) -> dict[Partition, Claim]:
    return {Partition(row["topic"], row["partition"]): Claim(row["next_offset"], row["epoch"]) for row in rows}
