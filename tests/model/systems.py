"""What is under test: the pure functions by themselves, and the same over the real storage and a real PostgreSQL."""

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import asyncpg
from tests.model.model import GAUGES, Body, Gauge, Place

from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import EnforcementReply, Mode
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.usage import UsageDelta
from plimsoll_devkit.builders import POLICY, Tenant
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.decide import decide, expire, settle_facts
from plimsoll_quota_enforcer.domain.entitle import entitle
from plimsoll_quota_enforcer.domain.model import BUILT_IN, TENANT, Ask, Fact, Limit
from plimsoll_quota_enforcer.domain.relimit import LimitRefused, relimit
from plimsoll_quota_enforcer.domain.state import Outcome, Settlement
from plimsoll_quota_enforcer.requests import Asked, Decoder, entitlement_of
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.limits import Patch, Wanted, change_defaults, change_limits
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.unit import Unit, open_unit
from plimsoll_streams.records import OutboxMessage, Record

T = TypeVar("T")
Wish = tuple[int | None, str] | None

_ORDER = (0, 1, 2, 3, 4, 6, 7, 8, 5)
"""Where each of the model's gauges stands in the rows of usage."""


@dataclass(frozen=True)
class Told:
    """What came of one transaction, and when it was by the clock that decided."""

    now: datetime
    replies: Sequence[EnforcementReply] = ()
    facts: Sequence[str] = ()


@dataclass(frozen=True)
class Rows:
    """What is kept of the tenant."""

    charges: dict[str, tuple[int, Body | None]]
    holds: dict[str, tuple[str, str]]
    usage: dict[Place, dict[Gauge, tuple[int, int]]]
    over: set[tuple[Place, Gauge]]
    changes: list[Body]
    seq: int


class System(Protocol):
    """One tenant, worked on by two processes; ``lost`` ends a transaction without a commit."""

    tenant: str

    def now(self) -> datetime: ...
    def advance(self, seconds: float) -> None: ...
    def restart(self, process: int) -> None: ...
    def batch(self, bodies: list[Body], facts: list[Body], process: int, *, lost: bool = False) -> Told: ...
    def entitle(self, snapshots: list[Body], process: int) -> tuple[datetime, list[str]]: ...
    def relimit(self, place: Place, wanted: Mapping[str, Wish], process: int, *, force: bool) -> datetime | None: ...
    def set_default(self, dimension: str, value: int | None) -> None: ...
    def sweep(self, process: int) -> datetime: ...
    def rows(self) -> Rows: ...
    def close(self) -> None: ...


def decoded(body: Body) -> tuple[Ask, str]:
    """Read a request as the service does."""
    headers = (("reply_to", b"quota.replies.model"),)
    record = Record("quota.requests", 0, 0, body["tenant"].encode(), json.dumps(body).encode(), headers)
    asked = Decoder(BUILT_IN).request(record)
    assert isinstance(asked, Asked), asked
    return asked.ask, asked.body


def facts_of(bodies: list[Body]) -> list[Fact]:
    """Read usage deltas as the service does."""
    return [Decoder(BUILT_IN).fact(UsageDelta.model_validate_json(json.dumps(body))) for body in bodies]


def _became(settlement: Settlement) -> str:
    return settlement.outcome.value if settlement.outcome is not None else "conflict"


class Pure:
    """The pure functions, with dicts for tables; a state is carried along as in the cache, until a restart."""

    tenant = "acme"

    def __init__(self) -> None:
        self._rows = Tenant(policy=POLICY, carried=True)
        self._usage: dict[Place, Any] = {}

    def _absorb(self, outcome: Outcome) -> None:
        self._rows.absorb(outcome)
        self._usage |= {place: outcome.state.tally.usage(place) for place in outcome.places}

    def now(self) -> datetime:
        return self._rows.now

    def advance(self, seconds: float) -> None:
        self._rows.wait(seconds)

    def restart(self, process: int) -> None:
        del process
        self._rows.restart()

    def batch(self, bodies: list[Body], facts: list[Body], process: int, *, lost: bool = False) -> Told:
        del process
        now = self.now()
        decided = decide(self._rows.state, [decoded(body)[0] for body in bodies], now, POLICY)
        settled = settle_facts(decided.state, facts_of(facts), now, POLICY)
        replies = [answers.reply(decision, now) for decision in decided.decisions]
        if not lost:
            self._absorb(decided)
            self._absorb(settled)
            for decision, reply in zip(decided.decisions, replies, strict=True):
                if decision.stored:
                    text = reply.model_dump_json(exclude_defaults=True).encode()
                    stored = self._rows.decisions[decision.ask.request_id]
                    self._rows.decisions[decision.ask.request_id] = replace(stored, reply=text)
        return Told(now, replies, [_became(one) for one in settled.settlements])

    def entitle(self, snapshots: list[Body], process: int) -> tuple[datetime, list[str]]:
        del process
        entitled = entitle(self._rows.state, [_snapshot(one) for one in snapshots], self.now(), POLICY)
        self._absorb(entitled.outcome)
        self._rows.entitlement = entitled.outcome.state.entitlement
        return self.now(), [one.value for one in entitled.projected]

    def relimit(self, place: Place, wanted: Mapping[str, Wish], process: int, *, force: bool) -> datetime | None:
        del process
        limits = {Dimension(d): Limit(w[0], Mode(w[1])) if w is not None else None for d, w in wanted.items()}
        try:
            expired = expire(self._rows.state, self.now(), POLICY)
            changed, _ = relimit(expired.state, place, limits, self.now(), POLICY, force=force)
        except LimitRefused:
            return None
        self._absorb(expired)
        self._rows.limits = {where: dict(of_place) for where, of_place in changed.limits.items()}
        self._absorb(expire(changed, self.now(), POLICY, also=(place,)))
        return self.now()

    def set_default(self, dimension: str, value: int | None) -> None:
        self._rows.defaults[Dimension(dimension)] = Limit(value)

    def sweep(self, process: int) -> datetime:
        del process
        self._absorb(expire(self._rows.state, self.now(), POLICY, also=(TENANT,)))
        return self.now()

    def rows(self) -> Rows:
        usage = {
            place: {gauge: (found.used[n], found.total[n]) for gauge, n in zip(GAUGES, _ORDER, strict=True)}
            for place, found in self._usage.items()
        }
        over = {(place, _gauge(number)) for place, number in self._rows.over}
        changes = [
            {
                "seq": change.seq,
                "kind": change.kind.value,
                "deployment": change.deployment,
                "hold": change.hold,
                "what": None if change.gone else _what(change.content.place, change.content.app, _amounts(change)),
            }
            for change in self._rows.changes
        ]
        charges = {
            name: (c.revision, None if c.gone else _what(c.content.place, c.content.app, _amounts(c)))
            for name, c in self._rows.charges.items()
        }
        holds = {name: (hold.deployment, hold.state.value) for name, hold in self._rows.holds.items()}
        return Rows(charges, holds, usage, over, changes, self._rows.seq)

    def close(self) -> None: ...


class Stored:
    """The same over storage: each process has its cache, each step is a transaction on a real PostgreSQL."""

    def __init__(self, tenant: str, pool: asyncpg.Pool, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.tenant = tenant
        self._pool = pool
        self._run = run
        self._caches = [StateCache(1000), StateCache(1000)]
        self._ahead = 0.0
        self.advance(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._ahead)

    def advance(self, seconds: float) -> None:
        """Move the database's clock as every statement of the service reads it."""
        self._ahead += seconds
        moved = f"(clock_timestamp() + interval '{self._ahead} seconds')"
        for name, text in STATEMENTS.items():
            QUERIES[name] = text.replace("clock_timestamp()", moved)

    def restart(self, process: int) -> None:
        self._caches[process] = StateCache(1000)

    def _transact(
        self, process: int, work: Callable[[Unit], Awaitable[T]], *, lost: bool = False
    ) -> tuple[datetime, T]:
        async def run() -> tuple[datetime, T]:
            async with self._pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    unit = await open_unit(connection, [self.tenant], self._caches[process], POLICY)
                    result = await work(unit)
                    messages: list[OutboxMessage] = []
                    await unit.write(messages.append)
                except BaseException:
                    await transaction.rollback()
                    raise
                if lost:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    unit.committed()
                return unit.now, result

        found: tuple[datetime, T] = self._run(run())
        return found

    def batch(self, bodies: list[Body], facts: list[Body], process: int, *, lost: bool = False) -> Told:
        pairs, deltas = [decoded(body) for body in bodies], facts_of(facts)

        async def work(unit: Unit) -> tuple[list[EnforcementReply], list[str]]:
            replies, became = [], []
            if pairs:
                await unit.recall_for_asks([ask for ask, _ in pairs])
                decided = decide(unit.state(self.tenant), [ask for ask, _ in pairs], unit.now, POLICY)
                unit.absorb(decided)
                for decision, (_, body) in zip(decided.decisions, pairs, strict=True):
                    reply = answers.reply(decision, unit.now)
                    replies.append(reply)
                    if decision.stored:
                        unit.keep(decision, body, reply.model_dump_json(exclude_defaults=True))
            if deltas:
                await unit.recall_for_facts(deltas)
                settled = settle_facts(unit.state(self.tenant), deltas, unit.now, POLICY)
                unit.absorb(settled)
                became = [_became(one) for one in settled.settlements]
            return replies, became

        now, (replies, became) = self._transact(process, work, lost=lost)
        return Told(now, replies, became)

    def entitle(self, snapshots: list[Body], process: int) -> tuple[datetime, list[str]]:
        async def work(unit: Unit) -> list[str]:
            entitled = entitle(unit.state(self.tenant), [_snapshot(one) for one in snapshots], unit.now, POLICY)
            unit.absorb(entitled.outcome)
            if entitled.winner is not None:
                unit.keep_snapshot(self.tenant, json.dumps(snapshots[entitled.winner]))
            return [one.value for one in entitled.projected]

        return self._transact(process, work)

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
                await change_defaults(connection, Patch({Dimension(dimension): Wanted(value)}, "alice", "a test"))

        self._run(run())

    def sweep(self, process: int) -> datetime:
        async def work(unit: Unit) -> None:
            unit.absorb(expire(unit.state(self.tenant), unit.now, POLICY, also=(TENANT,)))
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
                    for gauge, n in zip(GAUGES, _ORDER, strict=True)
                }
                for row in await read("usage")
            }
            over = {((r["environment"], r["stack"]), _gauge(r["gauge"])) for r in await read("over_limits")}
            changes = [
                {
                    "seq": row["seq"],
                    "kind": row["kind"],
                    "deployment": row["deployment"],
                    "hold": row["hold"],
                    "what": None
                    if row["gone"]
                    else _what((row["environment"], row["stack"]), row["app"], tuple(row["amounts"])),
                }
                for row in await read("changes", "seq")
            ]
            seq = await connection.fetchval("SELECT seq FROM tenants WHERE tenant = $1", self.tenant)
        return Rows(charges, holds, usage, over, changes, seq or 0)

    def close(self) -> None:
        """Leave nothing behind that the next tenant could see."""
        QUERIES.update(STATEMENTS)
        for table in ("defaults WHERE $1 <> ''", "tenants WHERE tenant = $1", "holds WHERE tenant = $1"):
            self._run(self._pool.execute(f"DELETE FROM {table}", self.tenant))  # noqa: S608  names of this file
        self._run(self._pool.fetchval(STATEMENTS["raise_defaults_version"]))


STATEMENTS = dict(QUERIES)


def _snapshot(body: Body) -> Any:
    return entitlement_of(EntitlementSnapshot.model_validate_json(json.dumps(body)))


def _gauge(number: int) -> Gauge:
    return GAUGES[_ORDER.index(number)]


def _amounts(value: Any) -> tuple[int, ...]:
    f = value.content.footprint
    return (f.cpu_reserved, f.cpu_limit, f.memory_reserved, f.memory_limit, f.disk, f.vapps)


def _row_what(row: asyncpg.Record) -> Body:
    names = ("cpu_reserved", "cpu_limit", "memory_reserved", "memory_limit", "disk", "vapps")
    return _what((row["environment"], row["stack"]), row["app"], tuple(row[name] for name in names))


def _what(place: Place, app: str, amounts: tuple[int, ...]) -> Body:
    cpu, cpu_limit, memory, memory_limit, disk, vapps = amounts
    assert (cpu, memory) == (cpu_limit, memory_limit), "plain amounts count on both bases"
    return {"place": place, "app": app, "cpu": cpu, "memory": memory, "disk": disk, "vapps": vapps}
