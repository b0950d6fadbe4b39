"""How are limits changed: under the tenant's guard, with history, all or none, and every crossing told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import LimitChanged, Mode
from plimsoll_contracts.fields import UNLIMITED, LimitValue
from plimsoll_contracts.topics import QUOTA_LIMITS
from plimsoll_quota_enforcer import answers
from plimsoll_quota_enforcer.domain.decide import expire
from plimsoll_quota_enforcer.domain.model import TENANT, Limit, Place
from plimsoll_quota_enforcer.domain.relimit import LimitPlan, LimitRefused, relimit
from plimsoll_quota_enforcer.domain.state import Policy, Resolved
from plimsoll_quota_enforcer.storage import loading, rows
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_quota_enforcer.storage.unit import Unit, open_unit
from plimsoll_streams import outbox
from plimsoll_streams.records import OutboxMessage
from plimsoll_streams.transactions import Connection

SOURCE = "plimsoll"
"""Who changes a limit that expires."""

DEFAULTS = "defaults"
"""How the global defaults are rendered where a scope is expected."""


@dataclass(frozen=True, slots=True)
class Patch:
    """What somebody wants to change, with who and why. None unsets a dimension; a limit's value None is unlimited."""

    values: Mapping[Dimension, "Wanted | None"]
    by: str
    reason: str
    mode: Mode = Mode.ENFORCE
    expires_at: datetime | None = None
    force: bool = False
    if_version: int | None = None
    """The version of the only dimension named, as the caller last saw it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The value of a limit to set; None is unlimited."""

    value: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """What a patch did."""

    plans: tuple[LimitPlan, ...]
    seq: int | None
    committed: Callable[[], None] = lambda: None
    """To be called once the transaction is durable."""


async def change_limits(
    connection: Connection, cache: StateCache, policy: Policy, *, tenant: str, place: Place, patch: Patch
) -> Changed:
    """Change overrides at one place inside the caller's transaction.

    Raises:
        LimitRefused: a rule speaks against it, or the version is another; nothing was written.
    """
    unit = await open_unit(connection, [tenant], cache, policy)
    unit.absorb(expire(unit.state(tenant), unit.now, policy))  # what has expired speaks against no limit
    state = unit.state(tenant)
    versions = await _last_versions(connection, tenant, place)
    _check_version(state.limits.get(place, {}), patch)
    wanted = {
        dimension: _limit(patch, value, versions.get(dimension, 0) + 1, unit.now)
        for dimension, value in patch.values.items()
    }
    changed, plans = relimit(state, place, wanted, unit.now, policy, force=patch.force)
    messages: list[OutboxMessage] = []
    for plan in plans:
        if plan.limit is not None:
            await connection.execute(QUERIES["save_limit"], tenant, *place, plan.dimension, *_cells(plan.limit))
        else:
            await connection.execute(QUERIES["forget_limit"], tenant, *place, plan.dimension)
        step = _Step(versions.get(plan.dimension, 0) + 1, unit.now, changed.seq)
        messages.append(await _record(connection, tenant, place, plan=plan, step=step, patch=patch))
    unit.absorb(expire(changed, unit.now, policy, also=(place,)))
    await unit.write(messages.append)
    await outbox.insert(connection, messages)
    return Changed(plans, unit.state(tenant).seq, unit.committed)


async def change_defaults(connection: Connection, patch: Patch) -> Changed:
    """Change global defaults inside the caller's transaction; the sweep judges every tenant by them.

    Raises:
        LimitRefused: the version is another; nothing was written.
    """
    await connection.fetchval(QUERIES["lock_platform"])
    now = await connection.fetchval("SELECT clock_timestamp()")
    present = await loading.load_defaults(connection)
    _check_version(present, patch)
    versions = await _last_versions(connection, "", TENANT)
    plans: list[LimitPlan] = []
    messages: list[OutboxMessage] = []
    for dimension, value in patch.values.items():
        version = versions.get(dimension, 0) + 1
        limit, before = _limit(patch, value, version, now), present.get(dimension)
        plan = LimitPlan(
            dimension,
            limit,
            Resolved(before.value, "default", before) if before is not None else None,
            Resolved(limit.value, "default", limit) if limit is not None else None,
        )
        if limit is not None:
            await connection.execute(QUERIES["save_default"], dimension, *_cells(limit))
        else:
            await connection.execute(QUERIES["forget_default"], dimension)
        messages.append(await _record(connection, "", TENANT, plan=plan, step=_Step(version, now), patch=patch))
        plans.append(plan)
    await connection.execute(QUERIES["raise_defaults_version"])
    await outbox.insert(connection, messages)
    return Changed(tuple(plans), None)


async def _last_versions(connection: Connection, tenant: str, place: Place) -> dict[Dimension, int]:
    found = await connection.fetch(QUERIES["last_limit_versions"], tenant, *place)
    return {Dimension(row["dimension"]): row["version"] for row in found}


def _check_version(present: Mapping[Dimension, Limit], patch: Patch) -> None:
    if patch.if_version is None:
        return
    for dimension in patch.values:
        limit = present.get(dimension)
        version = limit.version if limit is not None else 0
        if version != patch.if_version:
            detail = f"{dimension} is at version {version}, not {patch.if_version}"
            raise LimitRefused(codes.LIMIT_VERSION_CONFLICT, detail)


def _limit(patch: Patch, value: Wanted | None, version: int, now: datetime) -> Limit | None:
    if value is None:
        return None
    return Limit(value.value, patch.mode, version, patch.expires_at, patch.by, now, patch.reason)


def _cells(limit: Limit) -> tuple[object, ...]:
    return (limit.value, limit.mode, limit.version, limit.expires_at, limit.set_by, limit.reason, limit.set_at)


def told(resolved: Resolved | None) -> LimitValue | None:
    """Return a resolved limit as messages write it."""
    if resolved is None:
        return None
    return UNLIMITED if resolved.value is None else resolved.value


async def _record(
    connection: Connection, tenant: str, place: Place, *, plan: LimitPlan, step: "_Step", patch: Patch
) -> OutboxMessage:
    """Write one change into the history, and return the event that tells it."""
    value = plan.limit.value if plan.limit is not None else None
    what = (step.version, plan.limit is not None, value, patch.mode, patch.expires_at)
    who = (patch.by, patch.reason, step.at, step.seq)
    await connection.execute(QUERIES["save_limit_history"], tenant, *place, plan.dimension, *what, *who)
    scope = answers.scope_of(tenant, place).render() if tenant else DEFAULTS
    event = LimitChanged(
        tenant=tenant or None,
        scope=scope,
        dimension=plan.dimension,
        before=told(plan.before),
        after=told(plan.after),
        mode=patch.mode,
        version=step.version,
        changed_by=patch.by,
        reason=patch.reason,
        expires_at=patch.expires_at,
        changed_at=step.at,
        seq=step.seq,
    )
    envelope = answers.envelope("quota.limit_changed.v1", f"{scope}:{plan.dimension}:{step.version}", step.at)
    key = (tenant or DEFAULTS).encode()
    return OutboxMessage(QUOTA_LIMITS.name, key, event.model_dump_json().encode(), tuple(envelope.headers()))


async def forget_expired(connection: Connection, unit: Unit) -> list[OutboxMessage]:
    """Unset the overrides whose time has passed, and tell it; crossings are told where the unit is swept."""
    messages: list[OutboxMessage] = []
    for row in await connection.fetch(QUERIES["forget_expired_limits"], list(unit.tenants), unit.now):
        tenant, place, dimension = row["tenant"], (row["environment"], row["stack"]), Dimension(row["dimension"])
        changed, (plan,) = relimit(unit.state(tenant), place, {dimension: None}, unit.now, unit.policy, force=True)
        versions = await _last_versions(connection, tenant, place)
        step = _Step(versions.get(dimension, 0) + 1, unit.now, changed.seq)
        patch = Patch({dimension: None}, SOURCE, f"expired at {row['expires_at']}", Mode(row["mode"]))
        messages.append(await _record(connection, tenant, place, plan=plan, step=step, patch=patch))
        unit.absorb(expire(changed, unit.now, unit.policy, also=(place,)))
    return messages


async def forget_expired_defaults(connection: Connection) -> list[OutboxMessage]:
    """Unset the global defaults whose time has passed, and tell it."""
    await connection.fetchval(QUERIES["lock_platform"])
    now = await connection.fetchval("SELECT clock_timestamp()")
    messages: list[OutboxMessage] = []
    for row in await connection.fetch(QUERIES["forget_expired_defaults"], now):
        dimension, before = Dimension(row["dimension"]), rows.limit(row)
        versions = await _last_versions(connection, "", TENANT)
        plan = LimitPlan(dimension, None, Resolved(before.value, "default", before), None)
        patch = Patch({dimension: None}, SOURCE, f"expired at {before.expires_at}", before.mode)
        step = _Step(versions.get(dimension, 0) + 1, now)
        messages.append(await _record(connection, "", TENANT, plan=plan, step=step, patch=patch))
    if messages:
        await connection.execute(QUERIES["raise_defaults_version"])
    return messages


@dataclass(frozen=True, slots=True)
class _Step:
    """Where in the history a change stands."""

    version: int
    at: datetime
    seq: int | None = None
