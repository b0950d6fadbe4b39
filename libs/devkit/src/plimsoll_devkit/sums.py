"""What is the smallest service on the engine? Sums per key; tests run it in their own process or as members.

A record is `{"key": "a", "seq": 7, "n": 2}`. `total` adds each seq once, `records` counts every record that was
applied, so that a record applied twice or not at all shows although duplicates do not, and `disorder` counts
seqs that came before their predecessor.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import structlog
from faststream.asgi import AsgiFastStream
from pydantic import BaseModel

from plimsoll_contracts.topics import Topic
from plimsoll_runtime import logs, migrations, pool
from plimsoll_streams import MIGRATIONS
from plimsoll_streams.dispatch import Transaction
from plimsoll_streams.engine import Engine
from plimsoll_streams.kafka import Group
from plimsoll_streams.ports import Settings
from plimsoll_streams.records import OutboxMessage, Received, Reply

SCHEMA = "sums"
PARTITIONS = 4
_TABLE = """
CREATE TABLE IF NOT EXISTS sums.sums (
    key text PRIMARY KEY, total bigint NOT NULL, seq bigint NOT NULL,
    records bigint NOT NULL, disorder bigint NOT NULL
)
"""
_LOAD = "SELECT key, total, seq, records, disorder FROM sums WHERE key = ANY($1)"
_SAVE = """
INSERT INTO sums SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
ON CONFLICT (key) DO UPDATE SET total = excluded.total, seq = excluded.seq, records = excluded.records,
    disorder = excluded.disorder
"""


class Increment(BaseModel):
    """Add `n` to a key; `seq` counts the key's increments from 1."""

    key: str
    seq: int
    n: int = 1
    bug: bool = False
    """Handling it fails."""


@dataclass(slots=True)
class Sum:
    """One row."""

    key: str
    total: int = 0
    seq: int = 0
    records: int = 0
    disorder: int = 0

    def add(self, increment: Increment) -> None:
        """Count the record, and its amount if it is new."""
        self.records += 1
        if increment.seq > self.seq:
            self.disorder += increment.seq != self.seq + 1
            self.seq = increment.seq
            self.total += increment.n


@dataclass(slots=True)
class Unit:
    """The sums of one batch."""

    rows: dict[str, Sum]
    out: str | None = None
    changed: set[str] = field(default_factory=set)

    async def save(self, tx: Transaction) -> None:
        """Write all sums, and one message per key to the outbox."""
        rows = [self.rows[key] for key in sorted(self.rows)]
        columns = list(zip(*((r.key, r.total, r.seq, r.records, r.disorder) for r in rows), strict=True))
        await tx.connection.execute(_SAVE, *map(list, columns))
        if self.out:
            for key in sorted(self.changed):
                seq = self.rows[key].seq
                tx.emit(OutboxMessage(self.out, key.encode(), json.dumps({"key": key, "seq": seq}).encode()))

    def committed(self) -> None:
        """Nothing is kept in memory."""


def topics(name: str, partitions: int = PARTITIONS) -> tuple[Topic, Topic]:
    """Return the requests topic, which is decided first, and the facts topic of one test."""

    def make(suffix: str) -> Topic:
        return Topic(
            name=f"{name}.{suffix}",
            key="key",
            messages={"increment.v1": Increment},
            producers=(),
            consumers=(),
            partitions=partitions,
            retention=timedelta(days=1),
            dead_lettered=True,
        )

    return make("requests"), make("facts")


def with_dead_letters(*declared: Topic) -> list[Topic]:
    """Return topics and their dead letter topics: what has to exist."""
    return [*declared, *(topic.dlq for topic in declared if topic.dlq is not None)]


async def migrate(dsn: str) -> None:
    """Create the schema as its owner; any role may use it."""
    await migrations.migrate(dsn, schema=SCHEMA, sources=[MIGRATIONS])
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_TABLE)
        await connection.execute(
            "GRANT USAGE ON SCHEMA sums TO PUBLIC; GRANT ALL ON ALL TABLES IN SCHEMA sums TO PUBLIC"
        )
    finally:
        await connection.close()


def build(
    *,
    name: str,
    bootstrap: str,
    database: asyncpg.Pool,
    instance: str = "0",
    settings: Settings | None = None,
    group: Group | None = None,
    out: str | None = None,
    hook: Callable[[Sequence[Received[Increment]]], Awaitable[None]] | None = None,
    **options: Any,
) -> tuple[Engine[Unit], AsgiFastStream]:
    """Wire the engine and its application; `name` is also the prefix of its two topics.

    `hook` is awaited with each handler's batch before it is added: a test's place to wait or to fail. Further
    options are the engine's own.
    """

    async def open_unit(tx: Transaction, keys: Sequence[str]) -> Unit:
        rows = {key: Sum(key) for key in keys}
        rows |= {row["key"]: Sum(*row) for row in await tx.connection.fetch(_LOAD, keys)}
        return Unit(rows, out)

    engine = Engine(
        name=name,
        bootstrap=bootstrap,
        pool=database,
        open_unit=open_unit,
        instance=instance,
        settings=settings,
        group=group,
        **options,
    )
    requests, facts = topics(name)

    def key_of(increment: Increment) -> str:
        return increment.key

    async def add(unit: Unit, batch: Sequence[Received[Increment]], tx: Transaction) -> None:
        if hook is not None:
            await hook(batch)
        for received in batch:
            increment = received.message
            if increment.bug:
                raise ValueError(f"bug at {increment.key} {increment.seq}")
            unit.rows[increment.key].add(increment)
            unit.changed.add(increment.key)
            address = dict(received.record.headers)
            if reply_to := (address.get("reply_to") or b"").decode():
                body = json.dumps({"key": increment.key, "total": unit.rows[increment.key].total}).encode()
                if engine.check_reply_to(reply_to, 0) is None:
                    tx.reply(Reply(reply_to, 0, received.record.key, body))

    engine.subscriber(requests, guard=key_of, first=True)(add)
    engine.subscriber(facts, guard=key_of)(add)
    app = AsgiFastStream(engine.broker, logger=None)
    engine.attach(app)
    return engine, app


async def _serve() -> int:
    environment = os.environ
    logs.configure(service=environment["SUMS_NAME"], instance=int(environment["SUMS_INSTANCE"]), format="json")
    database = await pool.create(
        environment["SUMS_DSN"], application_name=f"sums-{environment['SUMS_INSTANCE']}", schema=SCHEMA
    )
    engine, app = build(
        name=environment["SUMS_NAME"],
        bootstrap=environment["SUMS_KAFKA"],
        database=database,
        instance=environment["SUMS_INSTANCE"],
        settings=Settings(records_max=int(environment.get("SUMS_RECORDS_MAX", "500"))),
        out=environment.get("SUMS_OUT"),
    )
    await app.run(run_extra_options={"host": "127.0.0.1", "port": "0", "log_config": None})
    structlog.get_logger("sums").info("ended", failure=repr(engine.failure))
    return 1 if engine.failure else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(_serve()))
