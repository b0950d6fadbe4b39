"""What is wrong in the database: one function a check, each reading on a session of its own, writing nothing."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import asyncpg

from plimsoll_contracts.doctor import Finding, Verdict, found
from plimsoll_contracts.topics import Topic
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.model import GAUGES, Gauge
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.storage.queries import MIGRATIONS, QUERIES, SCHEMA
from plimsoll_runtime import migrations
from plimsoll_streams.transactions import Connection

DAYS_AHEAD = 7
SLOW_SECONDS = 0.25
CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 1.0, 30.0
SWEEP_WARN_SECONDS, SWEEP_FAIL_SECONDS = 5.0, 60.0
"""Whatever ends by itself does so within five seconds (DESIGN 5.3 rule 1)."""
OUTBOX_WARN_SECONDS, OUTBOX_FAIL_SECONDS = 10.0, 60.0
GATES_BACK = timedelta(hours=1)
NAMED_MAX = 3


@dataclass
class Examined:
    """What the doctor looks at."""

    pool: asyncpg.Pool
    policy: Policy
    bootstrap: str
    consumes: tuple[Topic, ...]
    status: Callable[[], Mapping[str, Any]]
    """The process's own account of itself."""
    folded_to: str = ""
    """The tenant at which the last refold ran out of time; the next one goes on after it."""


DatabaseCheck = Callable[[Connection, Examined], Awaitable[Finding]]


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def lasting(seconds: float) -> str:
    """Write a length of time in the unit that people would take."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def listed(names: Sequence[str], total: int | None = None) -> str:
    """Name the first few, and say how many more there are; ``total`` where not all were read."""
    more = (len(names) if total is None else total) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def graded(value: float, warn: float, fail: float) -> Verdict:
    """Judge a figure that should be small."""
    return Verdict.FAIL if value >= fail else Verdict.WARN if value >= warn else Verdict.OK


async def database(connection: Connection, _: Examined) -> Finding:
    """Whether it answers, may be written, and how soon."""
    began = monotonic()
    version, is_read_only = await connection.fetchrow(
        "SELECT current_setting('server_version'), current_setting('transaction_read_only') = 'on'"
    ) or ("?", True)
    took = monotonic() - began
    if is_read_only:
        return found("database", Verdict.FAIL, f"PostgreSQL {version} answers, and may only be read: is it a replica?")
    verdict = graded(took, SLOW_SECONDS, float("inf"))
    return found("database", verdict, f"PostgreSQL {version} answers in {took * 1000:.1f} ms")


async def schema(connection: Connection, _: Examined) -> Finding:
    """Whether exactly this version's migrations are applied."""
    try:
        await migrations.verify(connection, schema=SCHEMA, sources=MIGRATIONS)
    except migrations.WrongSchemaError as wrong:
        return found("migrations", Verdict.FAIL, f"{counted(len(wrong.problems), 'problem')}: {listed(wrong.problems)}")
    return found("migrations", Verdict.OK, f"{counted(len(migrations.read(MIGRATIONS)), 'migration')} applied")


async def days(connection: Connection, _: Examined) -> Finding:
    """Whether decisions and changes have a partition for each of the coming days."""
    rows = await connection.fetch(QUERIES["doctor_days"], DAYS_AHEAD)
    missing = [f"{row['parent']} of {row['day']}" for row in rows if not row["is_there"]]
    if not missing:
        return found("days", Verdict.OK, f"every day until {rows[-1]['day']} has its partitions")
    soon = any(row["ahead"] <= 1 for row in rows if not row["is_there"])
    return found(
        "days",
        Verdict.FAIL if soon else Verdict.WARN,
        f"{counted(len(missing), 'partition')} missing: {listed(missing)}",
    )


async def durability(connection: Connection, _: Examined) -> Finding:
    """Whether an acknowledged commit survives a crash of the server."""
    rows = await connection.fetch(QUERIES["doctor_durability"])
    unsafe = [f"{row['name']} is off" for row in rows if row["setting"] == "off"]
    if unsafe:
        return found("durability", Verdict.FAIL, f"{listed(unsafe)}: a crash may lose what was acknowledged")
    return found("durability", Verdict.OK, ", ".join(f"{row['name']} is {row['setting']}" for row in rows))


async def clock(
    connection: Connection, _: Examined, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Finding:
    """Whether this process and the database agree on the time."""
    before = now()
    theirs = await connection.fetchval("SELECT clock_timestamp()")
    after = now()
    # Whatever lies between asking and being answered may be the network's.
    apart = max(0.0, (before - theirs).total_seconds(), (theirs - after).total_seconds())
    verdict = graded(apart, CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS)
    if verdict is Verdict.OK:
        return found("clock", verdict, f"service and database agree within {(after - before).total_seconds():.3f} s")
    side = "behind" if theirs > after else "ahead of"
    return found("clock", verdict, f"the service's clock is {lasting(apart)} {side} the database's")


async def instances(connection: Connection, _: Examined) -> Finding:
    """Whether two processes run under one ordinal; each session names its process."""
    rows = await connection.fetch(QUERIES["doctor_sessions"])
    by_instance: dict[str, list[str]] = {}
    for row in rows:
        instance, _space, process = row["application_name"].partition(" ")
        by_instance.setdefault(instance, []).append(process)
    twice = {instance: each for instance, each in by_instance.items() if len(each) > 1}
    if twice:
        instance, processes = next(iter(twice.items()))
        told = f"{counted(len(processes), 'process', 'processes')} run as {instance}: {listed(processes)}"
        return found("instances", Verdict.FAIL, told)
    return found("instances", Verdict.OK, f"{counted(len(by_instance), 'replica')}: {listed(sorted(by_instance))}")


async def ownership(connection: Connection, examined: Examined) -> Finding:
    """Whether a live process owns each partition of each topic that is consumed."""
    names, partitions = zip(*((topic.name, topic.partitions) for topic in examined.consumes), strict=True)
    rows = await connection.fetch(QUERIES["doctor_owners"], names, partitions)
    lost = [f"{row['topic']}/{row['partition']} of {row['owner'] or 'nobody'}" for row in rows if not row["is_live"]]
    if lost:
        told = f"{len(lost):,} of {counted(len(rows), 'partition')} belong to no live replica: {listed(lost)}"
        return found("ownership", Verdict.FAIL, told)
    owners = sorted({row["owner"] for row in rows})
    return found("ownership", Verdict.OK, f"{counted(len(rows), 'partition')} owned by {listed(owners)}")


async def outbox(connection: Connection, _: Examined) -> Finding:
    """How much waits to be published, and since when."""
    count, oldest = await connection.fetchrow(QUERIES["doctor_outbox"]) or (0, 0.0)
    if not count:
        return found("outbox", Verdict.OK, "nothing waits to be published")
    told = f"{counted(count, 'message')} to be published, the oldest for {lasting(oldest)}"
    return found("outbox", graded(oldest, OUTBOX_WARN_SECONDS, OUTBOX_FAIL_SECONDS), told)


async def dead_letters(connection: Connection, _: Examined) -> Finding:
    """Whether records were set aside and nobody has dealt with them."""
    rows = await connection.fetch(QUERIES["doctor_dead_letters"])
    if not rows:
        return found("dead-letters", Verdict.OK, "none waits")
    told = [f"{row['waiting']:,} of {row['topic']}" for row in rows]
    total, oldest = sum(row["waiting"] for row in rows), max(row["oldest"] for row in rows)
    sentence = f"{counted(total, 'record')} set aside, the oldest {lasting(oldest)} ago: {listed(told)}"
    return found("dead-letters", Verdict.WARN, sentence)


def overdue(name: str, query: str, noun: str) -> DatabaseCheck:
    """Make a check of what should have ended by itself."""

    async def check(connection: Connection, _: Examined) -> Finding:
        count, oldest, tenants = await connection.fetchrow(QUERIES[query]) or (0, 0.0, [])
        if not count:
            return found(name, Verdict.OK, f"no {noun} is past its time")
        whose = "its" if count == 1 else "their"
        told = f"{counted(count, noun)} past {whose} time, by up to {lasting(oldest)}: {listed(tenants)}"
        return found(name, graded(oldest, SWEEP_WARN_SECONDS, SWEEP_FAIL_SECONDS), told)

    return check


async def gates(connection: Connection, examined: Examined) -> Finding:
    """Whether a gate let something through for want of an entitlement."""
    if not examined.policy.entitlements_expected:
        return found("gates", Verdict.OK, "entitlements are off here, so there are no gates")
    rows = await connection.fetch(QUERIES["doctor_gates"], GATES_BACK)
    if not rows:
        return found("gates", Verdict.OK, "none failed open within the last hour")
    told = [f"{row['gate']} {row['times']:,} times, last {lasting(row['ago'])} ago" for row in rows]
    return found("gates", Verdict.WARN, f"failed open within the last hour: {listed(told)}")


async def entitlements(connection: Connection, examined: Examined) -> Finding:
    """Whether tenants are known of whom billing has said nothing."""
    if not examined.policy.entitlements_expected:
        return found("entitlements", Verdict.OK, "entitlements are off here")
    total, missing, names = await connection.fetchrow(QUERIES["doctor_entitlements"]) or (0, 0, [])
    if not missing:
        told = f"{counted(total, 'tenant')}, each with its entitlement" if total else "no tenant is known yet"
        return found("entitlements", Verdict.OK, told)
    told = f"{missing:,} of {counted(total, 'tenant')} without one, so that gates fail open: {listed(names, missing)}"
    return found("entitlements", Verdict.WARN, told)


async def over_limits(connection: Connection, _: Examined) -> Finding:
    """Which limits are crossed now, as last told."""
    rows = await connection.fetch(QUERIES["doctor_over_limits"])
    if not rows:
        return found("over-limits", Verdict.OK, "no scope is over a limit")
    infos = {info.gauge: info for info in GAUGES}
    told = []
    scope = ""
    for row in rows:
        place = answers.scope_of(row["tenant"], (row["environment"], row["stack"])).render()
        scope = scope or place
        told.append(f"{place} {infos[Gauge(row['gauge'])].dimension} for {lasting(row['lasts'])}")
    total = rows[0]["total"]
    sentence = f"{counted(total, 'limit')} crossed: {listed(told, total)}"
    return found("over-limits", Verdict.WARN, sentence, f"plimsoll quota status {scope}")


CHECKS: Mapping[str, DatabaseCheck] = {
    "database": database,
    "migrations": schema,
    "days": days,
    "durability": durability,
    "clock": clock,
    "instances": instances,
    "ownership": ownership,
    "outbox": outbox,
    "dead-letters": dead_letters,
    "holds": overdue("holds", "doctor_holds", "hold"),
    "limits": overdue("limits", "doctor_limits", "limit"),
    "waiters": overdue("waiters", "doctor_waiters", "waiting request"),
    "gates": gates,
    "entitlements": entitlements,
    "over-limits": over_limits,
}
"""What is read from the database alone, by the name of its check."""
