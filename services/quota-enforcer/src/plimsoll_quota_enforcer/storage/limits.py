"""How are limits changed: under the tenant's guard, with history, all or none, and every crossing told."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import asyncpg

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import Mode
from plimsoll_quota_enforcer.domain.decide import expire
from plimsoll_quota_enforcer.domain.limits import ceiling
from plimsoll_quota_enforcer.domain.model import GAUGES, TENANT, Limit, Place
from plimsoll_quota_enforcer.domain.relimit import LimitPlan, LimitRefused, relimit
from plimsoll_quota_enforcer.domain.state import Policy, Resolved
from plimsoll_quota_enforcer.storage import loading, rows
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.recording import PLATFORM, Step, last_versions, limits_tag, record
from plimsoll_quota_enforcer.storage.unit import Unit, open_unit
from plimsoll_streams import outbox
from plimsoll_streams.records import OutboxMessage
from plimsoll_streams.transactions import Connection

ABOVE_SHOWN_MAX = 5
"""Tenants above a default that its plan names."""
SOURCE = "plimsoll"
"""Who changes a limit that expires."""


@dataclass(frozen=True, slots=True)
class Patch:
    """What somebody wants to change, with who and why. None unsets a dimension; a limit's value None is unlimited."""

    values: Mapping[Dimension, "Wanted | None"]
    by: str
    reason: str
    mode: Mode = Mode.ENFORCE
    expires_at: datetime | None = None
    force: bool = False
    if_match: int | Literal["*"] | None = "*"
    """The tag of the scope's limits as the caller last saw it; ``*`` is any, and None overwrites nothing unseen."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The value of a limit to set; None is unlimited."""

    value: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """What a patch did."""

    plans: tuple[LimitPlan, ...]
    seq: int | None
    tag: int
    """How often the limits of this scope were changed, this time included."""
    committed: Callable[[], None] = lambda: None
    """To be called once the transaction is durable."""


async def change_limits(
    connection: Connection, cache: StateCache, policy: Policy, *, tenant: str, place: Place, patch: Patch
) -> Changed:
    """Change overrides at one place inside the caller's transaction.

    Raises:
        LimitRefused: a rule speaks against it, or the tag is another; nothing was written.
    """
    unit = await open_unit(connection, [tenant], cache, policy)
    # What has expired speaks against no limit.
    unit.absorb(expire(unit.state(tenant), unit.now, policy, nodes=unit.nodes))
    state = unit.state(tenant)
    tag = await limits_tag(connection, tenant, place)
    _check_match(patch, tag, state.limits.get(place, {}))
    versions = await last_versions(connection, [(tenant, place)])
    next_version = {dimension: versions.get((tenant, place, dimension), 0) + 1 for dimension in patch.values}
    wanted = {
        dimension: _limit(patch, value, next_version[dimension], unit.now) for dimension, value in patch.values.items()
    }
    changed, plans = relimit(state, {place: wanted}, unit.now, policy, force=patch.force)
    steps = [
        replace(_step(tenant, plan, patch, next_version[plan.dimension], unit.now), seq=changed.seq) for plan in plans
    ]
    messages = await record(connection, steps)
    unit.absorb(expire(changed, unit.now, policy, (place,), unit.nodes))
    await unit.write(messages.append)
    await outbox.insert(connection, messages)
    return Changed(plans, unit.state(tenant).seq, tag + len(plans), unit.committed)


async def change_defaults(connection: Connection, policy: Policy, patch: Patch) -> Changed:
    """Change global defaults inside the caller's transaction; the sweep judges every tenant by them.

    Raises:
        LimitRefused: the tag is another; nothing was written.
    """
    await connection.fetchval(QUERIES["lock_platform"])
    now = await connection.fetchval("SELECT clock_timestamp()")
    present = await loading.load_defaults(connection)
    tag = await limits_tag(connection, PLATFORM, TENANT)
    _check_match(patch, tag, present)
    versions = await last_versions(connection, [(PLATFORM, TENANT)])
    steps: list[Step] = []
    for dimension, value in patch.values.items():
        version = versions.get((PLATFORM, TENANT, dimension), 0) + 1
        plan = default_plan(dimension, present.get(dimension), _limit(patch, value, version, now))
        plan = await with_tenants_above(connection, policy, plan, now)
        steps.append(_step(PLATFORM, plan, patch, version, now))
    messages = await record(connection, steps)
    await connection.execute(QUERIES["raise_defaults_version"])
    await outbox.insert(connection, messages)
    return Changed(tuple(step.plan for step in steps), None, tag + len(steps))


def default_plan(dimension: Dimension, before: Limit | None, after: Limit | None) -> LimitPlan:
    """Plan a change of one global default."""
    was, becomes = (Resolved(limit.value, "default", limit) if limit is not None else None for limit in (before, after))
    return LimitPlan(TENANT, dimension, after, was, becomes)


async def with_tenants_above(
    connection: Connection, policy: Policy, plan: LimitPlan, now: datetime, spared: Collection[str] = ()
) -> LimitPlan:
    """Add to the plan of a default who uses more; ``spared`` are tenants whose own limit changes with it."""
    tops = {
        info.gauge + 1: ceiling(plan.after, info, policy.multipliers)
        for info in GAUGES
        if info.dimension is plan.dimension
    }
    if plan.after is None or plan.after.value is None:
        return plan
    gauges = (list(tops), list(tops.values()))
    found = await connection.fetch(
        QUERIES["tenants_above_default"], *gauges, plan.dimension, now, list(spared), ABOVE_SHOWN_MAX + 1
    )
    if not found:
        return plan
    names = [row["tenant"] for row in found[:ABOVE_SHOWN_MAX]] + ["others"] * (len(found) > ABOVE_SHOWN_MAX)
    return replace(plan, warnings=(f"used more than that by {', '.join(names)}: what runs goes on, nothing may grow",))


def _check_match(patch: Patch, tag: int, present: Mapping[Dimension, Limit]) -> None:
    if patch.if_match is None:
        if seen := [dimension for dimension in patch.values if dimension in present]:
            detail = f"{', '.join(seen)}: set already, and If-Match does not say that this was seen"
            raise LimitRefused(codes.IF_MATCH_REQUIRED, detail)
    elif patch.if_match not in ("*", tag):
        detail = f"these limits are at version {tag}, not {patch.if_match}"
        raise LimitRefused(codes.LIMIT_VERSION_CONFLICT, detail)


def _limit(patch: Patch, value: Wanted | None, version: int, now: datetime) -> Limit | None:
    if value is None:
        return None
    return Limit(value.value, patch.mode, version, patch.expires_at, patch.by, now, patch.reason)


def _step(tenant: str, plan: LimitPlan, patch: Patch, version: int, at: datetime) -> Step:
    return Step(tenant, plan, version, at, patch.by, patch.reason, patch.mode, patch.expires_at)


async def forget_expired(connection: Connection, unit: Unit) -> list[OutboxMessage]:
    """Unset the overrides whose time has passed, and tell it; crossings are told where the unit is swept."""
    messages: list[OutboxMessage] = []
    for row in await connection.fetch(QUERIES["forget_expired_limits"], list(unit.tenants), unit.now):
        tenant, place, dimension = row["tenant"], (row["environment"], row["stack"]), Dimension(row["dimension"])
        wanted = {place: {dimension: None}}
        changed, (plan,) = relimit(unit.state(tenant), wanted, unit.now, unit.policy, force=True)
        messages += await record(connection, [_expired(tenant, plan, row, unit.now, changed.seq)])
        unit.absorb(expire(changed, unit.now, unit.policy, (place,), unit.nodes))
    return messages


async def forget_expired_defaults(connection: Connection) -> list[OutboxMessage]:
    """Unset the global defaults whose time has passed, and tell it."""
    await connection.fetchval(QUERIES["lock_platform"])
    now = await connection.fetchval("SELECT clock_timestamp()")
    steps = [
        _expired(PLATFORM, default_plan(Dimension(row["dimension"]), rows.limit(row), None), row, now)
        for row in await connection.fetch(QUERIES["forget_expired_defaults"], now)
    ]
    if steps:
        await connection.execute(QUERIES["raise_defaults_version"])
    return await record(connection, steps)


def _expired(tenant: str, plan: LimitPlan, row: asyncpg.Record, now: datetime, seq: int | None = None) -> Step:
    """Return the step that ends a limit; the last version in its history is the one of its row, which ended it."""
    limit = rows.limit(row)
    return Step(tenant, plan, limit.version + 1, now, SOURCE, f"expired at {limit.expires_at}", limit.mode, seq=seq)
