"""The same functions over the real storage and a real PostgreSQL."""

import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import asyncpg
from tests.model.model import GAUGES, Body, Place
from tests.model.system import (
    ORDER,
    POLICY,
    Rows,
    Told,
    Wish,
    became,
    decoded,
    facts_of,
    gauge_of,
    reported,
    snapshot_of,
    what_is,
)

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import EnforcementReply, Mode
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.decide import decide, expire, measure, settle_facts
from plimsoll_quota_enforcer.domain.entitle import entitle
from plimsoll_quota_enforcer.domain.model import TENANT, Measured
from plimsoll_quota_enforcer.domain.relimit import LimitRefused
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.limits import Patch, Wanted, change_defaults, change_limits
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.unit import Unit, Wants, open_unit
from plimsoll_streams.records import OutboxMessage, Reply

T = TypeVar("T")
STATEMENTS = dict(QUERIES)

NOTHING = Wants()

_MOVED = re.compile(r"\(clock_timestamp\(\) \+ interval '[^']*'\)")


class Stored:
    """The same over storage: each process has its cache, each step is a transaction on a real PostgreSQL."""

    def __init__(self, tenant: str, pool: asyncpg.Pool, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.tenant = tenant
        self._pool = pool
        self._run = run
        self._caches = [StateCache(1000), StateCache(1000)]
        self._ahead = 0.0
        self.policy = POLICY
        """Under which requests are read."""
        text = self._run(self._pool.fetchval("SELECT pg_get_functiondef('lock_tenants'::regproc)"))
        self._lock = _MOVED.sub("clock_timestamp()", text)
        self.advance(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._ahead)

    def advance(self, seconds: float) -> None:
        """Move the database's clock as every statement of the service reads it."""
        self._ahead += seconds
        moved = f"(clock_timestamp() + interval '{self._ahead} seconds')"
        for name, text in STATEMENTS.items():
            QUERIES[name] = text.replace("clock_timestamp()", moved)
        self._run(self._pool.execute(self._lock.replace("clock_timestamp()", moved)))

    def restart(self, process: int) -> None:
        self._caches[process] = StateCache(1000)

    def _transact(
        self, process: int, work: Callable[[Unit], Awaitable[T]], wants: Wants = NOTHING, *, lost: bool = False
    ) -> tuple[datetime, T, list[EnforcementReply]]:
        woken: list[Reply] = []

        async def run() -> tuple[datetime, T]:
            async with self._pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    unit = await open_unit(connection, [self.tenant], self._caches[process], POLICY, wants)
                    result = await work(unit)
                    messages: list[OutboxMessage] = []
                    await unit.write(messages.append, woken.append)
                except BaseException:
                    await transaction.rollback()
                    raise
                if lost:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    unit.committed()
                return unit.now, result

        now, result = self._run(run())
        return now, result, [EnforcementReply.model_validate_json(reply.value) for reply in woken]

    def batch(self, bodies: list[Body], facts: list[Body], process: int, *, lost: bool = False) -> Told:
        pairs, deltas = [decoded(body, self.policy) for body in bodies], facts_of(facts)

        async def work(unit: Unit) -> tuple[list[EnforcementReply], list[str]]:
            replies: list[EnforcementReply] = []
            outcomes: list[str] = []
            if pairs:
                decided = decide(unit.state(self.tenant), [ask for ask, _ in pairs], unit.now, POLICY, unit.nodes)
                unit.absorb(decided)
                for decision, (_, body) in zip(decided.decisions, pairs, strict=True):
                    reply = answers.reply(decision, unit.now)
                    replies.append(reply)
                    if decision.stored:
                        unit.keep(decision, body, reply.model_dump_json(exclude_defaults=True))
            if deltas:
                settled = settle_facts(unit.state(self.tenant), deltas, unit.now, POLICY, unit.nodes)
                unit.absorb(settled)
                outcomes = [became(one) for one in settled.settlements]
            return replies, outcomes

        wants = Wants([ask for ask, _ in pairs], deltas)
        now, (replies, outcomes), woken = self._transact(process, work, wants, lost=lost)
        return Told(now, replies, outcomes, woken)

    def measure(self, place: Place, bytes_: int, order: tuple[int, int], process: int, *, complete: bool) -> Told:
        async def work(unit: Unit) -> list[str]:
            found = [(place, Measured(bytes_, order, unit.now, "walk", complete))]
            outcome, standings = measure(unit.state(self.tenant), found, unit.now, POLICY, unit.nodes)
            unit.absorb(outcome)
            return [one.value for one in standings]

        now, became_, woken = self._transact(process, work)
        return Told(now, (), became_, woken)

    def report(self, body: Body, process: int) -> None:
        async def work(unit: Unit) -> None:
            unit.set_node(body["node"], reported(body, unit.nodes[body["node"]]))

        self._transact(process, work, Wants(nodes=[body["node"]]))

    def look(self, process: int) -> Told:
        async def work(unit: Unit) -> None:
            unit.absorb(expire(unit.state(self.tenant), unit.now, POLICY, (TENANT,), unit.nodes, wake=True))

        now, _, woken = self._transact(process, work)
        return Told(now, (), (), woken)

    def entitle(self, snapshots: list[Body], process: int) -> Told:
        async def work(unit: Unit) -> list[str]:
            told = [snapshot_of(one) for one in snapshots]
            entitled = entitle(unit.state(self.tenant), told, unit.now, POLICY, unit.nodes)
            unit.absorb(entitled.outcome)
            if entitled.winner is not None:
                unit.keep_snapshot(self.tenant, json.dumps(snapshots[entitled.winner]))
            return [one.value for one in entitled.projected]

        now, became_, woken = self._transact(process, work)
        return Told(now, (), became_, woken)

    def relimit(self, place: Place, wanted: Mapping[str, Wish], process: int, *, force: bool) -> datetime | None:
        mode = Mode(next((wish[1] for wish in wanted.values() if wish is not None), "enforce"))
        values = {Dimension(name): Wanted(wish[0]) if wish is not None else None for name, wish in wanted.items()}
        patch = Patch(values, "alice", "a test", mode, force=force)

        async def run() -> datetime | None:
            async with self._pool.acquire() as connection:
                try:
                    async with connection.transaction():
                        changed = await change_limits(
                            connection, self._caches[process], POLICY, tenant=self.tenant, place=place, patch=patch
                        )
                        now: datetime = await connection.fetchval(
                            "SELECT max(changed_at) FROM limit_history WHERE tenant = $1", self.tenant
                        )
                except LimitRefused:
                    return None
                changed.committed()
                return now

        moment: datetime | None = self._run(run())
        return moment

    def set_default(self, dimension: str, value: int | None) -> None:
        async def run() -> None:
            async with self._pool.acquire() as connection, connection.transaction():
                await change_defaults(
                    connection, POLICY, Patch({Dimension(dimension): Wanted(value)}, "alice", "a test")
                )

        self._run(run())

    def sweep(self, process: int) -> datetime:
        async def work(unit: Unit) -> None:
            unit.absorb(expire(unit.state(self.tenant), unit.now, POLICY, (TENANT,), unit.nodes))
            unit.judged_by_present_defaults(self.tenant)

        due = self._run(self._pool.fetch(QUERIES["tenants_to_sweep"], 100))
        if self.tenant in {row["tenant"] for row in due}:
            return self._transact(process, work)[0]
        return datetime.min.replace(tzinfo=UTC)

    def rows(self) -> Rows:
        found: Rows = self._run(self._rows())
        return found

    async def _rows(self) -> Rows:
        async with self._pool.acquire() as connection:

            async def read(table: str, order: str = "1") -> list[asyncpg.Record]:
                query = f"SELECT * FROM {table} WHERE tenant = $1 ORDER BY {order}"  # noqa: S608  names of this file
                return list(await connection.fetch(query, self.tenant))

            charges = {
                row["deployment"]: (row["revision"], None if row["gone"] else _row_what(row))
                for row in await read("charges")
            }
            holds = {row["request_id"]: (row["deployment"], row["state"]) for row in await read("holds")}
            usage = {
                (row["environment"], row["stack"]): {
                    gauge: (row["used"][n], row["used"][n] + row["held"][n])
                    for gauge, n in zip(GAUGES, ORDER, strict=True)
                }
                for row in await read("usage")
            }
            over = {
                ((r["environment"], r["stack"]), gauge_of(r["gauge"]), r["threshold"])
                for r in await read("over_limits")
            }
            changes = [
                {
                    "seq": row["seq"],
                    "kind": row["kind"],
                    "deployment": row["deployment"],
                    "hold": row["hold"],
                    "replaces": row["replaces"] or (),
                    "surge": row["surge"],
                    "what": None
                    if row["gone"]
                    else what_is((row["environment"], row["stack"]), row["app"], tuple(row["amounts"])),
                }
                for row in await read("changes", "seq")
            ]
            seq = await connection.fetchval("SELECT seq FROM tenants WHERE tenant = $1", self.tenant)
            measured = {(r["environment"], r["stack"]): r["bytes"] for r in await read("measured")}
            waiters = [row["request_id"] for row in await read("waiters", "seq")]
            found = await connection.fetch("SELECT * FROM nodes")
            nodes = {row["node"]: (row["cpu_allocated"], row["memory_allocated"]) for row in found}
        return Rows(charges, holds, usage, over, changes, seq or 0, nodes, measured, waiters)

    def close(self) -> None:
        """Leave nothing behind that the next tenant could see."""
        QUERIES.update(STATEMENTS)
        mine = [f"{table} WHERE tenant = $1" for table in ("tenants", "holds", "waiters")]
        for table in ("defaults WHERE $1 <> ''", "nodes WHERE $1 <> ''", *mine):
            self._run(self._pool.execute(f"DELETE FROM {table}", self.tenant))  # noqa: S608  names of this file
        self._run(self._pool.fetchval(STATEMENTS["raise_defaults_version"]))


def _row_what(row: asyncpg.Record) -> Body:
    names = ("cpu_reserved", "cpu_limit", "memory_reserved", "memory_limit", "disk", "vapps")
    return what_is((row["environment"], row["stack"]), row["app"], tuple(row[name] for name in names))
